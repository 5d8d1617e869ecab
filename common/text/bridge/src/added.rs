//! Cuts added tokens out of a text as the crate does, with two differences:
//! looking for the white space or word beside a token takes time linear in
//! the text, and tokens with `special: true` can be left to the caller.

use crate::failure::{Failure, Result};
use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::normalizer::Range;
use tokenizers::{AddedToken, NormalizedString, Token, Tokenizer};

/// One set of added tokens to look for.
pub struct Cutter {
    finder: Option<AhoCorasick>,
    tokens: Vec<(u32, AddedToken)>,
}

pub type Piece = (NormalizedString, Option<Vec<Token>>);

impl Cutter {
    /// `tokens`: id, token, and the text that stands for it.
    fn new(tokens: Vec<(u32, AddedToken, String)>) -> Result<Self> {
        let tokens: Vec<_> = tokens.into_iter().filter(|t| !t.2.is_empty()).collect();
        let finder = if tokens.is_empty() {
            None
        } else {
            Some(
                AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostLongest)
                    .build(tokens.iter().map(|t| t.2.as_bytes()))
                    .map_err(|e| Failure::invalid(format!("added_tokens: {e}")))?,
            )
        };
        Ok(Self { finder, tokens: tokens.into_iter().map(|t| (t.0, t.1)).collect() })
    }

    /// Byte ranges of `text` and the id of each that is a token; they cover
    /// the text in order.
    pub fn find(&self, text: &str) -> Vec<(Option<u32>, usize, usize)> {
        let mut ranges = Vec::new();
        let mut done = 0;
        if let Some(finder) = &self.finder {
            for m in finder.find_iter(text) {
                let (id, token) = &self.tokens[m.pattern().as_usize()];
                let (mut start, mut stop) = (m.start(), m.end());
                if token.single_word && !stands_alone(text, start, stop) {
                    continue;
                }
                if token.lstrip {
                    let before = text[done.min(start)..start].trim_end_matches(char::is_whitespace);
                    start = done.min(start) + before.len();
                }
                if token.rstrip {
                    let after = &text[stop..];
                    stop += after.len() - after.trim_start_matches(char::is_whitespace).len();
                }
                let start = start.max(done);
                if stop <= done {
                    continue;
                }
                if done < start {
                    ranges.push((None, done, start));
                }
                ranges.push((Some(*id), start, stop));
                done = stop;
            }
        }
        if done != text.len() {
            ranges.push((None, done, text.len()));
        }
        ranges
    }

    pub fn is_empty(&self) -> bool {
        self.finder.is_none()
    }

    pub fn cut(&self, text: NormalizedString) -> Vec<Piece> {
        if self.finder.is_none() {
            return vec![(text, None)];
        }
        self.find(text.get()).into_iter().map(|(id, b, e)| piece(&text, id, b, e)).collect()
    }
}

/// The part [begin, end) of `text`, as token `id` if it is one.
pub fn piece(text: &NormalizedString, id: Option<u32>, begin: usize, end: usize) -> Piece {
    let part = text.slice(Range::Normalized(begin..end)).expect("range within the text");
    let token = id.map(|id| vec![Token::new(id, String::new(), (0, end - begin))]);
    (part, token)
}

fn stands_alone(text: &str, start: usize, stop: usize) -> bool {
    let word = |c: Option<char>| c.is_some_and(regex_syntax::is_word_character);
    !word(text[..start].chars().next_back()) && !word(text[stop..].chars().next())
}

/// What a pass over a text looks for, with and without special tokens.
pub struct Cutters {
    pub raw: Cutter,
    pub normalized: Cutter,
}

impl Cutters {
    pub fn new(from: &Tokenizer, with_special: bool) -> Result<Self> {
        let added = from.get_added_vocabulary();
        let (mut raw, mut normalized) = (Vec::new(), Vec::new());
        for (id, token) in added.get_added_tokens_decoder() {
            if token.special && !with_special {
                continue;
            }
            if token.normalized {
                let text = added.simple_id_to_token(*id).unwrap_or_default();
                normalized.push((*id, token.clone(), text));
            } else {
                raw.push((*id, token.clone(), token.content.clone()));
            }
        }
        Ok(Self { raw: Cutter::new(raw)?, normalized: Cutter::new(normalized)? })
    }
}
