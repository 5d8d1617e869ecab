//! What a pattern costs to compile, counted in linear time before it is compiled.
//!
//! The derivative of a sequence has a branch for each of its parts that may stand
//! first: of `a?b?c?d` four. The branches are joined part by part, so that a run of
//! optional parts costs the square of its length, where it begins and anew behind
//! each of its parts. Such runs have a bound; all else is linear.

use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::Value;

/// Of branches that are joined for one derivative: 500 optional parts in a row.
const MAX_JOINS: u64 = 1 << 17;
/// Bytes that every match has, or as many as the pattern has: what is forced is
/// spelled out.
const MAX_LENGTH: usize = 1 << 16;

struct Cost {
    is_nullable: bool,
    /// The branches of a derivative.
    branches: u64,
    /// What is joined for it, and for the costliest one within.
    joins: u64,
    most: u64,
}

fn cost(hir: &Hir) -> Cost {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {
            Cost { is_nullable: true, branches: 0, joins: 0, most: 0 }
        }
        HirKind::Literal(_) => Cost { is_nullable: false, branches: 1, joins: 1, most: 1 },
        HirKind::Class(class) => {
            // A large class, as `\w`, is a tree of bytes.
            let ranges = match class {
                Class::Unicode(class) => class.ranges().len(),
                Class::Bytes(class) => class.ranges().len(),
            };
            let branches = 1 + ranges as u64 / 32;
            Cost { is_nullable: false, branches, joins: branches, most: branches }
        }
        HirKind::Capture(capture) => cost(&capture.sub),
        HirKind::Repetition(repetition) => {
            let sub = cost(&repetition.sub);
            Cost { is_nullable: sub.is_nullable || repetition.min == 0, ..sub }
        }
        HirKind::Alternation(all) => {
            let mut sum = Cost { is_nullable: false, branches: 0, joins: 0, most: 0 };
            for sub in all.iter().map(cost) {
                sum.is_nullable |= sub.is_nullable;
                sum.branches += sub.branches;
                sum.joins += sub.joins + sub.branches;
                sum.most = sum.most.max(sub.most);
            }
            Cost { most: sum.most.max(sum.joins), ..sum }
        }
        HirKind::Concat(all) => {
            // From the last part on: of each part what begins there.
            let mut rest = Cost { is_nullable: true, branches: 0, joins: 0, most: 0 };
            for sub in all.iter().rev().map(cost) {
                if !sub.is_nullable {
                    rest = Cost { is_nullable: false, branches: 0, joins: 0, ..rest };
                }
                rest.is_nullable &= sub.is_nullable;
                rest.branches = rest.branches.saturating_add(sub.branches);
                rest.joins = rest.joins.saturating_add(sub.joins).saturating_add(rest.branches);
                rest.most = rest.most.max(sub.most).max(rest.joins);
            }
            rest
        }
    }
}

/// A name of a client's, short enough to be told.
pub fn cut(name: &str) -> &str {
    &name[..name.char_indices().nth(64).map_or(name.len(), |(end, _)| end)]
}

/// Whether the empty text matches.
pub fn is_nullable(pattern: &str) -> bool {
    regex_syntax::parse(pattern).is_ok_and(|hir| hir.properties().minimum_len() == Some(0))
}

/// Says why a pattern would cost too much. One that does not parse costs nothing.
pub fn objection(pattern: &str) -> Option<String> {
    let hir = regex_syntax::parse(pattern).ok()?;
    let least = hir.properties().minimum_len().unwrap_or(0);
    let most = MAX_LENGTH.max(pattern.len());
    if least > most {
        return Some(format!(
            "a pattern whose every match has {least} bytes or more; the limit is {most}"
        ));
    }
    let joins = cost(&hir).most;
    (joins > MAX_JOINS).then(|| {
        format!(
            "a pattern with too many optional parts in a row: they take {joins} steps; the limit \
             is {MAX_JOINS}, 500 such parts"
        )
    })
}

/// The same for the patterns of a checked schema.
pub fn objection_to_schema(schema: &Value) -> Option<String> {
    match schema {
        Value::Array(all) => all.iter().find_map(objection_to_schema),
        Value::Object(members) => members.iter().find_map(|(key, value)| {
            match (key.as_str(), value) {
                // Values, which may look like schemas.
                ("const" | "enum" | "default" | "examples" | "x-guidance", _) => None,
                ("pattern", Value::String(pattern)) => {
                    objection(pattern).map(|why| format!("`pattern`: {why}"))
                }
                ("patternProperties", Value::Object(patterns)) => patterns
                    .keys()
                    .find_map(|pattern| objection(pattern))
                    .map(|why| format!("`patternProperties`: {why}"))
                    .or_else(|| objection_to_schema(value)),
                _ => objection_to_schema(value),
            }
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::objection;

    #[test]
    fn runs_of_optional_parts_have_a_bound() {
        for part in ["a?", "(ab)?", "a*", "(a|b|)", "[a-z]?", "a{0,9}", "(a?b?)", "((a?)b?)"] {
            assert_eq!(objection(&part.repeat(200)), None, "{part}");
            assert!(objection(&part.repeat(600)).is_some(), "{part}");
            assert!(objection(&format!("x({})y", part.repeat(600))).is_some(), "{part}");
            // What must stand between them ends a run.
            assert_eq!(objection(&format!("{part}x").repeat(2000)), None, "{part}");
        }
    }

    #[test]
    fn what_a_match_has_at_least_has_a_bound() {
        assert!(objection("((a{1000}){1000}){1000}").is_some());
        assert!(objection("a{1000000}").is_some());
        assert_eq!(objection("a{1000}b{0,1000000}"), None);
        assert_eq!(objection(&"a".repeat(200_000)), None);
        assert_eq!(objection("("), None);
    }
}
