//! Writes a GBNF grammar as llguidance's Lark. A rule that no cycle of rules can
//! reach is regular and becomes a terminal, one lexeme; other rules stay rules,
//! whose regular parts become terminals.

use crate::gbnf::{Grammar, Node};
use std::fmt::Write;

pub fn written(grammar: &Grammar, root: usize) -> String {
    Writer::new(grammar).write(root)
}

struct Writer<'a> {
    grammar: &'a Grammar,
    is_regular: Vec<bool>,
    terminals: String,
    num_terminals: usize,
}

impl<'a> Writer<'a> {
    fn new(grammar: &'a Grammar) -> Self {
        // A rule is regular when all that it refers to is: from the leaves up.
        let mut is_regular = vec![false; grammar.rules.len()];
        loop {
            let mut changed = false;
            for (index, rule) in grammar.rules.iter().enumerate() {
                if !is_regular[index] && rule.as_ref().is_some_and(|r| regular(r, &is_regular)) {
                    is_regular[index] = true;
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        Self { grammar, is_regular, terminals: String::new(), num_terminals: 0 }
    }

    fn write(mut self, root: usize) -> String {
        let name = if self.is_regular[root] { 'R' } else { 'r' };
        let mut out = format!("start: {name}{root}\n");
        for (index, rule) in self.grammar.rules.iter().enumerate() {
            let Some(rule) = rule else { continue };
            let mut body = String::new();
            if self.is_regular[index] {
                self.regular(rule, &mut body);
                let _ = writeln!(out, "R{index}: {body}");
            } else {
                self.rule(rule, &mut body);
                let _ = writeln!(out, "r{index}: {body}");
            }
        }
        out + &self.terminals
    }

    /// `node` within a terminal.
    fn regular(&self, node: &Node, out: &mut String) {
        match node {
            Node::Text(text) => out.push_str(&quoted(text)),
            Node::Class(class) => {
                let _ = write!(out, "/{class}/");
            }
            Node::Rule(index) => {
                let _ = write!(out, "R{index}");
            }
            Node::Sequence(all) if all.is_empty() => out.push_str("\"\""),
            Node::Sequence(all) => joined(all, " ", out, |one, out| self.regular(one, out)),
            Node::Choice(all) => joined(all, " | ", out, |one, out| self.regular(one, out)),
            Node::Repeat(one, least, most) => {
                out.push('(');
                self.regular(one, out);
                let _ = write!(out, "){}", count(*least, *most));
            }
        }
    }

    /// `node` within a rule that is not regular.
    fn rule(&mut self, node: &Node, out: &mut String) {
        if regular(node, &self.is_regular) {
            return self.terminal(std::slice::from_ref(node), out);
        }
        match node {
            Node::Rule(index) => {
                let _ = write!(out, "r{index}");
            }
            Node::Sequence(all) => self.sequence(all, out),
            Node::Choice(all) => joined(all, " | ", out, |one, out| self.rule(one, out)),
            Node::Repeat(one, least, most) => {
                out.push('(');
                self.rule(one, out);
                let _ = write!(out, "){}", count(*least, *most));
            }
            Node::Text(_) | Node::Class(_) => {}
        }
    }

    /// Regular neighbours become one terminal.
    fn sequence(&mut self, all: &[Node], out: &mut String) {
        let mut begin = 0;
        out.push('(');
        for index in 0..=all.len() {
            let stays = index < all.len() && regular(&all[index], &self.is_regular);
            if stays {
                continue;
            }
            if begin < index {
                self.terminal(&all[begin..index], out);
                out.push(' ');
            }
            if index < all.len() {
                self.rule(&all[index], out);
                out.push(' ');
            }
            begin = index + 1;
        }
        out.push(')');
    }

    fn terminal(&mut self, nodes: &[Node], out: &mut String) {
        if let [Node::Rule(index)] = nodes {
            let _ = write!(out, "R{index}");
            return;
        }
        let mut body = String::new();
        for node in nodes {
            body.push('(');
            self.regular(node, &mut body);
            body.push_str(") ");
        }
        let _ = writeln!(self.terminals, "T{}: {body}", self.num_terminals);
        let _ = write!(out, "T{}", self.num_terminals);
        self.num_terminals += 1;
    }
}

fn regular(node: &Node, is_regular: &[bool]) -> bool {
    match node {
        Node::Text(_) | Node::Class(_) => true,
        Node::Rule(index) => is_regular[*index],
        Node::Sequence(all) | Node::Choice(all) => all.iter().all(|one| regular(one, is_regular)),
        Node::Repeat(one, _, _) => regular(one, is_regular),
    }
}

fn joined(
    all: &[Node],
    between: &str,
    out: &mut String,
    mut write: impl FnMut(&Node, &mut String),
) {
    out.push('(');
    for (index, one) in all.iter().enumerate() {
        if index > 0 {
            out.push_str(between);
        }
        write(one, out);
    }
    out.push(')');
}

fn count(least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => "*".to_string(),
        (1, None) => "+".to_string(),
        (0, Some(1)) => "?".to_string(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

/// A text as Lark writes it: JSON's escapes.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
