//! Grammars with schemas: their numbers are exact, and Lark's schemas are
//! checked like others.

use crate::doubles::write_doubles;
use crate::failure::{Failure, Result};
use crate::grammar::Limits;
use crate::lark_json::json_blocks;
use crate::number_lexemes::{lexeme_of, replace_lexemes, text_of, Replacements};
use crate::numbers::{joins_references, write_primes, Allowed, Holder, Tags};
use crate::schema::{self, Checked};
use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::derivre::ExprRef;
use llguidance::earley::lexerspec::LexerSpec;
use llguidance::{ParserFactory, TokenParser};
use serde_json::Value;

/// Steps of a search for a number that fits several sets.
const MEETING_FUEL: u64 = 200_000;

/// The schemas of one grammar.
#[derive(Default)]
pub struct Schemas {
    tags: Tags,
    primes: Vec<u32>,
    all: Vec<Checked>,
}

impl Schemas {
    /// One schema is the grammar.
    pub fn of_schema(text: &str, limits: &Limits) -> Result<(TopLevelGrammar, Self)> {
        let mut schemas = Self::default();
        schemas.all.push(schema::checked(text, limits)?);
        let mut values = schemas.hold()?;
        let value = values.pop().unwrap_or_default();
        Ok((TopLevelGrammar::from_json_schema(value), schemas))
    }

    /// A grammar of Lark, with the schemas of its `%json`.
    pub fn of_lark(text: &str, limits: &Limits) -> Result<(TopLevelGrammar, Self)> {
        let mut schemas = Self::default();
        let blocks = json_blocks(text)?;
        for (begin, end) in &blocks {
            schemas.all.push(schema::checked(&text[*begin..*end], limits)?);
        }
        let (mut lark, mut kept) = (String::new(), 0);
        for ((begin, end), value) in blocks.iter().zip(schemas.hold()?) {
            lark.push_str(&text[kept..*begin]);
            lark.push_str(&value.to_string());
            kept = *end;
        }
        lark.push_str(&text[kept..]);
        Ok((TopLevelGrammar::from_lark(lark), schemas))
    }

    /// Returns the schemas as the compiler is to see them.
    fn hold(&mut self) -> Result<Vec<Value>> {
        let plain: Vec<Value> = self.all.iter().map(|checked| checked.value.clone()).collect();
        for checked in &mut self.all {
            let numbers = std::mem::take(&mut checked.numbers);
            let mut joins_all = false;
            checked.for_each_root(|root| joins_all |= joins_references(root, false));
            let mut holder = Holder { numbers: &numbers, tags: &mut self.tags, joins_all };
            checked.for_each_root(|root| holder.hold(root, false));
            checked.numbers = numbers;
        }
        if let Some(primes) = self.tags.primes() {
            self.primes = primes;
            for checked in &mut self.all {
                write_primes(&mut checked.value, &self.primes);
            }
            return Ok(self.all.iter().map(|checked| checked.value.clone()).collect());
        }
        self.tags = Tags::default();
        for (checked, plain) in self.all.iter_mut().zip(plain) {
            checked.value = plain;
            let numbers = std::mem::take(&mut checked.numbers);
            let mut is_fine = true;
            checked.for_each_root(|root| is_fine &= write_doubles(root, &numbers).is_some());
            if !is_fine {
                return Err(Failure::invalid(
                    "schema: `allOf`, or what stands beside `$ref`, `anyOf` or \
                     `patternProperties`, joins more than six different bounds or values of \
                     numbers, of which a double cannot keep each to the digit",
                ));
            }
        }
        Ok(self.all.iter().map(|checked| checked.value.clone()).collect())
    }

    pub fn explain(&self, message: &str) -> Option<String> {
        self.all.iter().find_map(|checked| checked.explain(message))
    }

    pub fn parser(
        &self,
        factory: &ParserFactory,
        grammar: TopLevelGrammar,
    ) -> std::result::Result<TokenParser, String> {
        if self.tags.all.is_empty() {
            return factory.create_parser(grammar).map_err(text_of);
        }
        let (rules, mut lexer) = GrammarInit::Serialized(grammar)
            .to_internal(Some(factory.tok_env().clone()), factory.limits().clone())
            .map_err(text_of)?;
        self.replace(&mut lexer)?;
        factory
            .create_parser_from_init_default(GrammarInit::Internal(rules, lexer))
            .map_err(text_of)
    }

    /// Puts the sets of numbers where the multiples of their primes are.
    fn replace(&self, lexer: &mut LexerSpec) -> std::result::Result<(), String> {
        let size = lexer.regex_builder.exprset().len();
        let mut places = Replacements::new(size);
        for (divisor, sets) in self.products() {
            let sets: Vec<&Allowed> = sets.iter().map(|at| &self.tags.all[*at].allowed).collect();
            places.add(&mut lexer.regex_builder, divisor, &sets)?;
        }
        places.add_unions(&mut lexer.regex_builder)?;
        let mut found: Vec<(usize, ExprRef)> = Vec::new();
        for place in places.tagged {
            let Some(at) = lexeme_of(lexer, place) else { continue };
            let Some(new) = places.new.get(&place) else {
                return Err("numbers that cannot be held to the digit".to_string());
            };
            if places.may_be_empty.contains(&place) {
                let searched = lexer.regex_builder.to_regex_limited(*new, MEETING_FUEL);
                if searched.map_err(text_of)?.always_empty() {
                    return Err("no number fits".to_string());
                }
            }
            found.push((at, *new));
        }
        found.sort_unstable_by_key(|(at, _)| *at);
        replace_lexemes(lexer, &found)
    }

    /// The primes, and the products of those that may meet.
    fn products(&self) -> Vec<(u32, Vec<usize>)> {
        let all = self.primes.iter().enumerate();
        let mut products: Vec<(u32, Vec<usize>)> = all.map(|(at, one)| (*one, vec![at])).collect();
        let joined: Vec<usize> =
            (0..self.primes.len()).filter(|at| self.tags.all[*at].is_joined).collect();
        for subset in 1u32..1 << joined.len() {
            if subset.count_ones() > 1 {
                let sets: Vec<usize> = (0..joined.len())
                    .filter(|bit| subset >> bit & 1 == 1)
                    .map(|bit| joined[bit])
                    .collect();
                products.push((sets.iter().map(|at| self.primes[*at]).product(), sets));
            }
        }
        products
    }
}
