//! What a client reads of an error in the compiler of grammars: our words, and
//! of its message only the names and places that the client wrote.

/// Parts of messages, and what they mean. The first one that fits counts.
const MEANINGS: [(&str, &str); 29] = [
    ("Pointer '", "`$ref` leads nowhere"),
    ("Anchor '", "`$ref` leads nowhere"),
    ("circular references with sibling", "`$ref` leads to itself through schemas with other \
        keywords beside it"),
    ("circular reference", "a terminal is part of itself"),
    ("min/maxProperties only", "`minProperties` and `maxProperties` are supported where all \
        `properties` are required"),
    ("disjoint", "`patternProperties` has two patterns of which one name may fit both"),
    ("lookarounds", "a regular expression has `^` or `$` within, or `\\b`"),
    ("look-around", "a regular expression has look-around"),
    ("regex parse error", "a regular expression is malformed, or has what is not supported"),
    ("invalid regex", "a regular expression is malformed, or has what is not supported"),
    ("nsatisfiable", "no value fits"),
    ("no number fits", "no number fits all that a schema asks of it"),
    ("too big", "is too large to compile"),
    ("too large", "is too large to compile"),
    ("too deeply nested", "is nested too deeply"),
    ("stack level", "has schemas within schemas that are joined too deeply"),
    ("uel", "is too complex to compile"),
    ("too complex", "is too complex to compile"),
    ("Unable to determine", "has patterns, formats and lengths of one string that are too \
        complex together"),
    ("unknown name", "has a name without a rule"),
    ("not found", "has a name without a rule"),
    ("no start rule", "has no rule `start`"),
    ("no \"start\" rule", "has no rule `start`"),
    ("duplicate", "has two rules of one name"),
    ("in terminals", "has in a terminal what stands in rules alone"),
    ("not supported", "has what is not supported"),
    ("special token", "has a special token that the model does not have"),
    ("range", "has an invalid range"),
    ("numbers that cannot be held", "joins numbers in a way that is not supported"),
];

/// The place that a message names, as "line 3, column 5".
fn place_of(message: &str) -> Option<String> {
    let rest = message.strip_prefix("at ").unwrap_or(message);
    let (line, rest) = rest.split_once('(')?;
    let (column, _) = rest.split_once(')')?;
    let (line, column): (u32, u32) = (line.parse().ok()?, column.parse().ok()?);
    Some(format!("line {line}, column {column}"))
}

/// The message without what it quotes: a client's names may spell any part.
fn without_quoted(message: &str) -> String {
    message.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
}

/// Explains a message about a `what`.
pub fn explained(what: &str, message: &str) -> String {
    let head = message.lines().next().unwrap_or("");
    let meaning_of = |text: &str| {
        MEANINGS.iter().find(|(part, _)| text.contains(part)).map(|(_, meaning)| *meaning)
    };
    // `no "start" rule` has a quoted word of the compiler's own.
    let meaning = meaning_of(&without_quoted(head))
        .or_else(|| meaning_of(head))
        .or_else(|| meaning_of(message));
    let place = place_of(head).map_or(String::new(), |place| format!(", at {place}"));
    let meaning = meaning.unwrap_or(match place.is_empty() {
        true => "has what is not supported",
        false => "is malformed",
    });
    format!("{what}: {meaning}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_ours() {
        assert_eq!(
            explained("grammar", "at 3(5): unknown name: \"x\"\n   3 | start: x\n"),
            "grammar: has a name without a rule, at line 3, column 5"
        );
        assert_eq!(explained("grammar", "7(1): lexer error\n"), "grammar: is malformed, at line 7, column 1");
        let named = "at 3(5): unknown name: \"fuel_range\"\n";
        assert_eq!(
            explained("grammar", named),
            "grammar: has a name without a rule, at line 3, column 5"
        );
        assert_eq!(
            explained("grammar", "no \"start\" rule found"),
            "grammar: has no rule `start`"
        );
        assert_eq!(explained("schema", "internal 0x7f"), "schema: has what is not supported");
    }
}
