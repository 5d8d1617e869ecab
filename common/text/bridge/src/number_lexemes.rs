//! Sets of numbers in the place of the expressions that the compiler made.

use crate::numbers::{signed_multiple, Allowed, INTEGER, NUMBER};
use llguidance::derivre::{ExprRef, RegexAst, RegexBuilder};
use llguidance::earley::lexerspec::{LexemeClass, LexerSpec};
use std::collections::{HashMap, HashSet};

pub fn text_of(error: impl std::fmt::Display) -> String {
    format!("{error:#}")
}

/// Expressions of a lexer, and what stands for them.
pub struct Replacements {
    size: usize, // expressions that were there before
    pub tagged: Vec<ExprRef>,
    inner: HashSet<ExprRef>,        // of the compiler's numbers, never alone
    pub new: HashMap<ExprRef, ExprRef>,
    pub may_be_empty: HashSet<ExprRef>, // several sets without a common number
    has_tag: Vec<bool>,
}

impl Replacements {
    pub fn new(size: usize) -> Self {
        Self { size, tagged: Vec::new(), inner: HashSet::new(), new: HashMap::new(),
            may_be_empty: HashSet::new(), has_tag: vec![false; size] }
    }

    fn was_there(&self, expression: ExprRef) -> bool {
        expression.as_usize() < self.size
    }

    /// The compiler's expressions of the multiples of `divisor`.
    pub fn add(
        &mut self,
        builder: &mut RegexBuilder,
        divisor: u32,
        sets: &[&Allowed],
    ) -> std::result::Result<(), String> {
        let mark = builder.mk(&RegexAst::MultipleOf(divisor, 0)).map_err(text_of)?;
        if !self.was_there(mark) {
            return Ok(());
        }
        self.has_tag[mark.as_usize()] = true;
        let multiple = builder.mk(&signed_multiple(divisor, 0)).map_err(text_of)?;
        self.inner.extend([mark, multiple]);
        for kind in [INTEGER, NUMBER] {
            let is_held = kind == NUMBER || sets.iter().any(|set| set.has_integers_alone());
            let kind = RegexAst::Regex(kind.to_string());
            let old = builder
                .mk(&RegexAst::And(vec![kind.clone(), RegexAst::ExprRef(multiple)]))
                .map_err(text_of)?;
            if !self.was_there(old) {
                continue;
            }
            let mut all: Vec<RegexAst> = sets.iter().map(|set| set.expression()).collect();
            if !is_held {
                all.push(kind);
            }
            let is_one = all.len() == 1;
            let new = builder.mk(&RegexAst::And(all)).map_err(text_of)?;
            self.new.insert(old, new);
            if !is_one {
                self.may_be_empty.insert(old);
            }
        }
        Ok(())
    }

    /// Alternatives with one of the expressions, in the order of their making.
    pub fn add_unions(&mut self, builder: &mut RegexBuilder) -> std::result::Result<(), String> {
        for at in 1..self.size {
            let place = ExprRef::new(at as u32);
            let parts = builder.exprset().get_args(place).to_vec();
            if !self.has_tag[at] {
                self.has_tag[at] = parts.iter().any(|part| self.has_tag[part.as_usize()]);
            }
            if !self.has_tag[at] {
                continue;
            }
            if !self.inner.contains(&place) {
                self.tagged.push(place);
            }
            if self.new.contains_key(&place) || !parts.iter().any(|one| self.new.contains_key(one)) {
                continue;
            }
            let union = |parts: &[ExprRef]| {
                RegexAst::Or(parts.iter().map(|part| RegexAst::ExprRef(*part)).collect())
            };
            if builder.mk(&union(&parts)).ok() == Some(place) {
                if parts.iter().all(|part| self.may_be_empty.contains(part)) {
                    self.may_be_empty.insert(place);
                }
                let parts: Vec<ExprRef> =
                    parts.iter().map(|part| *self.new.get(part).unwrap_or(part)).collect();
                let new = builder.mk(&union(&parts)).map_err(text_of)?;
                self.new.insert(place, new);
            }
        }
        Ok(())
    }
}

/// The lexeme whose expression is `place`. The lexer finds an equal one before
/// it adds another.
pub fn lexeme_of(lexer: &mut LexerSpec, place: ExprRef) -> Option<usize> {
    let size = lexer.lexemes.len();
    let class = lexer.current_class;
    let mut found = None;
    for at in 0..lexer.skip_by_class.len() {
        lexer.current_class = LexemeClass::new(at);
        let ast = RegexAst::ExprRef(place);
        let index = lexer.add_greedy_lexeme(String::new(), ast, false, None, usize::MAX).ok()?;
        lexer.lexemes.truncate(size);
        if index.as_usize() < size {
            found = Some(index.as_usize());
            break;
        }
    }
    lexer.current_class = class;
    found
}

/// Gives lexemes other expressions, each at its place.
pub fn replace_lexemes(
    lexer: &mut LexerSpec,
    found: &[(usize, ExprRef)],
) -> std::result::Result<(), String> {
    let Some(skip) = lexer.skip_by_class.first().map(|at| at.as_usize()) else { return Ok(()) };
    let class = lexer.current_class;
    let mut kept = std::mem::take(&mut lexer.lexemes);
    let mut done = Ok(());
    for (at, new) in found {
        // A lexeme's number is that of the lexemes before it, of which none may
        // be equal.
        lexer.lexemes.resize(*at, kept[skip].clone());
        lexer.current_class = kept[*at].class();
        let ast = RegexAst::ExprRef(*new);
        match lexer.add_greedy_lexeme(String::new(), ast, false, None, usize::MAX) {
            Ok(_) => kept[*at] = lexer.lexemes.pop().unwrap_or_else(|| kept[*at].clone()),
            Err(e) => done = Err(text_of(e)),
        }
    }
    lexer.lexemes = kept;
    lexer.current_class = class;
    done
}
