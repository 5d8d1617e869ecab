//! The JSON within a grammar of Lark.

use crate::failure::{Failure, Result};
use serde::de::IgnoredAny;

/// The places of the JSON behind each `%json` of a grammar.
pub fn json_blocks(text: &str) -> Result<Vec<(usize, usize)>> {
    const KEYWORDS: [&str; 3] = ["%json", "%regex", "%llguidance"];
    let bytes = text.as_bytes();
    let (mut blocks, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        if let Some(keyword) = KEYWORDS.iter().find(|keyword| text[at..].starts_with(**keyword)) {
            let begin = at + keyword.len();
            let size = json_size(&text[begin..], keyword)?;
            if *keyword == KEYWORDS[0] {
                blocks.push((begin, begin + size));
            }
            at = begin + size;
            continue;
        }
        at += lexeme_size(text, at);
    }
    Ok(blocks)
}

fn json_size(text: &str, keyword: &str) -> Result<usize> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    match stream.next() {
        Some(Ok(_)) => Ok(stream.byte_offset()),
        _ => Err(Failure::invalid(format!("grammar: no JSON stands behind a `{keyword}`"))),
    }
}

/// The bytes of the string, expression, comment, name of a token or character
/// at `at`.
fn lexeme_size(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let line = rest.find('\n').unwrap_or(rest.len());
    match rest.as_bytes()[0] {
        b'#' => line,
        b'/' if rest.starts_with("//") => line,
        quote @ (b'"' | b'/') => {
            let end = if quote == b'"' { line } else { rest.len() };
            let (mut size, bytes) = (1, rest.as_bytes());
            while size < end && bytes[size] != quote {
                size += if bytes[size] == b'\\' { 2 } else { 1 };
            }
            let size = (size + 1).min(rest.len());
            (size..=rest.len()).find(|size| rest.is_char_boundary(*size)).unwrap_or(rest.len())
        }
        b'<' => match rest[1..].find(|c: char| c == '<' || c == '>' || c.is_whitespace()) {
            Some(size) if size > 0 && rest[1 + size..].starts_with('>') => size + 2,
            _ => 1,
        },
        _ => rest.chars().next().map_or(1, char::len_utf8),
    }
}
