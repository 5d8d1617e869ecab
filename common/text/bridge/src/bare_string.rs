//! A string that stands without quotes, as a terminal of a Lark grammar.

use crate::ecma_pattern;
use crate::failure::{Failure, Result};
use crate::formats;
use regex_syntax::hir::{Hir, HirKind, Look};
use serde_json::Value;

const ANYTHING: &str = "(?s:.*)";

/// What `pattern` and `format` of the schema `text` let through, joined by &;
/// empty where neither is there or holds strings.
pub fn terminal(text: &str) -> Result<String> {
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
    let terminals: Vec<String> = parts.iter().map(|part| literal(part)).collect();
    Ok(terminals.join(" & "))
}

/// The expression of whole texts that the searched `pattern` is found in.
fn whole(pattern: &str) -> Result<String> {
    let hir = regex_syntax::parse(pattern)
        .map_err(|_| Failure::invalid("schema: `pattern` is not supported"))?;
    Ok(of_branches(&hir))
}

fn of_branches(hir: &Hir) -> String {
    match hir.kind() {
        HirKind::Capture(group) => of_branches(&group.sub),
        HirKind::Alternation(branches) => {
            let all: Vec<String> = branches.iter().map(of_branches).collect();
            format!("(?:{})", all.join("|"))
        }
        HirKind::Concat(parts) => of_parts(parts),
        _ => of_parts(std::slice::from_ref(hir)),
    }
}

/// Anchors stand at the ends alone: the schema's check refuses others.
fn of_parts(parts: &[Hir]) -> String {
    let is = |part: Option<&Hir>, look: Look| {
        part.is_some_and(|part| *part.kind() == HirKind::Look(look))
    };
    let begins = is(parts.first(), Look::Start);
    let ends = is(parts.last(), Look::End);
    let inner: String = parts
        .iter()
        .filter(|part| !matches!(part.kind(), HirKind::Look(_)))
        .map(|part| format!("(?:{part})"))
        .collect();
    let before = if begins { "" } else { ANYTHING };
    let behind = if ends { "" } else { ANYTHING };
    format!("{before}{inner}{behind}")
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
        let terminal = terminal(schema).unwrap();
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
    }

    #[test]
    fn formats_hold_and_annotations_do_not() {
        let date = r#"{"format": "date", "pattern": "^2"}"#;
        assert!(fits(date, "2024-02-29") && !fits(date, "2023-02-29"));
        assert!(!fits(date, "1999-01-01"));
        assert_eq!(terminal(r#"{"format": "int32"}"#).unwrap(), "");
        assert_eq!(terminal("{}").unwrap(), "");
    }
}
