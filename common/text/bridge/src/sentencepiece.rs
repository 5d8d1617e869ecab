//! Sentencepiece's normalizer: user-defined symbols stay as they are, what else
//! a compiled map names is replaced, white space is marked. The crate's own
//! steps know no symbols and read the map by grapheme.

use crate::failure::{Failure, Result};
use aho_corasick::{AhoCorasick, Anchored, Input, MatchKind, StartKind};
use serde_json::Value;
use std::borrow::Cow;

const MARK: char = '\u{2581}';
/// Sentencepiece looks at so many matches of its map.
const MAX_MATCHES: usize = 32;

/// A compiled map from texts to texts: a double array as Darts writes it, whose
/// values are places in `texts`, where a text ends with a zero.
struct Map {
    units: Vec<u32>,
    texts: Vec<u8>,
}

impl Map {
    fn new(bytes: &[u8]) -> Result<Self> {
        let bad = || Failure::invalid("sentencepiece: malformed map of characters");
        let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(bad)?;
        let size = u32::from_le_bytes(*size) as usize;
        if size > rest.len() || size % 4 != 0 {
            return Err(bad());
        }
        let (units, texts) = rest.split_at(size);
        let units = units.chunks_exact(4).map(|u| u32::from_le_bytes([u[0], u[1], u[2], u[3]]));
        Ok(Self { units: units.collect(), texts: texts.to_vec() })
    }

    /// The bytes that the longest match takes off `text`, and what stands for
    /// them.
    fn find(&self, text: &[u8]) -> Option<(usize, &str)> {
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let mut at = offset(*self.units.first()?);
        let mut found = None;
        let mut matches = 0;
        for (i, byte) in text.iter().enumerate() {
            at ^= usize::from(*byte);
            let Some(unit) = self.units.get(at) else { break };
            if unit & ((1 << 31) | 0xFF) != u32::from(*byte) || matches == MAX_MATCHES {
                break;
            }
            at ^= offset(*unit);
            if unit & (1 << 8) != 0 {
                let value = self.units.get(at)? & !(1 << 31);
                found = Some((i + 1, value as usize));
                matches += 1;
            }
        }
        let (size, begin) = found?;
        let text = self.texts.get(begin..)?;
        let end = text.iter().position(|byte| *byte == 0)?;
        Some((size, std::str::from_utf8(&text[..end]).ok()?))
    }
}

pub struct SentencePiece {
    map: Option<Map>,
    symbols: Option<AhoCorasick>,
    adds_space: bool,
    collapses: bool,
    is_suffix: bool,
}

impl SentencePiece {
    /// `from`: `map` in hexadecimal digits, `symbols`, `adds_space` around a
    /// text, `collapses` white space, `is_suffix` (the space is added behind).
    pub fn new(from: &Value) -> Result<Self> {
        let is = |key: &str| from.get(key).and_then(Value::as_bool).unwrap_or(false);
        let map = bytes_of(from.get("map").and_then(Value::as_str).unwrap_or(""))?;
        let symbols: Vec<&str> = from
            .get("symbols")
            .and_then(Value::as_array)
            .map(|all| all.iter().filter_map(Value::as_str).filter(|s| !s.is_empty()).collect())
            .unwrap_or_default();
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .start_kind(StartKind::Anchored)
            .build(&symbols)
            .map_err(|e| Failure::invalid(format!("sentencepiece: symbols: {e}")))?;
        Ok(Self {
            map: if map.is_empty() { None } else { Some(Map::new(&map)?) },
            symbols: if symbols.is_empty() { None } else { Some(finder) },
            adds_space: is("adds_space"),
            collapses: is("collapses"),
            is_suffix: is("is_suffix"),
        })
    }

    /// Whether a text has at most as many bytes as what becomes of it.
    pub fn keeps_all(&self) -> bool {
        self.map.is_none() && !self.collapses
    }

