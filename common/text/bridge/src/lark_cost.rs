//! What a Lark grammar costs to compile, counted before it is compiled: the costs
//! of its patterns (pattern_cost.rs), the optional parts of its definitions, and
//! how long its terminals are once they are written out within each other.

use crate::pattern_cost;
use serde_json::Value;
use std::collections::HashMap;

/// In one rule, or in a terminal with those that it names.
const MAX_OPTIONAL: u64 = 500;
/// In the whole grammar.
const MAX_ALL_OPTIONAL: u64 = 3_000;
/// Parts of a terminal, or as many as the grammar has bytes.
const MAX_PARTS: u64 = 4_096;

#[derive(Default)]
struct Definition<'a> {
    optional: u64,
    parts: u64,
    terminals: Vec<&'a str>,
    rules: Vec<&'a str>,
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    definitions: HashMap<&'a str, Definition<'a>>,
    current: &'a str,
    last: u8, // of the token before
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn is_terminal(name: &str) -> bool {
    name.trim_start_matches('_').starts_with(|letter: char| letter.is_ascii_uppercase())
}

impl<'a> Scan<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip_while(&mut self, goes_on: impl Fn(u8) -> bool) {
        while self.at < self.text.len() && goes_on(self.peek(0)) {
            self.at += 1;
        }
    }

    fn definition(&mut self) -> &mut Definition<'a> {
        self.definitions.entry(self.current).or_default()
    }

    /// Whether a definition begins behind a name: at `:`, maybe behind parameters,
    /// a priority or attributes, and within its line.
    fn is_defined(&self) -> bool {
        let rest = self.text[self.at..].trim_start_matches([' ', '\t']);
        match rest.as_bytes().first() {
            Some(b':') => true,
            Some(b'.' | b'[' | b'{') => {
                let line = rest.split('\n').next().unwrap_or("");
                line.contains(':') && !rest.starts_with("..")
            }
            _ => false,
        }
    }

    /// Behind the end of a text or of a pattern between `mark`s.
    fn skip_quoted(&mut self, mark: u8) {
        self.at += 1;
        while self.at < self.text.len() && self.peek(0) != mark {
            if mark == b'"' && self.peek(0) == b'\n' {
                return; // the compiler says what is wrong
            }
            self.at += if self.peek(0) == b'\\' { 2 } else { 1 };
        }
        self.at += 1;
    }

    fn name(&mut self, begins_line: bool) {
        let begin = self.at;
        self.skip_while(is_name);
        let name = &self.text[begin..self.at];
        if begins_line && self.is_defined() {
            self.current = name;
            self.last = b':';
        } else if is_terminal(name) {
            self.definition().terminals.push(name);
        } else {
            let definition = self.definition();
            definition.parts += 1;
            definition.rules.push(name);
        }
    }

    /// A pattern: what its cost is objected to.
    fn pattern(&mut self) -> Option<String> {
        let begin = self.at + 1;
        self.skip_quoted(b'/');
        let end = self.at.saturating_sub(1).min(self.text.len());
        let pattern = self.text.get(begin..end).unwrap_or("").replace("\\/", "/");
        let definition = self.definition();
        definition.parts += 1;
        definition.optional += u64::from(pattern_cost::is_nullable(&pattern));
        pattern_cost::objection(&pattern)
    }

    /// `%json {..}` and its like. A grammar within the grammar is read as if it were
    /// part of it.
    fn directive(&mut self) -> Option<String> {
        self.at += 1;
        let begin = self.at;
        self.skip_while(is_name);
        let is_json = matches!(&self.text[begin..self.at], "json" | "regex" | "llguidance");
        self.skip_while(|byte| byte == b' ' || byte == b'\t');
        if !is_json || self.peek(0) != b'{' {
            return None;
        }
        let mut values = serde_json::Deserializer::from_str(&self.text[self.at..]).into_iter();
        let value: Value = values.next()?.ok()?;
        self.at += values.byte_offset();
        pattern_cost::objection_to_schema(&value)
    }

    fn run(&mut self) -> Option<String> {
        let mut begins_line = true;
        while self.at < self.text.len() {
            let byte = self.peek(0);
            let was_at_start = std::mem::replace(&mut begins_line, byte == b'\n');
            match byte {
                b'\n' => self.at += 1,
                b' ' | b'\t' | b'\r' | b'!' | b'_' if was_at_start && byte != b'_' => {
                    self.at += 1;
                    begins_line = true;
                    continue;
                }
                b' ' | b'\t' | b'\r' => {
                    self.at += 1;
                    continue;
                }
                b'#' => self.skip_while(|byte| byte != b'\n'),
                b'/' if self.peek(1) == b'/' => self.skip_while(|byte| byte != b'\n'),
                b'/' => {
                    if let Some(why) = self.pattern() {
                        return Some(why);
                    }
                }
                b'"' => {
                    self.skip_quoted(b'"');
                    self.definition().parts += 1;
                }
                b'%' => {
                    if let Some(why) = self.directive() {
                        return Some(why);
                    }
                }
                byte if byte.is_ascii_alphabetic() || byte == b'_' => self.name(was_at_start),
                _ => self.operator(byte, was_at_start),
            }
            self.last = byte;
        }
        None
    }

    fn operator(&mut self, byte: u8, begins_line: bool) {
        self.at += 1;
        if begins_line && byte == b'?' {
            return; // of a rule's name
        }
        let makes_optional = match byte {
            b'?' | b'*' => true,
            b'{' | b'~' => self.text[self.at..].trim_start().starts_with(['0', ',']),
            b')' => self.last == b'|',
            b'|' => self.last == b'(' || self.last == b'|',
            _ => false,
        };
        self.definition().optional += u64::from(makes_optional);
        // Another byte of a character is no boundary of the text.
        while !self.text.is_char_boundary(self.at.min(self.text.len())) {
            self.at += 1;
        }
    }
}

