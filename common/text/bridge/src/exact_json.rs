//! JSON whose numbers keep their digits.

use crate::decimal::Decimal;
use crate::failure::{Failure, Result};
use serde::de::IgnoredAny;
use serde_json::Value;

/// A value in which each number is the place of its text in `numbers`: a parser
/// of numbers would round them.
pub struct ExactJson {
    pub value: Value,
    pub numbers: Vec<String>,
}

impl ExactJson {
    /// Parses `text`, which `what` names in a message.
    pub fn parse(text: &str, what: &str) -> Result<Self> {
        let malformed = |e: serde_json::Error| {
            let (line, column) = (e.line(), e.column());
            Failure::invalid(format!("{what} is not JSON: line {line}, column {column}"))
        };
        serde_json::from_str::<IgnoredAny>(text).map_err(malformed)?;
        let (replaced, numbers) = without_numbers(text);
        let value = serde_json::from_str(&replaced).map_err(malformed)?;
        Ok(Self { value, numbers })
    }

    /// The compact text of `value`, with its numbers.
    pub fn text(&self) -> String {
        let mut out = String::new();
        write(&self.value, &self.numbers, &mut out);
        out
    }
}

/// The text of a number, None of another value.
pub fn number_text<'a>(value: &Value, numbers: &'a [String]) -> Option<&'a str> {
    let at = usize::try_from(value.as_u64()?).ok()?;
    numbers.get(at).map(String::as_str)
}

pub fn decimal(value: &Value, numbers: &[String]) -> Option<std::result::Result<Decimal, String>> {
    number_text(value, numbers).map(Decimal::parse)
}

fn without_numbers(text: &str) -> (String, Vec<String>) {
    let (mut out, mut numbers) = (String::with_capacity(text.len()), Vec::new());
    let (mut kept, mut at) = (0, 0);
    let bytes = text.as_bytes();
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = behind_string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                let size = bytes[at..].iter().take_while(|byte| is_part(byte)).count();
                out.push_str(&text[kept..at]);
                out.push_str(&numbers.len().to_string());
                numbers.push(text[at..at + size].to_string());
                at += size;
                kept = at;
            }
            _ => at += 1,
        }
    }
    out.push_str(&text[kept..]);
    (out, numbers)
}

/// The place behind the string that begins at `at`.
fn behind_string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn write(value: &Value, numbers: &[String], out: &mut String) {
    match value {
        Value::Number(_) => out.push_str(number_text(value, numbers).unwrap_or("0")),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write(item, numbers, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (at, (name, item)) in members.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                out.push_str(&Value::String(name.clone()).to_string());
                out.push(':');
                write(item, numbers, out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits() {
        let text = r#"{"a":[-9223372036854775809,1e400,0.10,"1\"2",-0],"3":{"b":true}}"#;
        assert_eq!(ExactJson::parse(text, "it").unwrap().text(), text);
        for text in ["01", "1.", "-", "[1 2]", "\"", "1true", "{\"a\":+1}"] {
            assert!(ExactJson::parse(text, "it").is_err(), "{text}");
        }
    }
}