    /// The bytes that are read next of `text`, which is not empty, and what
    /// stands for them.
    fn next<'a>(&'a self, text: &'a str) -> (usize, &'a str) {
        let symbol = self
            .symbols
            .as_ref()
            .and_then(|symbols| symbols.find(Input::new(text).anchored(Anchored::Yes)));
        if let Some(symbol) = symbol {
            return (symbol.end(), &text[..symbol.end()]);
        }
        if let Some((size, meant)) = self.map.as_ref().and_then(|map| map.find(text.as_bytes())) {
            if text.is_char_boundary(size) {
                return (size, meant);
            }
        }
        let size = text.chars().next().map_or(0, char::len_utf8);
        (size, &text[..size])
    }

    pub fn normalize(&self, text: &str) -> String {
        let mut rest = text;
        while self.collapses && !rest.is_empty() {
            let (size, meant) = self.next(rest);
            if meant != " " {
                break;
            }
            rest = &rest[size..];
        }
        let mut made = String::with_capacity(rest.len() + rest.len() / 2);
        if rest.is_empty() {
            return made;
        }
        if self.adds_space && !self.is_suffix {
            made.push(MARK);
        }
        let mut behind_space = self.collapses;
        while !rest.is_empty() {
            let (size, mut meant) = self.next(rest);
            if behind_space {
                meant = meant.trim_start_matches(' ');
            }
            if !meant.is_empty() {
                made.extend(meant.chars().map(|c| if c == ' ' { MARK } else { c }));
                behind_space = self.collapses && meant.ends_with(' ');
            }
            rest = &rest[size..];
        }
        if self.collapses {
            made.truncate(made.trim_end_matches(MARK).len());
        }
        if self.adds_space && self.is_suffix {
            made.push(MARK);
        }
        made
    }
}

fn bytes_of(digits: &str) -> Result<Vec<u8>> {
    let digit = |d: &u8| (*d as char).to_digit(16).map(|value| value as u8);
    digits
        .as_bytes()
        .chunks(2)
        .map(|pair| match (pair.first().and_then(digit), pair.get(1).and_then(digit)) {
            (Some(high), Some(low)) => Ok((high << 4) | low),
            _ => Err(Failure::invalid("sentencepiece: map: no hexadecimal digits")),
        })
        .collect()
}

/// Takes a normalizer of this kind out of a tokenizer.json.
pub fn take(json: &[u8]) -> Result<(Option<SentencePiece>, Cow<'_, [u8]>)> {
    const TYPE: &[u8] = br#""type":"SentencePiece""#;
    if !json.windows(TYPE.len()).any(|at| at == TYPE) {
        return Ok((None, json.into()));
    }
    let invalid = |e| Failure::invalid(format!("tokenizer.json: {e}"));
    let mut value: Value = serde_json::from_slice(json).map_err(invalid)?;
    let found = match value.get_mut("normalizer") {
        Some(part) if part.get("type").and_then(Value::as_str) == Some("SentencePiece") => {
            part.take()
        }
        _ => return Ok((None, json.into())),
    };
    let rest = serde_json::to_vec(&value).map_err(invalid)?;
    Ok((Some(SentencePiece::new(&found)?), rest.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn normalize(settings: Value, text: &str) -> String {
        SentencePiece::new(&settings).map_err(|e| e.message).unwrap().normalize(text)
    }

    // As sentencepiece 0.2.3 does.
    #[test]
    fn white_space_is_collapsed_but_within_symbols() {
        let settings = json!({"adds_space": true, "collapses": true, "symbols": ["  ", "a b"]});
        for (text, made) in [
            ("", ""),
            ("   ", ""),
            ("a   b", "▁a▁▁b"),
            ("a    b  ", "▁a▁▁b"),
            (" x ", "▁x"),
            ("a b c", "▁a▁b▁c"),
        ] {
            assert_eq!(normalize(settings.clone(), text), made, "{text:?}");
        }
    }

    #[test]
    fn a_space_may_be_the_end_of_a_word() {
        let settings = json!({"adds_space": true, "collapses": true, "is_suffix": true});
        assert_eq!(normalize(settings.clone(), "  hello  world "), "hello▁world▁");
        assert_eq!(normalize(settings, " "), "");
        assert_eq!(normalize(json!({"adds_space": true}), " a  b "), "▁▁a▁▁b▁");
    }

    #[test]
    fn a_map_that_is_none_is_told() {
        for (map, is_map) in [
            ("0", false),
            ("zz", false),
            ("01000000ff", false),
            ("04000000", false),
            ("00000000", true),
            ("0400000000000080", true),
        ] {
            let made = SentencePiece::new(&json!({ "map": map }));
            assert_eq!(made.is_ok(), is_map, "{map}");
            // No text stands for another in these.
            if let Ok(made) = made {
                assert_eq!(made.normalize("ab"), "ab", "{map}");
            }
        }
    }
}