/// The parts and the optional parts of a terminal that is written out.
fn written_out<'a>(
    name: &'a str,
    definitions: &HashMap<&'a str, Definition<'a>>,
    known: &mut HashMap<&'a str, (u64, u64)>,
) -> (u64, u64) {
    if let Some(sizes) = known.get(name) {
        return *sizes;
    }
    known.insert(name, (0, 0)); // of a terminal that names itself
    let Some(definition) = definitions.get(name) else { return (1, 0) };
    let mut sizes = (definition.parts, definition.optional);
    for inner in &definition.terminals {
        let (parts, optional) = written_out(inner, definitions, known);
        sizes = (sizes.0.saturating_add(parts), sizes.1.saturating_add(optional));
    }
    known.insert(name, sizes);
    sizes
}

/// Says why a grammar would cost too much.
pub fn objection(text: &str) -> Option<String> {
    let mut scan = Scan { text, at: 0, definitions: HashMap::new(), current: "", last: b'\n' };
    if let Some(why) = scan.run() {
        return Some(why);
    }
    let most_parts = MAX_PARTS.max(text.len() as u64);
    let mut known = HashMap::new();
    let mut all = 0;
    for (name, definition) in &scan.definitions {
        let is_optional = |name: &&&str| {
            let rule = scan.definitions.get(**name);
            rule.is_some_and(|rule| rule.optional > 0 && rule.optional >= rule.parts)
        };
        let mut optional = definition.optional;
        optional += definition.rules.iter().filter(is_optional).count() as u64;
        all += optional;
        if is_terminal(name) {
            let sizes = written_out(name, &scan.definitions, &mut known);
            optional = sizes.1;
            if sizes.0 > most_parts {
                return Some(format!(
                    "terminal {} has {} parts, written out; the limit is {most_parts}",
                    pattern_cost::cut(name),
                    sizes.0
                ));
            }
        }
        if optional > MAX_OPTIONAL {
            return Some(format!(
                "`{}` has {optional} optional parts; the limit is {MAX_OPTIONAL}",
                pattern_cost::cut(name)
            ));
        }
    }
    (all > MAX_ALL_OPTIONAL)
        .then(|| format!("a grammar of {all} optional parts; the limit is {MAX_ALL_OPTIONAL}"))
}

#[cfg(test)]
mod tests {
    use super::objection;

    #[test]
    fn counts_what_is_optional() {
        let many = "\"a\"? ".repeat(501);
        for text in [
            format!("start: {many}"),
            format!("start: T\nT: {many}"),
            format!("start: T\nT: {}", "/a?/ ".repeat(501)),
            format!("start: T\nT: {}", "(\"a\" | ) ".repeat(501)),
            format!("start: T\nT: {}", "\"a\"{0,3} ".repeat(501)),
            format!("start: T\nT: {}\nA: \"a\"?", "A ".repeat(501)),
            format!("start: /{}/", "a?".repeat(600)),
            format!("start: {}\nx: \"a\"?", "x ".repeat(501)),
            format!("start: \"x\"\n!x.2: {many}"),
        ] {
            assert!(objection(&text).is_some(), "{}", &text[..40]);
        }
    }

    #[test]
    fn counts_no_texts_and_comments() {
        for text in [
            format!("start: \"{}\"", "a?".repeat(1000)),
            format!("start: \"a\" // {}", "a? ".repeat(1000)),
            format!("start: \"a\" # {}", "a? ".repeat(1000)),
            format!("start: %json {{\"const\": \"{}\"}}", "a? ".repeat(1000)),
            format!("start: \"\\\"{}\"", "a?".repeat(1000)),
            "start: T\nT: U\nU: T".to_string(),
            "start: \"ä\" é ü?".to_string(),
            "start: \"a".to_string(),
            "start: /a".to_string(),
            "start: /a\\".to_string(),
        ] {
            assert_eq!(objection(&text), None);
        }
    }

    #[test]
    fn terminals_do_not_double_for_ever() {
        let mut text = "start: T0\n".to_string();
        for i in 0..64 {
            text += &format!("T{i}: T{} T{}\n", i + 1, i + 1);
        }
        assert!(objection(&(text + "T64: \"a\"")).unwrap().contains("written out"));
    }
}
