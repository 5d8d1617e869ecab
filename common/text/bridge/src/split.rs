//! Pre-tokenizer patterns, executed so that a limit is an error and never
//! another split.
//!
//! The patterns of every byte-level family have the form
//! `HEAD|\s+(?!\S)|\s+` with a HEAD that needs no backtracking. HEAD and
//! `\s+` run in one automaton of regex-automata (linear in the text), and the
//! lookahead is what it amounts to: a run of white space before a visible
//! character leaves its last character to the next match. Patterns that split
//! digits into threes from a number's end look to that end for every piece:
//! arithmetic does the same in linear time. Any other pattern
//! runs in the crate's backtracking engine, whose errors are passed on here
//! (the crate's own splitter ends silently at them), within a length cap and
//! a time limit that is looked at between matches.

use crate::failure::Failure;
use regex_automata::{meta, Anchored, Input, PatternID};
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

/// Patterns of threes of digits from a number's end.
const THREES: &[(&str, Threes)] = &[
    (r"\d{1,3}(?=(?:\d{3})*\b)", Threes { cuts: false, needs_bound: true }),
    (
        r"\p{Nd}{1,3}(?=(?:\p{Nd}{3})*(?:\P{Nd}|$))",
        Threes { cuts: false, needs_bound: false },
    ),
    (r"(?=(\d{3})+(?!\d))", Threes { cuts: true, needs_bound: false }),
];

#[derive(Clone, Copy)]
struct Threes {
    /// The matches are the empty places before threes, not the pieces.
    cuts: bool,
    /// Digits before a letter do not match.
    needs_bound: bool,
}

/// Limits of patterns that are not known to be linear.
const MAX_UNKNOWN_BYTES: usize = 1 << 20;
const MAX_UNKNOWN_TIME: Duration = Duration::from_secs(5);

enum Engine {
    /// Pattern 0 is the head, pattern 1 the white space of TAIL.
    Automaton {
        regex: Box<meta::Regex>,
        has_tail: bool,
    },
    /// `digits` finds a number, `word` a character of a word.
    FromEnd {
        threes: Threes,
        digits: Box<meta::Regex>,
        word: Box<meta::Regex>,
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
        if let Some((_, threes)) = THREES.iter().find(|(known, _)| *known == pattern.as_str()) {
            let engine = Engine::FromEnd {
                threes: *threes,
                digits: compiled(r"\d+")?,
                word: compiled(r"\w")?,
            };
            return Ok(Self { engine, known: true, literal: false });
        }
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
            Engine::FromEnd { .. } => Ok(None), // see threes_from_end
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

fn compiled(pattern: &str) -> Result<Box<meta::Regex>, Failure> {
    let regex = meta::Regex::new(pattern)
        .map_err(|e| Failure::invalid(format!("pre-tokenizer pattern: {e}")))?;
    Ok(Box::new(regex))
}

/// The matches of a pattern of THREES in `text`, in order.
fn threes_from_end(
    text: &str,
    threes: Threes,
    digits: &meta::Regex,
    word: &meta::Regex,
) -> Vec<(usize, usize)> {
    let mut matches = Vec::new();
    for number in digits.find_iter(text) {
        let behind = Input::new(text).span(number.end()..text.len()).anchored(Anchored::Yes);
        if threes.needs_bound && word.is_match(behind) {
            continue;
        }
        let starts: Vec<usize> =
            text[number.range()].char_indices().map(|(at, _)| number.start() + at).collect();
        let first = (starts.len() - 1) % 3 + 1;
        if threes.cuts {
            matches.extend(starts.iter().skip(first % 3).step_by(3).map(|at| (*at, *at)));
            continue;
        }
        let ends = starts.iter().copied().skip(first).step_by(3).chain([number.end()]);
        let mut start = number.start();
        for end in ends {
            matches.push((start, end));
            start = end;
        }
    }
    matches
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

/// The matches in a text of `size` bytes, and what lies between them.
fn with_gaps(matches: &[(usize, usize)], size: usize) -> Vec<(Offsets, bool)> {
    let mut pieces = Vec::with_capacity(matches.len() * 2 + 1);
    let mut covered = 0;
    for &(start, end) in matches {
        if covered != start {
            pieces.push(((covered, start), false));
        }
        pieces.push(((start, end), true));
        covered = end;
    }
    if covered != size {
        pieces.push(((covered, size), false));
    }
    pieces
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
        if let Engine::FromEnd { threes, digits, word } = &self.engine {
            let matches = threes_from_end(inside, *threes, digits, word);
            return Ok(with_gaps(&matches, inside.len()));
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
