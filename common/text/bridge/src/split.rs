//! Pre-tokenizer patterns, executed so that a limit is an error and never
//! another split.
//!
//! The patterns of every byte-level family have the form
//! `HEAD|\s+(?!\S)|\s+` with a HEAD that needs no backtracking. HEAD and
//! `\s+` run in one automaton of regex-automata (linear in the text), and the
//! lookahead is what it amounts to: a run of white space before a visible
//! character leaves its last character to the next match. Any other pattern
//! runs in the crate's backtracking engine, whose errors are passed on here
//! (the crate's own splitter ends silently at them), within a length cap and
//! a time limit that is looked at between matches.

use crate::failure::Failure;
use regex_automata::{meta, Input, PatternID};
use std::time::{Duration, Instant};
use tokenizers::pattern::Pattern;
use tokenizers::Offsets;

const TAIL: &str = r"|\s+(?!\S)|\s+";
pub const GPT2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Heads known to take linear time over a whole text: after a match of
/// length n the automaton has looked at O(n) characters.
const LINEAR_HEADS: &[&str] = &[
    // GPT-2, SmolLM, StarCoder
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+",
    // Llama 3, GLM-4
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
    // Qwen 2, 2.5, 3
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
    // o200k (gpt-oss, Llama 4)
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+",
    // Mistral's tekken
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+",
    // Qwen 3.5
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+",
    // Kimi K2
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
    // DeepSeek V3, Hunyuan, AFMoE
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"##,
    // MiniCPM 5, Seed-OSS, Ling
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]",
];

/// Whole patterns known to be linear: runs of one class of characters without
/// spaces, or with one before them, as the digits that many families cut off
/// first.
const LINEAR_WHOLE: &[&str] = &[
    r"\p{N}",
    r"\p{N}+",
    r"\p{N}{1,3}",
    r"[0-9][0-9][0-9]",
    r"[\r\n]",
    r"\s?\p{L}+",
    r"\s?\p{P}+",
    r"[\p{P}\$\+<=>\^~\|]+",
    r"[\p{P}\$\+<=>\^~\|`]+",
    "[一-龥\u{3040}-ゟ゠-ヿ]+",
    "[一-龥ࠀ-一가-\u{d7ff}]+",
];

/// Limits of patterns that are not known to be linear.
const MAX_UNKNOWN_BYTES: usize = 1 << 20;
const MAX_UNKNOWN_TIME: Duration = Duration::from_secs(5);

enum Engine {
    /// Pattern 0 is the head, pattern 1 the white space of TAIL.
    Automaton {
        regex: Box<meta::Regex>,
        has_tail: bool,
    },
    Backtracking(Box<fancy_regex::Regex>),
}

pub struct Splitter {
    engine: Engine,
    known: bool,
    literal: bool,
}

impl Splitter {
    pub fn new(pattern: &str) -> Result<Self, Failure> {
        // Files have line breaks as escapes or as they are.
        let pattern = &pattern.replace('\r', r"\r").replace('\n', r"\n");
        let head = pattern.strip_suffix(TAIL);
        let known = LINEAR_WHOLE.contains(&pattern.as_str())
            || head.is_some_and(|head| LINEAR_HEADS.contains(&head));
        let parts: Vec<&str> = match head {
            Some(head) => vec![head, r"\s+"],
            None => vec![pattern.as_str()],
        };
        let engine = match meta::Regex::new_many(&parts) {
            Ok(regex) => Engine::Automaton { regex: Box::new(regex), has_tail: head.is_some() },
            Err(_) => Engine::Backtracking(Box::new(
                fancy_regex::Regex::new(pattern)
                    .map_err(|e| Failure::invalid(format!("pre-tokenizer pattern: {e}")))?,
            )),
        };
        Ok(Self { engine, known, literal: false })
    }

    /// Splits words from each other, by one of the families' whole patterns.
    pub fn has_tail(&self) -> bool {
        matches!(self.engine, Engine::Automaton { has_tail: true, .. })
    }

    /// A word and the space behind it never share a piece, and no piece hangs
    /// on what is beyond them: so with every known pattern. Not with literals.
    pub fn parts_words(&self) -> bool {
        self.known && !self.literal
    }

    /// Takes linear time on every text.
    pub fn is_known(&self) -> bool {
        self.known
    }

    pub fn literal(text: &str) -> Result<Self, Failure> {
        let mut made = Self::new(&regex::escape(text))?;
        made.known = true;
        made.literal = true;
        Ok(made)
    }

    /// The next match at or after byte `from`.
    fn find(&self, text: &str, from: usize) -> Result<Option<(usize, usize)>, Failure> {
        match &self.engine {
            Engine::Automaton { regex, has_tail } => {
                let input = Input::new(text).span(from..text.len());
                Ok(regex.search(&input).map(|m| {
                    let spaces = *has_tail && m.pattern() == PatternID::must(1);
                    (m.start(), if spaces { space_end(text, m.start(), m.end()) } else { m.end() })
                }))
            }
            Engine::Backtracking(regex) => match regex.find_from_pos(text, from) {
                Ok(found) => Ok(found.map(|m| (m.start(), m.end()))),
                Err(e) => Err(Failure::exhausted(format!(
                    "the pre-tokenizer pattern gave up at byte {from} of {}: {e}",
                    text.len()
                ))),
            },
        }
    }
}

/// Where `\s+(?!\S)|\s+` ends for the white space [start, end).
fn space_end(text: &str, start: usize, end: usize) -> usize {
    if end == text.len() {
        return end;
    }
    let last = text[start..end].chars().next_back().map_or(0, char::len_utf8);
    if end - last > start {
        end - last
    } else {
        end
    }
}

impl Pattern for &Splitter {
    fn find_matches(&self, inside: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        if inside.is_empty() {
            return Ok(vec![((0, 0), false)]);
        }
        if !self.known && inside.len() > MAX_UNKNOWN_BYTES {
            return Err(Box::new(Failure::exhausted(format!(
                "text of {} bytes; the limit with this model's pre-tokenizer pattern is {}",
                inside.len(),
                MAX_UNKNOWN_BYTES
            ))));
        }
        let started = Instant::now();
        let mut pieces = Vec::with_capacity(inside.len() / 4 + 1);
        let (mut from, mut covered) = (0, 0);
        while from <= inside.len() {
            let Some((start, end)) = self.find(inside, from)? else { break };
            if covered != start {
                pieces.push(((covered, start), false));
            }
            pieces.push(((start, end), true));
            covered = end;
            // An empty match moves on by one character.
            from = if end > start {
                end
            } else {
                end + inside[end..].chars().next().map_or(1, char::len_utf8)
            };
            if !self.known && started.elapsed() > MAX_UNKNOWN_TIME {
                return Err(Box::new(Failure::exhausted(format!(
                    "the pre-tokenizer pattern took longer than {} s for {} bytes",
                    MAX_UNKNOWN_TIME.as_secs(),
                    inside.len()
                ))));
            }
        }
        if covered != inside.len() {
            pieces.push(((covered, inside.len()), false));
        }
        Ok(pieces)
    }
}
