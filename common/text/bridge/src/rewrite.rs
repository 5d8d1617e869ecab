//! Operators that mean something else to Python than to the engine, rewritten
//! as filters of pyfilters.rs: `a ~ b` writes its sides as str() does, `a % b`
//! formats texts, a slice of what has none is undefined, `(a, b)` is a tuple;
//! beside texts marked as safe `a + b` escapes the other side. A macro that
//! reads varargs or kwargs gets them as two parameters more.

use crate::pyfilters::{ADD, MOD, SLICE, STR, TUPLE};
use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, Macro, Spanned, Stmt};
use minijinja::machinery::{parse, Span};

/// Returns `source` rewritten; None if it cannot be parsed.
pub fn rewrite(source: &str) -> Option<String> {
    let tree = parse(source, "", Default::default(), Default::default()).ok()?;
    let has = |words: &[&str]| words.iter().any(|word| source.contains(word));
    let mut rewriter = Rewriter {
        source,
        edits: Vec::new(),
        has_safe: has(&["safe", "escape", "|e", "| e"]),
        has_rests: has(&["varargs", "kwargs"]),
        macros: Vec::new(),
    };
    rewriter.statement(&tree);
    rewriter.apply()
}

/// Puts `text` in the place of the bytes [begin, end).
struct Edit {
    begin: usize,
    end: usize,
    text: String,
}

/// A macro that reads varargs or kwargs.
struct Rests<'a> {
    name: &'a str,
    parameters: Vec<&'a str>,
}

struct Rewriter<'a> {
    source: &'a str,
    edits: Vec<Edit>,
    has_safe: bool,  // texts may be marked as safe
    has_rests: bool, // macros may read varargs or kwargs
    macros: Vec<Rests<'a>>,
}

fn begin_of(span: Span) -> usize {
    span.start_offset as usize
}

fn end_of(span: Span) -> usize {
    span.end_offset as usize
}

impl<'a> Rewriter<'a> {
    fn put(&mut self, begin: usize, end: usize, text: impl Into<String>) {
        self.edits.push(Edit { begin, end, text: text.into() });
    }

    /// At the same place edits stand in the order in which they were made.
    fn apply(mut self) -> Option<String> {
        self.edits.sort_by_key(|edit| edit.begin);
        let mut out = String::with_capacity(self.source.len() + 64 * self.edits.len());
        let mut done = 0;
        for edit in &self.edits {
            out.push_str(self.source.get(done..edit.begin)?);
            out.push_str(&edit.text);
            done = edit.end;
        }
        out.push_str(self.source.get(done..)?);
        Some(out)
    }

