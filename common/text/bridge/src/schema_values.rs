//! The numbers, counts and patterns of a schema, checked.

use crate::decimal::Decimal;
use crate::ecma_pattern;
use crate::exact_json::{decimal, number_text};
use crate::failure::Result;
use crate::multiple::{Multiple, MAX_MULTIPLE, MAX_MULTIPLE_SCALE};
use crate::schema::{cut, dropped, Check};
use llguidance::derivre::RegexBuilder;
use serde_json::{json, Map, Value};

const MAX_MULTIPLES: f64 = MAX_MULTIPLE as f64;

impl Check<'_> {
    /// A pattern is a regular expression of ECMA-262 without look-around; this
    /// returns it as the compiler writes it.
    pub fn pattern(&self, key: &str, pattern: &str) -> Result<String> {
        let refuse = |why: &str| {
            self.fail(key, &format!("is not supported: \"{}\" {why}", cut(pattern)))
        };
        match ecma_pattern::translated(pattern) {
            Err(why) => refuse(&why),
            Ok(text) => match RegexBuilder::new().mk_regex_for_serach(&text) {
                Ok(_) => Ok(text),
                Err(_) if pattern.contains(['^', '$']) => {
                    refuse("has `^` or `$` within, or is too large")
                }
                Err(_) => refuse("is too large"),
            },
        }
    }

    pub fn pattern_map(&mut self, key: &str, item: &mut Value) -> Result<()> {
        self.schema_map(key, item)?;
        let Value::Object(all) = item else { return Ok(()) };
        let mut translated = Map::new();
        for (pattern, one) in std::mem::take(all) {
            if translated.insert(self.pattern(key, &pattern)?, one).is_some() {
                return self.fail(key, &format!("has \"{}\" twice", cut(&pattern)));
            }
        }
        *all = translated;
        Ok(())
    }

    /// A count becomes a number again. No answer is so long that a limit beyond
    /// 32 bits would bind it.
    pub fn count(&self, key: &str, item: &mut Value) -> Result<()> {
        let count = decimal(item, self.numbers).and_then(std::result::Result::ok);
        let Some(count) = count.filter(|n| !n.is_negative && n.is_integer()) else {
            return self.fail(key, "is not a whole number of at least 0");
        };
        match count.whole.parse::<u32>() {
            Ok(number) => *item = json!(number),
            Err(_) if key.starts_with("max") => *item = dropped(),
            Err(_) => return self.fail(key, &format!("is beyond {}", u32::MAX)),
        }
        Ok(())
    }

    /// All numbers of a value have digits that can be kept.
    pub fn exact(&self, key: &str, item: &Value) -> Result<()> {
        match item {
            Value::Number(_) => self.number_of(key, item).map(|_| ()),
            Value::Array(items) => items.iter().try_for_each(|one| self.exact(key, one)),
            Value::Object(members) => members.values().try_for_each(|one| self.exact(key, one)),
            _ => Ok(()),
        }
    }

    fn number_of(&self, key: &str, item: &Value) -> Result<Decimal> {
        match decimal(item, self.numbers) {
            None => self.fail(key, "is not a number"),
            Some(Err(why)) => self.fail(key, &why),
            Some(Ok(number)) => Ok(number),
        }
    }

    pub fn number(&mut self, key: &str, item: &Value) -> Result<()> {
        let number = self.number_of(key, item)?;
        if key != "multipleOf" {
            return Ok(());
        }
        self.expect(!number.is_negative && !number.is_zero(), key, "is not above 0")?;
        let Some(multiple) = Multiple::of(&number) else {
            return self.fail(key, &format!(
                "is {}, of more than {MAX_MULTIPLE} as a whole number, or more than \
                 {MAX_MULTIPLE_SCALE} digits behind its point",
                cut(number_text(item, self.numbers).unwrap_or(""))
            ));
        };
        // Multiples of several numbers take states for their product.
        if self.multiples.insert(number.text()) {
            self.multiples_product *= f64::from(multiple.digits);
        }
        self.expect(self.multiples_product <= MAX_MULTIPLES, key, "is beyond a million, \
            with the others of the schema multiplied")
    }
}
