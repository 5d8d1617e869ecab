//! Reads llama.cpp's GBNF.

use crate::failure::{Failure, Result};
use crate::gbnf_lark;
use std::collections::HashMap;
use std::fmt::Write;

/// Nested parentheses, and repetitions that are counted out.
const MAX_LEVELS: usize = 64;
const MAX_REPEAT: u32 = 10_000;

pub enum Node {
    Text(String),
    Class(String),
    Rule(usize),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Repeat(Box<Node>, u32, Option<u32>),
}

#[derive(Default)]
pub struct Grammar {
    names: HashMap<String, usize>,
    pub spelled: Vec<String>,
    pub rules: Vec<Option<Node>>,
}

impl Grammar {
    fn index(&mut self, name: &str) -> usize {
        if let Some(&index) = self.names.get(name) {
            return index;
        }
        self.names.insert(name.to_string(), self.rules.len());
        self.spelled.push(name.to_string());
        self.rules.push(None);
        self.rules.len() - 1
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    level: usize,
    grammar: Grammar,
}

pub fn to_lark(text: &str) -> Result<String> {
    let mut reader = Reader { text, at: 0, level: 0, grammar: Grammar::default() };
    reader.rules()?;
    let grammar = reader.grammar;
    for (rule, name) in grammar.rules.iter().zip(&grammar.spelled) {
        if rule.is_none() {
            return Err(Failure::invalid(format!("GBNF: rule {name} is not defined")));
        }
    }
    let Some(&root) = grammar.names.get("root") else {
        return Err(Failure::invalid("GBNF: there is no rule root"));
    };
    Ok(gbnf_lark::written(&grammar, root))
}

impl Reader<'_> {
    fn fail<T>(&self, what: &str) -> Result<T> {
        let line = self.text[..self.at].matches('\n').count() + 1;
        Err(Failure::invalid(format!("GBNF, line {line}: {what}")))
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn eat(&mut self, what: &str) -> bool {
        let found = self.text[self.at..].starts_with(what);
        if found {
            self.at += what.len();
        }
        found
    }

    /// Skips spaces and comments, and line ends if `lines`.
    fn skip(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => {}
                '\n' | '\r' if lines => {}
                '#' => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.next();
                    }
                    continue;
                }
                _ => return,
            }
            self.next();
        }
    }

    fn name(&mut self) -> Option<String> {
        let begin = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            self.next();
        }
        (self.at > begin).then(|| self.text[begin..self.at].to_string())
    }

    fn rules(&mut self) -> Result<()> {
        self.skip(true);
        while self.peek().is_some() {
            let Some(name) = self.name() else { return self.fail("no rule's name") };
            self.skip(false);
            if !self.eat("::=") {
                return self.fail("no ::= behind a rule's name");
            }
            self.skip(true);
            let body = self.choice(false)?;
            let index = self.grammar.index(&name);
            if self.grammar.rules[index].replace(body).is_some() {
                return self.fail(&format!("rule {name} is defined twice"));
            }
            self.skip(true);
        }
        Ok(())
    }

    fn choice(&mut self, nested: bool) -> Result<Node> {
        self.level += 1;
        if self.level > MAX_LEVELS {
            return self.fail(&format!("more than {MAX_LEVELS} levels of parentheses"));
        }
        let mut all = vec![self.sequence(nested)?];
        loop {
            // A choice goes on in the next line if that begins with a bar.
            let before = self.at;
            self.skip(true);
            if !self.eat("|") {
                if !nested {
                    self.at = before;
                }
                break;
            }
            self.skip(true);
            all.push(self.sequence(nested)?);
        }
        self.level -= 1;
        Ok(if all.len() == 1 { all.remove(0) } else { Node::Choice(all) })
    }

    fn sequence(&mut self, nested: bool) -> Result<Node> {
        let mut all = Vec::new();
        loop {
            self.skip(nested);
            let item = match self.peek() {
                Some('"') => Node::Text(self.literal()?),
                Some('[') => self.class()?,
                Some('.') => {
                    self.next();
                    Node::Class("(?s:.)".to_string())
                }
                Some('(') => {
                    self.next();
                    let inner = self.choice(true)?;
                    if !self.eat(")") {
                        return self.fail("a parenthesis is not closed");
                    }
                    inner
                }
                Some(c) if c.is_ascii_alphanumeric() || c == '_' => {
                    let name = self.name().unwrap_or_default();
                    Node::Rule(self.grammar.index(&name))
                }
                Some('<') | Some('!') => return self.fail("tokens by name are not supported"),
                _ => break,
            };
            all.push(self.repeated(item)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Node::Sequence(all) })
    }

    fn repeated(&mut self, mut item: Node) -> Result<Node> {
        loop {
            let (least, most) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    item = self.counted(item)?;
                    continue;
                }
                _ => return Ok(item),
            };
            self.next();
            item = Node::Repeat(Box::new(item), least, most);
        }
    }

    fn counted(&mut self, item: Node) -> Result<Node> {
        let end = match self.text[self.at..].find('}') {
            Some(end) => self.at + end,
            None => return self.fail("a count is not closed"),
        };
        let inner = self.text[self.at + 1..end].to_string();
        self.at = end + 1;
        let number = |part: &str| part.trim().parse::<u32>().ok().filter(|n| *n <= MAX_REPEAT);
        let made = match inner.split_once(',') {
            None => number(&inner).map(|n| (n, Some(n))),
            Some((least, "")) => number(least).map(|n| (n, None)),
            Some((least, most)) => match (number(least), number(most)) {
                (Some(least), Some(most)) if least <= most => Some((least, Some(most))),
                _ => None,
            },
        };
        match made {
            Some((least, most)) => Ok(Node::Repeat(Box::new(item), least, most)),
            None => self.fail(&format!("{{{inner}}} is no count up to {MAX_REPEAT}")),
        }
    }

    fn escaped(&mut self) -> Result<char> {
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some(c) if c.is_ascii_punctuation() => return Ok(c),
            _ => return self.fail("an unknown escape"),
        };
        let code = self.text.get(self.at..self.at + digits);
        let code = code.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        self.at = (self.at + digits).min(self.text.len());
        match code {
            Some(c) => Ok(c),
            None => {
                self.at = 0;
                self.fail("an escape is no character")
            }
        }
    }

    fn literal(&mut self) -> Result<String> {
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escaped()?),
                None | Some('\n') => return self.fail("a string is not closed"),
                Some(c) => text.push(c),
            }
        }
    }

    fn class(&mut self) -> Result<Node> {
        self.next();
        let mut class = String::from(if self.eat("^") { "[^" } else { "[" });
        let mut is_empty = true;
        let mut last = None;
        while let Some(c) = self.next() {
            let c = match c {
                ']' if is_empty => return self.fail("a class without characters"),
                ']' => {
                    class.push(']');
                    return Ok(Node::Class(class));
                }
                '-' if last.is_some() && self.peek().is_some_and(|c| c != ']') => {
                    let end = match self.next() {
                        Some('\\') => self.escaped()?,
                        Some(end) => end,
                        None => break,
                    };
                    if last.take().is_some_and(|begin| begin > end) {
                        return self.fail("a class' range falls");
                    }
                    let _ = write!(class, "-\\x{{{:X}}}", end as u32);
                    continue;
                }
                '\\' => self.escaped()?,
                c => c,
            };
            let _ = write!(class, "\\x{{{:X}}}", c as u32);
            last = Some(c);
            is_empty = false;
        }
        self.fail("a class is not closed")
    }
}
