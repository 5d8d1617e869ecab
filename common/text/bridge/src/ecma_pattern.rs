//! A pattern of JSON Schema, an expression of ECMA-262, as one of Rust's with
//! the same meaning. Characters are code points, as with the flag u; what is an
//! error with that flag and clear without it has its meaning without it.

use std::fmt::Write;

/// Groups within groups.
const MAX_LEVELS: usize = 100;
const MAX_REPEATS: u32 = 1_000_000;

type Result<T> = std::result::Result<T, String>;

/// The same expression for Rust's parser; it escapes all but letters and digits,
/// and needs neither flags nor names.
pub fn translated(pattern: &str) -> Result<String> {
    let mut parser = Parser { text: pattern.chars().collect(), at: 0, out: String::new() };
    parser.alternatives(0)?;
    match parser.peek() {
        None => Ok(parser.out),
        Some(_) => Err("has a `)` without its `(`".to_string()),
    }
}

const SPACE: &str = "\\x{9}-\\x{D}\\x{20}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\
    \\x{202F}\\x{205F}\\x{3000}\\x{FEFF}";
const WORD: &str = "0-9A-Z_a-z";
const DIGIT: &str = "0-9";
const NO_LINE_END: &str = "[^\\x{A}\\x{D}\\x{2028}\\x{2029}]";
const ANY: &str = "[\\x{0}-\\x{10FFFF}]";
const NONE: &str = "[^\\x{0}-\\x{10FFFF}]";

/// What an escape stands for.
enum Meaning {
    Char(char),
    Class(String), // a class of Rust
}

struct Parser {
    text: Vec<char>,
    at: usize,
    out: String,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn takes(&mut self, text: &str) -> bool {
        let fits = text.chars().enumerate().all(|(i, c)| self.text.get(self.at + i) == Some(&c));
        if fits {
            self.at += text.chars().count();
        }
        fits
    }

    fn alternatives(&mut self, level: usize) -> Result<()> {
        if level > MAX_LEVELS {
            return Err(format!("has groups within more than {MAX_LEVELS} groups"));
        }
        loop {
            while let Some(next) = self.peek() {
                if matches!(next, '|' | ')') {
                    break;
                }
                self.term(level)?;
            }
            if !self.takes("|") {
                return Ok(());
            }
            self.out.push('|');
        }
    }

    fn term(&mut self, level: usize) -> Result<()> {
        let begin = self.out.len();
        let Some(next) = self.peek() else { return Ok(()) };
        self.at += 1;
        match next {
            '^' | '$' => {
                self.out.push(next);
                return match self.quantifier()? {
                    None => Ok(()),
                    Some(_) => Err(format!("repeats `{next}`")),
                };
            }
            '(' => self.group(level)?,
            '[' => self.class()?,
            '.' => self.out.push_str(NO_LINE_END),
            '\\' => match self.escape(false)? {
                Meaning::Char(c) => push_char(c, &mut self.out),
                Meaning::Class(class) => self.out.push_str(&class),
            },
            '*' | '+' | '?' => return Err(format!("has a `{next}` behind nothing")),
            '{' => {
                self.at -= 1;
                if self.quantifier()?.is_some() {
                    return Err("has a `{` behind nothing".to_string());
                }
                self.at += 1;
                push_char('{', &mut self.out);
            }
            other => push_char(other, &mut self.out),
        }
        if let Some(quantifier) = self.quantifier()? {
            let atom = self.out.split_off(begin);
            let _ = write!(self.out, "(?:{atom}){quantifier}");
        }
        Ok(())
    }

    fn group(&mut self, level: usize) -> Result<()> {
        if self.takes("?") {
            if self.takes("<") && !matches!(self.peek(), Some('=' | '!')) {
                self.name()?;
            } else if !self.takes(":") {
                return Err("has look-around or flags, which a grammar cannot hold".to_string());
            }
        }
        self.out.push_str("(?:");
        self.alternatives(level + 1)?;
        if !self.takes(")") {
            return Err("has a `(` without its `)`".to_string());
        }
        self.out.push(')');
        Ok(())
    }

