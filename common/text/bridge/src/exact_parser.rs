//! Grammars with schemas: their numbers are exact, and Lark's schemas are
//! checked like others.

use crate::failure::{Failure, Result};
use crate::grammar::Limits;
use crate::numbers::{
    joins_references, signed_multiple, write_doubles, write_primes, Holder, Tags, INTEGER, NUMBER,
};
use crate::schema::{self, Checked};
use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::derivre::{ExprRef, RegexAst, RegexBuilder};
use llguidance::earley::lexerspec::{LexemeClass, LexerSpec};
use llguidance::{ParserFactory, TokenParser};
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

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
            places.add(&mut lexer.regex_builder, divisor, &sets, self)?;
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

fn text_of(error: impl std::fmt::Display) -> String {
    format!("{error:#}")
}

/// Expressions of a lexer, and what stands for them.
struct Replacements {
    size: usize, // expressions that were there before
    tagged: Vec<ExprRef>,
    inner: HashSet<ExprRef>,        // of the compiler's numbers, never alone
    new: HashMap<ExprRef, ExprRef>,
    may_be_empty: HashSet<ExprRef>, // several sets without a common number
    has_tag: Vec<bool>,
}

impl Replacements {
    fn new(size: usize) -> Self {
        Self { size, tagged: Vec::new(), inner: HashSet::new(), new: HashMap::new(),
            may_be_empty: HashSet::new(), has_tag: vec![false; size] }
    }

    fn was_there(&self, expression: ExprRef) -> bool {
        expression.as_usize() < self.size
    }