    fn statements(&mut self, all: &[Stmt<'a>]) {
        all.iter().for_each(|one| self.statement(one));
    }

    fn statement(&mut self, statement: &Stmt<'a>) {
        match statement {
            Stmt::Template(it) => self.statements(&it.children),
            Stmt::EmitExpr(it) => self.expression(&it.expr),
            Stmt::ForLoop(it) => {
                self.expression(&it.iter);
                it.filter_expr.iter().for_each(|e| self.expression(e));
                self.statements(&it.body);
                self.statements(&it.else_body);
            }
            Stmt::IfCond(it) => {
                self.expression(&it.expr);
                self.statements(&it.true_body);
                self.statements(&it.false_body);
            }
            Stmt::WithBlock(it) => {
                it.assignments.iter().for_each(|(_, e)| self.expression(e));
                self.statements(&it.body);
            }
            Stmt::Set(it) => self.expression(&it.expr),
            Stmt::SetBlock(it) => {
                it.filter.iter().for_each(|e| self.expression(e));
                self.statements(&it.body);
            }
            Stmt::AutoEscape(it) => {
                self.expression(&it.enabled);
                self.statements(&it.body);
            }
            Stmt::FilterBlock(it) => {
                self.expression(&it.filter);
                self.statements(&it.body);
            }
            Stmt::Macro(it) => {
                self.parameters(it);
                it.defaults.iter().for_each(|e| self.expression(e));
                self.statements(&it.body);
            }
            Stmt::CallBlock(it) => {
                self.expression(&it.call.expr);
                self.arguments(&it.call.args);
                self.statements(&it.macro_decl.body);
            }
            Stmt::Do(it) => {
                self.expression(&it.call.expr);
                self.arguments(&it.call.args);
            }
            _ => {}
        }
    }

    fn expression(&mut self, expression: &Expr<'a>) {
        match expression {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::Slice(it) => {
                let parts = [it.start.as_ref(), it.stop.as_ref(), it.step.as_ref()];
                self.slice(&it.expr, parts, end_of(it.span()));
            }
            Expr::UnaryOp(it) => self.expression(&it.expr),
            Expr::BinOp(it) => match it.op {
                BinOpKind::Concat => {
                    self.text(&it.left);
                    self.text(&it.right);
                }
                BinOpKind::Rem => self.operator(&it.left, MOD, &it.right),
                BinOpKind::Add if self.has_safe => self.operator(&it.left, ADD, &it.right),
                _ => {
                    self.expression(&it.left);
                    self.expression(&it.right);
                }
            },
            Expr::Compare(it) => {
                self.expression(&it.expr);
                it.ops.iter().for_each(|op| self.expression(&op.expr));
            }
            Expr::IfExpr(it) => {
                self.expression(&it.true_expr);
                self.expression(&it.test_expr);
                it.false_expr.iter().for_each(|e| self.expression(e));
            }
            Expr::Filter(it) => {
                it.expr.iter().for_each(|e| self.expression(e));
                self.arguments(&it.args);
            }
            Expr::Test(it) => {
                self.expression(&it.expr);
                self.arguments(&it.args);
            }
            Expr::GetAttr(it) => self.expression(&it.expr),
            Expr::GetItem(it) => {
                self.expression(&it.expr);
                self.expression(&it.subscript_expr);
            }
            Expr::Call(it) => {
                self.expression(&it.expr);
                match self.rests_of(&it.expr) {
                    Some(parameters) => {
                        let place = (end_of(it.expr.span()), end_of(it.span()));
                        self.call(&parameters, &it.args, place);
                    }
                    None => self.arguments(&it.args),
                }
            }
            Expr::List(it) => {
                let (begin, end) = (begin_of(it.span()), end_of(it.span()));
                let whole = self.source.get(begin..end).unwrap_or_default();
                // The right side of {% set a, b = .. %} has no parentheses.
                let is_around = it.items.first().is_none_or(|e| self.extent(e).0 > begin);
                let is_tuple = is_around && whole.starts_with('(') && whole.ends_with(')');
                if is_tuple {
                    self.put(begin, begin + 1, "([");
                }
                it.items.iter().for_each(|e| self.expression(e));
                if is_tuple {
                    self.put(end - 1, end, format!("]|{TUPLE})"));
                }
            }
            Expr::Map(it) => {
                for (key, value) in it.keys.iter().zip(&it.values) {
                    self.expression(key);
                    self.expression(value);
                }
            }
        }
    }

    fn arguments(&mut self, all: &[CallArg<'a>]) {
        for one in all {
            match one {
                CallArg::Pos(e)
                | CallArg::Kwarg(_, e)
                | CallArg::PosSplat(e)
                | CallArg::KwargSplat(e) => self.expression(e),
            }
        }
    }

    /// Adds a macro's parameters of the rest.
    fn parameters(&mut self, of: &Spanned<Macro<'a>>) {
        let (begin, end) = (begin_of(of.span()), end_of(of.span()));
        let whole = self.source.get(begin..end).unwrap_or_default();
        if !self.has_rests || !(whole.contains("varargs") || whole.contains("kwargs")) {
            return;
        }
        // Behind the last parameter or its default, else behind the parenthesis.
        let place = match (of.defaults.last(), of.args.last()) {
            (Some(default), _) => Some(self.operand(default).1),
            (None, Some(parameter)) => Some(self.extent(parameter).1),
            (None, None) => whole.find('(').map(|at| begin + at + 1),
        };
        let Some(place) = place else { return };
        let comma = if of.args.is_empty() { "" } else { ", " };
        self.put(place, place, format!("{comma}varargs=[]|{TUPLE}, kwargs={{}}"));
        let name_of = |parameter: &Expr<'a>| match parameter {
            Expr::Var(it) => it.id,
            _ => "",
        };
        let parameters = of.args.iter().map(name_of).collect();
        self.macros.push(Rests { name: of.name, parameters });
    }

    fn rests_of(&self, called: &Expr<'a>) -> Option<Vec<&'a str>> {
        let Expr::Var(it) = called else { return None };
        let found = self.macros.iter().rev().find(|one| one.name == it.id)?;
        Some(found.parameters.clone())
    }

    /// A call of a macro with parameters of the rest; `place` is that of its
    /// arguments.
    fn call(&mut self, parameters: &[&str], args: &[CallArg<'a>], place: (usize, usize)) {
        let mut places = 0;
        let (mut varargs, mut kwargs) = (Vec::new(), Vec::new());
        let mut known = Vec::new();
        for arg in args {
            let (CallArg::Pos(of) | CallArg::Kwarg(_, of)) = arg else {
                return self.arguments(args); // unpacked arguments go as they are
            };
            let (begin, end) = self.extent(of);
            let text = self.source.get(begin..end).unwrap_or_default();
            // What is rewritten itself stands in parentheses of its own.
            let text = rewrite(&format!("{{{{ ({text}) }}}}"))
                .map_or(format!("({text})"), |all| all[3..all.len() - 3].to_string());
            match arg {
                CallArg::Kwarg(name, _) if !parameters.contains(name) => {
                    kwargs.push(format!("'{name}': {text}"));
                }
                CallArg::Kwarg(name, _) => known.push(format!("{name}={text}")),
                _ if places < parameters.len() => {
                    places += 1;
                    known.insert(places - 1, text);
                }
                _ => varargs.push(text),
            }
        }
        known.push(format!("varargs=[{}]|{TUPLE}", varargs.join(", ")));
        known.push(format!("kwargs={{{}}}", kwargs.join(", ")));
        self.put(place.0, place.1, format!("({})", known.join(", ")));
    }

    /// A side of `~`.
    fn text(&mut self, side: &Expr<'a>) {
        let is_text = match side {
            Expr::Const(it) => it.value.as_str().is_some(),
            Expr::BinOp(it) => matches!(it.op, BinOpKind::Concat),
            _ => false,
        };
        if is_text {
            return self.expression(side);
        }
        let (begin, end) = self.operand(side);
        self.put(begin, begin, "(");
        self.expression(side);
        self.put(end, end, format!(")|{STR}"));
    }

    fn operator(&mut self, left: &Expr<'a>, filter: &str, right: &Expr<'a>) {
        let (begin, end) = self.operand(left);
        let (begin_right, end_right) = self.operand(right);
        self.put(begin, begin, "((");
        self.expression(left);
        self.put(end, begin_right, format!(")|{filter}("));
        self.expression(right);
        self.put(end_right, end_right, "))");
    }

    fn slice(&mut self, of: &Expr<'a>, parts: [Option<&Expr<'a>>; 3], last: usize) {
        let (begin, end) = self.operand(of);
        self.put(begin, begin, "((");
        self.expression(of);
        let mut text = format!(")|{SLICE}(");
        let mut done = end;
        for (i, part) in parts.into_iter().enumerate() {
            text.push_str(if i > 0 { ", " } else { "" });
            let Some(part) = part else {
                text.push_str("none");
                continue;
            };
            let (begin, end) = self.operand(part);
            self.put(done, begin, std::mem::take(&mut text));
            self.expression(part);
            done = end;
        }
        self.put(done, last, text + "))");
    }

    /// The bytes of an operand of an operator, its parentheses included. The
    /// operator on one of its sides keeps those of a call apart.
    fn operand(&self, of: &Expr<'a>) -> (usize, usize) {
        let (mut begin, mut end) = self.extent(of);
        let bytes = self.source.as_bytes();
        let is_blank = |at: usize| bytes[at].is_ascii_whitespace();
        loop {
            let Some(before) = (0..begin).rev().find(|&at| !is_blank(at)) else { break };
            let Some(behind) = (end..bytes.len()).find(|&at| !is_blank(at)) else { break };
            if bytes[before] != b'(' || bytes[behind] != b')' {
                break;
            }
            begin = before;
            end = behind + 1;
        }
        (begin, end)
    }

    /// The bytes of an expression. The engine's spans tell where each ends, but
    /// of many not where it begins.
    fn extent(&self, of: &Expr<'a>) -> (usize, usize) {
        let span = of.span();
        let begin = match of {
            Expr::Var(_) | Expr::Const(_) | Expr::List(_) | Expr::Map(_) => begin_of(span),
            Expr::UnaryOp(it) => begin_of(span).min(self.operand(&it.expr).0),
            Expr::BinOp(it) => self.operand(&it.left).0,
            Expr::Compare(it) => self.operand(&it.expr).0,
            Expr::IfExpr(it) => self.operand(&it.true_expr).0,
            Expr::Filter(it) => it.expr.as_ref().map_or(begin_of(span), |e| self.operand(e).0),
            Expr::Test(it) => self.operand(&it.expr).0,
            Expr::GetAttr(it) => self.operand(&it.expr).0,
            Expr::GetItem(it) => self.operand(&it.expr).0,
            Expr::Slice(it) => self.operand(&it.expr).0,
            Expr::Call(it) => self.operand(&it.expr).0,
        };
        (begin, end_of(span))
    }
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    fn check(source: &str, expected: &str) {
        assert_eq!(rewrite(source).unwrap(), expected);
    }

    #[test]
    fn operands_keep_their_parentheses() {
        check("{{ 'a' ~ b.c[0] ~ (d + e) }}", "{{ 'a' ~ (b.c[0])|_py_str ~ ((d + e))|_py_str }}");
        check("{{ f(a ~ b) }}", "{{ f((a)|_py_str ~ (b)|_py_str) }}");
        check("{{ (a)|upper % (b, c) }}", "{{ (((a)|upper)|_py_mod(([b, c]|_py_tuple))) }}");
        check("{{ -a ~ b }}", "{{ (-a)|_py_str ~ (b)|_py_str }}");
    }

    #[test]
    fn slices_are_calls() {
        check("{{ a.b[1:][0] }}", "{{ ((a.b)|_py_slice(1, none, none))[0] }}");
        check("{{ a[::-1] }}", "{{ ((a)|_py_slice(none, none, -1)) }}");
        check("{{ a[: n - 1] }}", "{{ ((a)|_py_slice(none, n - 1, none)) }}");
    }

    #[test]
    fn other_templates_stay_as_they_are() {
        for source in [
            "{% for a, b in c %}{{ a + b }}{% endfor %}",
            "{% set a, b = 1, 2 %}{{ x is defined }}",
            "{# a ~ b #}{% raw %}{{ a ~ b }}{% endraw %} a ~ b",
            "{{ 'a' ~ 'b' }}{{ (a) }}",
        ] {
            check(source, source);
        }
        assert!(rewrite("{{ a ~ }}").is_none());
    }
}
