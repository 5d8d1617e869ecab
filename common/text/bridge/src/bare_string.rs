//! A string that stands without quotes, as a terminal of a Lark grammar.

use crate::ecma_pattern;
use crate::failure::{Failure, Result};
use crate::formats;
use regex_syntax::hir::{Hir, HirKind, Look};
use serde_json::Value;

const ANYTHING: &str = "(?s:.*)";

/// What `pattern` and `format` of the schema `text` let through, joined by &;
/// empty where neither is there or holds strings. At most `max_bytes`.
pub fn terminal(text: &str, max_bytes: usize) -> Result<String> {
    let schema: Value = serde_json::from_str(text)
        .map_err(|e| Failure::invalid(format!("the schema is not JSON: {e}")))?;
    let mut parts = Vec::new();
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        let why = |why: String| Failure::invalid(format!("schema: `pattern` {why}"));
        parts.push(whole(&ecma_pattern::translated(pattern).map_err(why)?)?);
    }
    if let Some(format) = schema.get("format").and_then(Value::as_str).and_then(formats::format) {
        parts.push(whole(&format.pattern)?);
        if let Some(most) = format.max_length {
            parts.push(format!("(?s:.){{0,{most}}}"));
        }
    }
    if parts.iter().map(String::len).sum::<usize>() > max_bytes {
        return Err(Failure::invalid("schema: `pattern` is too large, written out"));
    }
    let terminals: Vec<String> = parts.iter().map(|part| literal(part)).collect();
    Ok(terminals.join(" & "))
}

/// The expression of whole texts that the searched `pattern` is found in.
fn whole(pattern: &str) -> Result<String> {
    let hir = regex_syntax::parse(pattern)
        .map_err(|_| Failure::invalid("schema: `pattern` is not supported"))?;
    let text = opened(&hir, true, true);
    // An empty expression would be the begin of a comment.
    Ok(if text.is_empty() { "(?:)".to_string() } else { text })
}

/// `hir`, with anything before and behind it where no anchor of its own ends it.
fn opened(hir: &Hir, before: bool, behind: bool) -> String {
    match hir.kind() {
        HirKind::Capture(group) => opened(&group.sub, before, behind),
        HirKind::Alternation(branches) => {
            let all: Vec<String> =
                branches.iter().map(|one| opened(one, before, behind)).collect();
            format!("(?:{})", all.join("|"))
        }
        HirKind::Concat(parts) => of_parts(parts, before, behind),
        HirKind::Look(_) => of_parts(std::slice::from_ref(hir), before, behind),
        _ => format!("{}(?:{hir}){}", anything(before), anything(behind)),
    }
}

fn anything(is_open: bool) -> &'static str {
    if is_open {
        ANYTHING
    } else {
        ""
    }
}

/// Anchors stand at the ends alone: the schema's check refuses others.
fn of_parts(parts: &[Hir], before: bool, behind: bool) -> String {
    let is = |part: &Hir, look: Look| *part.kind() == HirKind::Look(look);
    let first = parts.iter().take_while(|part| is(part, Look::Start)).count();
    let ends = parts[first..].iter().rev().take_while(|part| is(part, Look::End)).count();
    let (before, behind) = (before && first == 0, behind && ends == 0);
    match &parts[first..parts.len() - ends] {
        [] => format!("{}{}", anything(before), anything(behind)),
        [one] => opened(one, before, behind),
        [one, inner @ .., other] => {
            let inner: String = inner.iter().map(|part| format!("(?:{part})")).collect();
            format!("{}{inner}{}", opened(one, before, false), opened(other, false, behind))
        }
    }
}

/// `expression` between slashes.
fn literal(expression: &str) -> String {
    let mut out = String::from("/");
    for c in expression.chars() {
        match c {
            '/' => out.push_str("\\x2f"),
            c if c.is_control() => out.push_str(&format!("\\x{{{:x}}}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('/');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(schema: &str, text: &str) -> bool {
        let terminal = terminal(schema, 1 << 18).unwrap();
        terminal.split(" & ").all(|part| {
            let expression = &part[1..part.len() - 1];
            regex::Regex::new(&format!("^(?:{expression})$")).unwrap().is_match(text)
        })
    }

    #[test]
    fn a_pattern_is_searched_for() {
        let schema = r#"{"pattern": "b+/"}"#;
        assert!(fits(schema, "abb/c") && fits(schema, "b/") && !fits(schema, "bb"));
        assert!(fits(schema, "\nb/\n"));
    }

    #[test]
    fn anchors_hold_the_ends_of_each_branch() {
        let schema = r#"{"pattern": "^a|b$|^c$"}"#;
        for (text, holds) in
            [("ax", true), ("xa", false), ("xb", true), ("bx", false), ("c", true), ("cc", false)]
        {
            assert_eq!(fits(schema, text), holds, "{text}");
        }
        for (pattern, text, holds) in [
            ("^a$|^b$", "a", true),
            ("^a$|^b$", "ab", false),
            ("^[0-9]{5}$|^[0-9]{5}-[0-9]{4}$", "12345-6789", true),
            ("^[0-9]{5}$|^[0-9]{5}-[0-9]{4}$", "12345-", false),
            ("^$", "", true),
            ("^$", "x", false),
            ("^$|^x", "xy", true),
            ("^$|^x", "y", false),
            ("^(a$|b)", "bc", true),
            ("^(a$|b)", "ac", false),
        ] {
            let schema = format!("{{\"pattern\": \"{pattern}\"}}");
            assert_eq!(fits(&schema, text), holds, "{pattern} {text}");
        }
    }

    #[test]
    fn formats_hold_and_annotations_do_not() {
        let date = r#"{"format": "date", "pattern": "^2"}"#;
        assert!(fits(date, "2024-02-29") && !fits(date, "2023-02-29"));
        assert!(!fits(date, "1999-01-01"));
        assert_eq!(terminal(r#"{"format": "int32"}"#, 1 << 18).unwrap(), "");
        assert_eq!(terminal("{}", 1 << 18).unwrap(), "");
    }
}