    /// The compiler's expressions of the multiples of `divisor`.
    fn add(
        &mut self,
        builder: &mut RegexBuilder,
        divisor: u32,
        sets: &[usize],
        schemas: &Schemas,
    ) -> std::result::Result<(), String> {
        let mark = builder.mk(&RegexAst::MultipleOf(divisor, 0)).map_err(text_of)?;
        if !self.was_there(mark) {
            return Ok(());
        }
        self.has_tag[mark.as_usize()] = true;
        let multiple = builder.mk(&signed_multiple(divisor, 0)).map_err(text_of)?;
        self.inner.extend([mark, multiple]);
        let sets = || sets.iter().map(|at| &schemas.tags.all[*at].allowed);
        for kind in [INTEGER, NUMBER] {
            let is_held = kind == NUMBER || sets().any(|set| set.has_integers_alone());
            let kind = RegexAst::Regex(kind.to_string());
            let old = builder
                .mk(&RegexAst::And(vec![kind.clone(), RegexAst::ExprRef(multiple)]))
                .map_err(text_of)?;
            if !self.was_there(old) {
                continue;
            }
            let mut all: Vec<RegexAst> = sets().map(|set| set.expression()).collect();
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
    fn add_unions(&mut self, builder: &mut RegexBuilder) -> std::result::Result<(), String> {
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
fn lexeme_of(lexer: &mut LexerSpec, place: ExprRef) -> Option<usize> {
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
fn replace_lexemes(
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

/// The places of the JSON behind each `%json` of a grammar.
fn json_blocks(text: &str) -> Result<Vec<(usize, usize)>> {
    const KEYWORDS: [&str; 3] = ["%json", "%regex", "%llguidance"];
    let bytes = text.as_bytes();
    let (mut blocks, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        if let Some(keyword) = KEYWORDS.iter().find(|keyword| text[at..].starts_with(**keyword)) {
            let begin = at + keyword.len();
            let size = json_size(&text[begin..], keyword)?;
            if *keyword == KEYWORDS[0] {
                blocks.push((begin, begin + size));
            }
            at = begin + size;
            continue;
        }
        at += lexeme_size(text, at);
    }
    Ok(blocks)
}

fn json_size(text: &str, keyword: &str) -> Result<usize> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    match stream.next() {
        Some(Ok(_)) => Ok(stream.byte_offset()),
        _ => Err(Failure::invalid(format!("grammar: no JSON stands behind a `{keyword}`"))),
    }
}

/// The bytes of the string, expression, comment, name of a token or character
/// at `at`.
fn lexeme_size(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let line = rest.find('\n').unwrap_or(rest.len());
    match rest.as_bytes()[0] {
        b'#' => line,
        b'/' if rest.starts_with("//") => line,
        quote @ (b'"' | b'/') => {
            let end = if quote == b'"' { line } else { rest.len() };
            let (mut size, bytes) = (1, rest.as_bytes());
            while size < end && bytes[size] != quote {
                size += if bytes[size] == b'\\' { 2 } else { 1 };
            }
            let size = (size + 1).min(rest.len());
            (size..=rest.len()).find(|size| rest.is_char_boundary(*size)).unwrap_or(rest.len())
        }
        b'<' => match rest[1..].find(|c: char| c == '<' || c == '>' || c.is_whitespace()) {
            Some(size) if size > 0 && rest[1 + size..].starts_with('>') => size + 2,
            _ => 1,
        },
        _ => rest.chars().next().map_or(1, char::len_utf8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::explained;
    use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities};
    use llguidance::Matcher;

    const LIMITS: Limits =
        Limits { max_bytes: 1 << 20, max_levels: 64, max_enum_values: 10_000, max_compile_ms: 0 };

    /// One token for each byte.
    fn factory() -> ParserFactory {
        let env = ApproximateTokEnv::single_byte_env();
        let mut made =
            ParserFactory::new(&env, InferenceCapabilities::default(), &[]).unwrap();
        made.quiet();
        made
    }

    fn matcher(made: Result<(TopLevelGrammar, Schemas)>) -> std::result::Result<Matcher, String> {
        let (grammar, schemas) = made.map_err(|failure| failure.message)?;
        Ok(Matcher::new(Ok(schemas.parser(&factory(), grammar)?)))
    }

    fn fits(matcher: &Matcher, text: &str) -> bool {
        let mut matcher = matcher.deep_clone();
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        matcher.try_consume_tokens(&tokens).ok() == Some(tokens.len())
            && matcher.is_accepting().unwrap_or(false)
    }

    fn check(schema: &str, good: &[&str], bad: &[&str]) {
        let matcher = matcher(Schemas::of_schema(schema, &LIMITS))
            .unwrap_or_else(|why| panic!("{schema}: {why}"));
        for text in good {
            assert!(fits(&matcher, text), "{schema}: {text}");
        }
        for text in bad {
            assert!(!fits(&matcher, text), "{schema}: {text}");
        }
    }

    fn refusal(schema: &str) -> String {
        match matcher(Schemas::of_schema(schema, &LIMITS)) {
            Ok(_) => panic!("{schema} is taken"),
            Err(why) => explained("schema", &why) + &why,
        }
    }

    #[test]
    fn constants_keep_their_digits() {
        for number in [
            "-9223372036854775808", "-9223372036854775296", "9223372036854775808",
            "18446744073709551615", "1234567890123456789", "9007199254740993", "0", "-1",
            "0.100000000000000000000000000001", "1.5", "340282346638528859811704183484516925440",
        ] {
            let neighbours: Vec<String> =
                ["1", "0"].iter().map(|digit| format!("{number}{digit}")).collect();
            let bad = ["1234567890123456768", "9223372036854775807", "7", &neighbours[0]];
            for form in ["{\"const\":#}", "{\"enum\":[#]}", "{\"minimum\":#,\"maximum\":#,\"type\":\"number\"}"] {
                check(&form.replace('#', number), &[number], &bad);
            }
            check(
                &r#"{"const":{"a":[#,"x"],"b":null}}"#.replace('#', number),
                &[&r#"{"a":[#,"x"],"b":null}"#.replace('#', number)],
                &[r#"{"a":[7,"x"],"b":null}"#, r#"{"a":[],"b":null}"#],
            );
        }
        check(r#"{"const":1e2}"#, &["100"], &["1e2", "10", "99"]);
        check(r#"{"const":1.0,"type":"integer"}"#, &["1"], &["2"]);
        check(r#"{"const":-0}"#, &["0"], &["1"]);
        check(r#"{"const":1e400}"#, &[&format!("1{}", "0".repeat(400))], &["1"]);
        assert!(refusal(r#"{"const":1e5000}"#).contains("`const`"));
        assert!(refusal(r#"{"items":{"enum":[1e5000]}}"#).contains("/items"));
    }

    #[test]
    fn enums_have_numbers_beside_others() {
        check(
            r#"{"enum":[1234567890123456789,"a",null,[1.5],{"k":2}]}"#,
            &["1234567890123456789", "\"a\"", "null", "[1.5]", "{\"k\":2}"],
            &["1", "[]", "[1]", "{\"k\":3}", "{}", "\"b\"", "true"],
        );
        check(r#"{"enum":[1,2,3,"a"],"type":"integer","minimum":2}"#, &["2", "3"], &["1", "\"a\""]);
        check(r#"{"enum":[1,1.5,null],"type":["integer","null"]}"#, &["1", "null"], &["1.5"]);
        check(r#"{"enum":[1,"a"],"anyOf":[{"type":"string"},{"type":"null"}]}"#, &["\"a\""], &["1"]);
        check(r#"{"type":["string","integer"],"enum":["1",2]}"#, &["\"1\"", "2"], &["1", "\"2\""]);
        check(r#"{"enum":[1,2],"const":2}"#, &["2"], &["1"]);
        assert!(refusal(r#"{"enum":[1,2],"minimum":5}"#).contains("no value fits"));
        assert!(refusal(r#"{"const":1.5,"type":"integer"}"#).contains("no value fits"));
    }

    #[test]
    fn bounds_that_generators_write_hold() {
        let int = |text: &str| format!(r#"{{"type":"integer",{text}}}"#);
        check(&int(r#""minimum":-9223372036854775808"#),
            &["-9223372036854775808", "0", "99999999999999999999"], &["-9223372036854775809"]);
        check(&int(r#""minimum":-9223372036854775808,"maximum":9223372036854775807"#),
            &["-9223372036854775808", "9223372036854775807"],
            &["-9223372036854775809", "9223372036854775808", "1.5"]);
        check(&int(r#""minimum":0,"maximum":18446744073709551615"#),
            &["0", "18446744073709551615"], &["-1", "18446744073709551616"]);
        check(&int(r#""exclusiveMinimum":-1e20,"maximum":-1e19"#),
            &["-99999999999999999999", "-10000000000000000000"],
            &["-100000000000000000000", "-9999999999999999999"]);
        check(&int(r#""minimum":-9223372036854775808,"maximum":-9223372036854775808"#),
            &["-9223372036854775808"], &["-9223372036854775807"]);
        check(&int(r#""maximum":123456789012345678901234567890"#),
            &["123456789012345678901234567890", "-1"], &["123456789012345678901234567891"]);
        let number = |text: &str| format!(r#"{{"type":"number",{text}}}"#);
        for bound in ["9223372036854775808", "1e19", "3.4028235e38", "1.7976931348623157e308"] {
            for key in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"] {
                check(&number(&format!("\"{key}\":{bound}")), &[], &["x", "00"]);
            }
            check(&number(&format!("\"minimum\":-{bound},\"maximum\":{bound}")),
                &["0", "-1.5", "9223372036854775807"], &["x"]);
        }
        check(&number(r#""exclusiveMinimum":0,"maximum":0.5"#),
            &["0.5", "0.001"], &["0", "0.0", "0.51", "-0.1"]);
        check(&number(r#""minimum":0.1,"exclusiveMaximum":0.100000000000000000001"#),
            &["0.1", "0.1000000000000000000005"], &["0.100000000000000000001", "0.2"]);
        check(r#"{"type":["integer","null"],"minimum":-1e300,"maximum":-9223372036854775808}"#,
            &["null", "-9223372036854775808", "-9223372036854775809"], &["-9223372036854775807"]);
        check(r#"{"minimum":5}"#, &["5", "\"a\"", "[1]", "{\"a\":1}"], &["4"]);
        check(r#"{"type":["string","integer"],"minimum":5,"maximum":4}"#, &["\"a\""], &["5", "4"]);
        assert!(refusal(&int(r#""minimum":5,"maximum":4"#)).contains("no value fits"));
        assert!(refusal(&int(r#""minimum":1.2,"maximum":1.8"#)).contains("no value fits"));
    }

    #[test]
    fn multiples_hold_between_bounds() {
        check(r#"{"type":"integer","multipleOf":5,"minimum":-12,"maximum":12}"#,
            &["-10", "0", "5"], &["-15", "12", "15", "3"]);
        check(r#"{"type":"number","multipleOf":0.07,"minimum":0,"maximum":1}"#,
            &["0", "0.07", "0.21", "0.7"], &["0.1", "1.4"]);
        check(r#"{"type":"integer","multipleOf":2.5,"minimum":1}"#, &["5", "10"], &["2.5", "7"]);
        check(r#"{"type":"integer","multipleOf":1000000,"maximum":18446744073709551615}"#,
            &["3000000", "0"], &["1"]);
        assert!(refusal(r#"{"type":"integer","multipleOf":5,"minimum":1,"maximum":4}"#)
            .contains("no value fits"));
        assert!(refusal(r#"{"items":{"multipleOf":1e7}}"#).contains("`multipleOf` at \"/items"));
        assert!(refusal(r#"{"multipleOf":1e-400}"#).contains("`multipleOf`"));
    }

    #[test]
    fn joined_schemas_hold_all_their_numbers() {
        check(r#"{"allOf":[{"type":"integer","minimum":-9223372036854775808},{"maximum":9223372036854775807}]}"#,
            &["-9223372036854775808", "9223372036854775807"],
            &["-9223372036854775809", "9223372036854775808", "1.5"]);
        check(r##"{"$ref":"#/$defs/n","minimum":3,"$defs":{"n":{"type":"integer","maximum":5}}}"##,
            &["3", "5"], &["2", "6"]);
        check(r#"{"minimum":3,"anyOf":[{"type":"integer","maximum":5},{"type":"string"},{"enum":[7,8]}]}"#,
            &["3", "5", "7", "\"x\""], &["2", "6", "9"]);
        check(r#"{"allOf":[{"multipleOf":2},{"multipleOf":3},{"type":"integer"},{"minimum":1}]}"#,
            &["6", "12"], &["0", "2", "3"]);
        assert!(refusal(r#"{"allOf":[{"type":"integer","minimum":6},{"maximum":5}]}"#)
            .contains("no "));
        let many: Vec<String> = (0..8).map(|i| format!("{{\"minimum\":{i}}}")).collect();
        check(&format!(r#"{{"type":"integer","allOf":[{}]}}"#, many.join(",")), &["7"], &["6"]);
        let many: Vec<String> =
            (0..8).map(|i| format!("{{\"minimum\":1234567890123456789{i}}}")).collect();
        assert!(refusal(&format!(r#"{{"allOf":[{}]}}"#, many.join(","))).contains("`allOf`"));
        let many: Vec<String> = (0..60)
            .map(|i| format!(r#""p{i}":{{"type":"integer","minimum":{i},"maximum":9223372036854775807}}"#))
            .collect();
        check(&format!(r#"{{"properties":{{{}}},"required":["p7"]}}"#, many.join(",")),
            &[r#"{"p7":7}"#, r#"{"p1":1,"p7":9223372036854775807,"p59":59}"#],
            &[r#"{"p7":6}"#, r#"{"p7":9223372036854775808}"#]);
    }

    #[test]
    fn references_to_any_place_are_checked() {
        check(r##"{"$ref":"#/components/schemas/a","components":{"schemas":{"a":
            {"const":-9223372036854775808}}}}"##, &["-9223372036854775808"], &["0", "1"]);
        assert!(refusal(r##"{"$ref":"#/x","x":{"not":{}}}"##).contains("`not`"));
        assert!(refusal(r##"{"$ref":"#/$defs/none"}"##).contains("#/$defs/none"));
        check(r##"{"$ref":"#/x","x":{"properties":{"p":{"pattern":"^\\d$","type":"string"},
            "q":{"$ref":"#/x/properties/p"}}}}"##, &[r#"{"p":"1","q":"2"}"#], &[r#"{"p":"a"}"#]);
    }

    #[test]
    fn lark_has_the_same_schemas() {
        let lark = |text: &str| matcher(Schemas::of_lark(text, &LIMITS));
        let made = lark(
            "start: \"%json {\" /[\"\\/]%json/ a // %json {\n| %json {\"type\":\"null\"} # %json\n\
             a: %json {\"const\":\n-9223372036854775808} | %json {\"enum\":[9007199254740993]}\n",
        );
        let made = made.unwrap();
        for (text, want) in [
            ("%json {/%json-9223372036854775808", true),
            ("%json {\"%json9007199254740993", true),
            ("%json {\"%json9007199254740992", false),
            ("null", true),
        ] {
            assert_eq!(fits(&made, text), want, "{text}");
        }
        for (text, word) in [
            ("start: %json {\"not\":{}}\n", "`not`"),
            ("start: %json {\"const\":1e5000}\n", "`const`"),
            ("start: %json {\n", "%json"),
            ("start: missing\n", "without a rule"),
            ("start: %json [\n", "%json"),
        ] {
            let why = lark(text).err().unwrap();
            let why = explained("grammar", &why) + &why;
            assert!(why.contains(word), "{text}: {why}");
        }
    }

    #[test]
    fn formats_hold_strings_alone() {
        check(r#"{"type":"string","format":"date"}"#, &["\"2024-02-29\""],
            &["\"2023-02-29\"", "\"0000-01-01\""]);
        check(r#"{"type":"integer","format":"int32"}"#, &["7"], &["\"a\""]);
        check(r#"{"type":"integer","format":"date"}"#, &["7"], &[]);
        check(r#"{"type":"string","format":"password"}"#, &["\"anything\""], &[]);
        check(r#"{"type":["string","null"],"format":"ipv6"}"#, &["\"::ffff:1.2.3.4\"", "null"], &["\"x\""]);
        check(r#"{"type":"string","format":"date","pattern":"^2024"}"#, &["\"2024-01-01\""],
            &["\"2023-01-01\""]);
        let long = format!("\"{}\"", ["a".repeat(60), "b".repeat(60), "c".repeat(60), "d".repeat(60),
            "e".repeat(9)].join("."));
        let longer = long.replace("e\"", "ee\"");
        check(r#"{"type":"string","format":"hostname"}"#, &["\"a.b\"", &long], &[&longer, "\"-a\""]);
    }

    #[test]
    fn patterns_are_those_of_ecma_262() {
        check(r#"{"type":"string","pattern":"^[+--]$"}"#, &["\",\"", "\"+\""], &["\"a\""]);
        check(r#"{"type":"string","pattern":"^.$"}"#, &["\"a\"", "\"\u{85}\""], &["\"\u{2028}\"", "\"\\r\""]);
        check(r#"{"type":"string","pattern":"^\\s$"}"#, &["\"\u{feff}\"", "\" \""], &["\"\u{85}\""]);
        check(r#"{"patternProperties":{"^a/\\d$":{"type":"null"}},"additionalProperties":false,"type":"object"}"#,
            &["{\"a/1\":null}"], &["{\"a/x\":null}"]);
        assert!(refusal(r#"{"pattern":"\\bx"}"#).contains("`pattern`"));
        assert!(refusal(r#"{"pattern":"a^b","type":"string"}"#).contains("`^`"));
    }
}