    fn name(&mut self) -> Result<()> {
        let begin = self.at;
        while self.peek().is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '$')) {
            self.at += 1;
        }
        let starts = self.text.get(begin).is_some_and(|c| !c.is_numeric());
        if self.at > begin && starts && self.takes(">") {
            return Ok(());
        }
        Err("has a group whose name is none".to_string())
    }

    /// A quantifier here as Rust writes it; None where there is none, also where
    /// a brace stands for itself.
    fn quantifier(&mut self) -> Result<Option<String>> {
        let found = match self.peek() {
            Some(sign @ ('*' | '+' | '?')) => {
                self.at += 1;
                sign.to_string()
            }
            Some('{') => match self.braces()? {
                Some(found) => found,
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        self.takes("?");
        let at = self.at;
        if matches!(self.peek(), Some('*' | '+' | '?')) || self.braces()?.is_some() {
            return Err("repeats a repetition without a group".to_string());
        }
        self.at = at;
        Ok(Some(found))
    }

    fn braces(&mut self) -> Result<Option<String>> {
        let begin = self.at;
        let found = self.bounds()?;
        if found.is_none() {
            self.at = begin;
        }
        Ok(found)
    }

    fn bounds(&mut self) -> Result<Option<String>> {
        if !self.takes("{") {
            return Ok(None);
        }
        let Some(least) = self.count() else { return Ok(None) };
        let most = if self.takes(",") { self.count() } else { Some(least) };
        if !self.takes("}") {
            return Ok(None);
        }
        if least.max(most.unwrap_or(0)) > MAX_REPEATS {
            return Err(format!("repeats more than {MAX_REPEATS} times"));
        }
        match most {
            Some(most) if most < least => Err(format!("repeats {least} to {most} times")),
            Some(most) => Ok(Some(format!("{{{least},{most}}}"))),
            None => Ok(Some(format!("{{{least},}}"))),
        }
    }

    fn count(&mut self) -> Option<u32> {
        let begin = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
        let digits: String = self.text[begin..self.at].iter().collect();
        if digits.is_empty() {
            return None;
        }
        Some(digits.parse().unwrap_or(u32::MAX))
    }

    /// Behind the backslash.
    fn escape(&mut self, is_in_class: bool) -> Result<Meaning> {
        let Some(next) = self.peek() else {
            return Err("ends with a backslash".to_string());
        };
        self.at += 1;
        let class = |text: String| Ok(Meaning::Class(text));
        let one = |c: char| Ok(Meaning::Char(c));
        match next {
            'd' => class(format!("[{DIGIT}]")),
            'D' => class(format!("[^{DIGIT}]")),
            'w' => class(format!("[{WORD}]")),
            'W' => class(format!("[^{WORD}]")),
            's' => class(format!("[{SPACE}]")),
            'S' => class(format!("[^{SPACE}]")),
            'p' | 'P' => self.property(next),
            't' => one('\t'),
            'n' => one('\n'),
            'v' => one('\u{B}'),
            'f' => one('\u{C}'),
            'r' => one('\r'),
            'b' if is_in_class => one('\u{8}'),
            '0' if !self.peek().is_some_and(|c| c.is_ascii_digit()) => one('\0'),
            'c' => match self.peek().filter(char::is_ascii_alphabetic) {
                Some(letter) => {
                    self.at += 1;
                    one((letter as u8 % 32) as char)
                }
                None => Err("has a `\\c` without a letter".to_string()),
            },
            'x' => match self.hex(2) {
                Some(code) => self.code_point(code),
                None => Err("has a `\\x` without two hexadecimal digits".to_string()),
            },
            'u' => self.unicode(),
            'b' | 'B' => Err(format!("has `\\{next}`, which a grammar cannot hold")),
            '1'..='9' => Err(format!("has the back reference `\\{next}`")),
            'k' => Err("has the back reference `\\k`".to_string()),
            other if other.is_alphanumeric() => {
                Err(format!("has the escape `\\{other}`, which ECMA-262 does not know"))
            }
            other => one(other),
        }
    }

    fn hex(&mut self, size: usize) -> Option<u32> {
        let digits: String = self.text.get(self.at..self.at + size)?.iter().collect();
        if !digits.chars().all(|c| c.is_ascii_hexdigit()) {
            return None;
        }
        self.at += size;
        u32::from_str_radix(&digits, 16).ok()
    }

    fn unicode(&mut self) -> Result<Meaning> {
        const WRONG: &str = "has a `\\u` without a code point";
        if self.takes("{") {
            let begin = self.at;
            while self.peek().is_some_and(|c| c.is_ascii_hexdigit()) {
                self.at += 1;
            }
            let digits: String = self.text[begin..self.at].iter().collect();
            let code = u32::from_str_radix(&digits, 16).map_err(|_| WRONG.to_string())?;
            if !self.takes("}") {
                return Err(WRONG.to_string());
            }
            return self.code_point(code);
        }
        let first = self.hex(4).ok_or_else(|| WRONG.to_string())?;
        if !(0xD800..0xDC00).contains(&first) || !self.takes("\\u") {
            return self.code_point(first);
        }
        match self.hex(4) {
            Some(second) if (0xDC00..0xE000).contains(&second) => {
                self.code_point(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
            }
            _ => self.code_point(first),
        }
    }

    fn code_point(&self, code: u32) -> Result<Meaning> {
        match char::from_u32(code) {
            Some(c) => Ok(Meaning::Char(c)),
            None => Err(format!("has U+{code:04X}, which is no character")),
        }
    }

    fn property(&mut self, kind: char) -> Result<Meaning> {
        let begin = self.at;
        if self.takes("{") {
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '=');
            while self.peek().is_some_and(is_name) {
                self.at += 1;
            }
            if self.at > begin + 1 && self.takes("}") {
                let name: String = self.text[begin + 1..self.at - 1].iter().collect();
                let class = format!("\\{kind}{{{name}}}");
                if regex_syntax::parse(&class).is_ok() {
                    return Ok(Meaning::Class(class));
                }
                return Err(format!("has the unknown property `{name}`"));
            }
        }
        Err(format!("has a `\\{kind}` without a property in braces"))
    }

    /// Behind the opening bracket.
    fn class(&mut self) -> Result<()> {
        let is_negated = self.takes("^");
        let mut parts = String::new();
        loop {
            match self.peek() {
                None => return Err("has a `[` without its `]`".to_string()),
                Some(']') => {
                    self.at += 1;
                    break;
                }
                Some(_) => self.class_part(&mut parts)?,
            }
        }
        match (parts.is_empty(), is_negated) {
            (true, true) => self.out.push_str(ANY),
            (true, false) => self.out.push_str(NONE),
            (false, true) => self.out.push_str(&format!("[^{parts}]")),
            (false, false) => self.out.push_str(&format!("[{parts}]")),
        }
        Ok(())
    }

    fn class_part(&mut self, parts: &mut String) -> Result<()> {
        let first = self.class_atom()?;
        let is_range = self.peek() == Some('-')
            && self.text.get(self.at + 1).is_some_and(|next| *next != ']');
        if !is_range {
            push_atom(&first, parts);
            return Ok(());
        }
        self.at += 1;
        let last = self.class_atom()?;
        match (&first, &last) {
            (Meaning::Char(from), Meaning::Char(to)) if from <= to => {
                let _ = write!(parts, "\\x{{{:X}}}-\\x{{{:X}}}", *from as u32, *to as u32);
                Ok(())
            }
            (Meaning::Char(from), Meaning::Char(to)) => {
                Err(format!("has a range from `{from}` down to `{to}`"))
            }
            _ => {
                push_atom(&first, parts);
                push_atom(&Meaning::Char('-'), parts);
                push_atom(&last, parts);
                Ok(())
            }
        }
    }

    fn class_atom(&mut self) -> Result<Meaning> {
        let Some(next) = self.peek() else {
            return Err("has a `[` without its `]`".to_string());
        };
        self.at += 1;
        if next == '\\' {
            return self.escape(true);
        }
        Ok(Meaning::Char(next))
    }
}

fn push_atom(meaning: &Meaning, parts: &mut String) {
    match meaning {
        Meaning::Char(c) => {
            let _ = write!(parts, "\\x{{{:X}}}", *c as u32);
        }
        Meaning::Class(class) => parts.push_str(class),
    }
}

fn push_char(c: char, out: &mut String) {
    if c.is_ascii_alphanumeric() {
        out.push(c);
    } else {
        let _ = write!(out, "\\x{{{:X}}}", c as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llguidance::derivre::RegexBuilder;
    use serde_json::Value;

    /// Written by tests/text/ecma_pattern_cases.js: texts, then a pattern in each
    /// line with what node finds in them ("?": two answers by the flag u), null
    /// where it refuses the pattern.
    const CASES: &str = include_str!("ecma_pattern_cases.json");

    #[test]
    fn patterns_mean_what_node_says() {
        let mut lines = CASES.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let texts = lines.next().unwrap();
        let texts: Vec<&str> = texts.as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let mut num_drawn = 0;
        for line in lines {
            let (kind, pattern) = (line[0].as_str().unwrap(), line[1].as_str().unwrap());
            let made = translated(pattern);
            let Some(want) = line[2].as_str() else {
                assert!(made.is_err(), "node refuses {pattern:?}: {made:?}");
                continue;
            };
            let Ok(made) = made else {
                assert_eq!(kind, "drawn", "{pattern:?} is refused: {made:?}");
                continue;
            };
            let mut builder = RegexBuilder::new();
            let Ok(root) = builder.mk_regex_for_serach(&made) else {
                assert_eq!(kind, "drawn", "{pattern:?} as {made:?}");
                continue;
            };
            num_drawn += 1;
            let mut compiled = builder.into_regex(root);
            for (text, want) in texts.iter().zip(want.chars()) {
                if want == '?' {
                    continue;
                }
                let fits = compiled.is_match(text);
                assert_eq!(fits, want == '1', "{pattern:?} as {made:?} in {text:?}");
            }
        }
        assert!(num_drawn > 900, "{num_drawn}");
    }

    #[test]
    fn what_no_grammar_holds_is_refused() {
        for pattern in [
            "\\bab", "a\\B", "(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", "(a)\\1", "(?<n>a)\\k<n>",
            "\\a", "\\z", "\\A", "\\ud83d", "[\\ud800-\\udfff]", "\\pL", "\\p{Nonsense}", "\\c1",
            "\\x4", "\\u12", "a{1000001}", "\\u{}", "\\01",
        ] {
            assert!(translated(pattern).is_err(), "{pattern}");
        }
        assert!(translated(&"(".repeat(5_000)).is_err());
    }
}
