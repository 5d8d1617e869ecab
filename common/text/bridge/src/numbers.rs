//! The numbers of a schema, held to the digit. The compiler of schemas keeps
//! them as doubles, so it sees none: each set of numbers is a `multipleOf` of a
//! prime, and the expression of that prime's multiples is replaced by the set's.

use crate::decimal::Decimal;
use crate::exact_json::decimal;
use crate::multiple::Multiple;
use crate::number_range::{self, Bound, Ends};
use crate::schema::for_each_schema;
use llguidance::derivre::RegexAst;
use serde_json::{json, Map, Value};
use std::collections::HashSet;

pub const INTEGER: &str = "-?(0|[1-9][0-9]*)";
pub const NUMBER: &str = "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?";

/// A set of numbers that a schema allows.
#[derive(Clone, Debug, PartialEq)]
pub enum Allowed {
    Values(Vec<Decimal>),
    Range { low: Option<Bound>, high: Option<Bound>, multiple: Option<Multiple>, is_integer: bool },
}

impl Allowed {
    fn contains(&self, value: &Decimal) -> bool {
        match self {
            Self::Values(all) => all.contains(value),
            Self::Range { low, high, multiple, is_integer } => {
                let is_fine = |bound: &Option<Bound>, order: std::cmp::Ordering| {
                    bound.as_ref().is_none_or(|bound| {
                        let found = value.cmp(&bound.value);
                        found == order || (found.is_eq() && bound.is_inclusive)
                    })
                };
                is_fine(low, std::cmp::Ordering::Greater)
                    && is_fine(high, std::cmp::Ordering::Less)
                    && multiple.is_none_or(|multiple| multiple.divides(value))
                    && (!is_integer || value.is_integer())
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Values(all) => all.is_empty(),
            Self::Range { low, high, multiple, is_integer } => {
                let ends = (low.as_ref(), high.as_ref());
                if range(ends, *is_integer).is_none() {
                    return true;
                }
                multiple.is_some_and(|one| {
                    let one = if *is_integer { one.whole() } else { one };
                    !one.is_between(ends)
                })
            }
        }
    }

    pub fn has_integers_alone(&self) -> bool {
        match self {
            Self::Values(all) => all.iter().all(Decimal::is_integer),
            Self::Range { is_integer, .. } => *is_integer,
        }
    }

    fn is_any(&self) -> bool {
        matches!(self, Self::Range { low: None, high: None, multiple: None, .. })
    }

    /// The texts of the numbers.
    pub fn expression(&self) -> RegexAst {
        match self {
            Self::Values(all) => {
                let texts: Vec<String> =
                    all.iter().map(|value| value.text().replace('.', "[.]")).collect();
                RegexAst::Regex(format!("(?:{})", texts.join("|")))
            }
            Self::Range { low, high, multiple, is_integer } => {
                let text = range((low.as_ref(), high.as_ref()), *is_integer);
                let all = text.map_or(RegexAst::NoMatch, RegexAst::Regex);
                match multiple {
                    Some(one) => RegexAst::And(vec![all, signed_multiple(one.digits, one.scale)]),
                    None => all,
                }
            }
        }
    }
}

fn range(ends: Ends, is_integer: bool) -> Option<String> {
    match (ends, is_integer) {
        ((None, None), true) => Some(INTEGER.to_string()),
        ((None, None), false) => Some(NUMBER.to_string()),
        (_, true) => number_range::integers(ends),
        (_, false) => number_range::numbers(ends),
    }
}

/// As the compiler writes the multiples of a number.
pub fn signed_multiple(digits: u32, scale: u32) -> RegexAst {
    RegexAst::Concat(vec![RegexAst::Regex("-?".to_string()), RegexAst::MultipleOf(digits, scale)])
}

/// A set of numbers, and whether it may meet another one in one number.
pub struct Tag {
    pub allowed: Allowed,
    pub is_joined: bool,
}

/// The sets of numbers of one grammar.
#[derive(Default)]
pub struct Tags {
    pub all: Vec<Tag>,
}

/// Of those that may meet: the compiler multiplies two products of these, in 32
/// bits.
const MAX_JOINED_PRODUCT: u64 = 1 << 16;

impl Tags {
    fn add(&mut self, allowed: Allowed, is_joined: bool) -> Value {
        let found = self.all.iter().position(|tag| tag.allowed == allowed);
        let at = found.unwrap_or(self.all.len());
        match found {
            Some(at) => self.all[at].is_joined |= is_joined,
            None => self.all.push(Tag { allowed, is_joined }),
        }
        json!([null, at])
    }

    /// The prime of each set; None where too many of them may meet.
    pub fn primes(&self) -> Option<Vec<u32>> {
        let mut next = 1;
        let mut primes = vec![0; self.all.len()];
        let mut product = 1;
        for is_joined in [true, false] {
            for (tag, prime) in self.all.iter().zip(&mut primes) {
                if tag.is_joined == is_joined {
                    next = prime_behind(next);
                    *prime = next;
                    product *= if is_joined { u64::from(next) } else { 1 };
                    if product >= MAX_JOINED_PRODUCT {
                        return None;
                    }
                }
            }
        }
        Some(primes)
    }
}

fn prime_behind(number: u32) -> u32 {
    let is_prime = |n: u32| (2..).take_while(|by| by * by <= n).all(|by| n % by != 0);
    (number + 1..).find(|n| is_prime(*n)).unwrap_or(u32::MAX)
}

pub const RANGE_KEYWORDS: [&str; 5] =
    ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
const ANNOTATIONS: [&str; 12] = [
    "title", "description", "default", "examples", "$comment", "deprecated", "readOnly",
    "writeOnly", "$defs", "definitions", "$schema", "$id",
];

/// Replaces the numbers of a checked schema.
pub struct Holder<'a> {
    pub numbers: &'a [String],
    pub tags: &'a mut Tags,
    /// A reference leads from schemas that meet to all others.
    pub joins_all: bool,
}

impl Holder<'_> {
    pub fn hold(&mut self, value: &mut Value, is_joined: bool) {
        let Value::Object(members) = value else { return };
        let is_joined = is_joined || joins(members) || self.joins_all;
        for_each_schema(members, &mut |one| self.hold(one, is_joined));
        if !self.hold_members(members, is_joined) {
            *value = Value::Bool(false);
        }
    }

    /// Returns whether a value may fit.
    fn hold_members(&mut self, members: &mut Map<String, Value>, is_joined: bool) -> bool {
        let types = types_of(members);
        let allows = |name: &str| types.as_ref().is_none_or(|all| all.iter().any(|t| t == name));
        let is_integer = !allows("number");
        let has_numbers = !is_integer || allows("integer");
        let allowed = self.range(members, is_integer);
        for key in RANGE_KEYWORDS {
            members.shift_remove(key);
        }
        if members.contains_key("const") || members.contains_key("enum") {
            let allowed = has_numbers.then_some(allowed);
            return self.hold_values(members, types.as_deref(), allowed, is_joined);
        }
        if !has_numbers || allowed.is_any() {
            return true;
        }
        if !allowed.is_empty() {
            members.insert("multipleOf".to_string(), self.tags.add(allowed, is_joined));
            return true;
        }
        let others: Vec<&str> = ["null", "boolean", "string", "array", "object"]
            .into_iter()
            .filter(|name| allows(name))
            .collect();
        members.insert("type".to_string(), json!(others));
        !others.is_empty()
    }

    fn range(&self, members: &Map<String, Value>, is_integer: bool) -> Allowed {
        let number = |key: &str| {
            members.get(key).and_then(|item| decimal(item, self.numbers)).and_then(Result::ok)
        };
        let bound = |inclusive: &str, exclusive: &str, is_lower: bool| {
            let inclusive = number(inclusive).map(|value| Bound { value, is_inclusive: true });
            let exclusive = number(exclusive).map(|value| Bound { value, is_inclusive: false });
            match (inclusive, exclusive) {
                (Some(one), Some(other)) => {
                    let is_within = if is_lower { one.value > other.value } else { one.value < other.value };
                    Some(if is_within { one } else { other })
                }
                (one, other) => one.or(other),
            }
        };
        Allowed::Range {
            low: bound("minimum", "exclusiveMinimum", true),
            high: bound("maximum", "exclusiveMaximum", false),
            multiple: number("multipleOf").and_then(|value| Multiple::of(&value)),
            is_integer,
        }
    }

    /// Numbers among the values of `const` and `enum` become a set, lists and
    /// objects with numbers become schemas.
    fn hold_values(
        &mut self,
        members: &mut Map<String, Value>,
        types: Option<&[String]>,
        allowed: Option<Allowed>,
        is_joined: bool,
    ) -> bool {
        let constant = members.shift_remove("const");
        let listed = match members.shift_remove("enum") {
            Some(Value::Array(all)) => Some(all),
            _ => None,
        };
        let values = match (constant, listed) {
            (Some(one), Some(all)) => {
                let found = all.iter().any(|other| self.is_equal(&one, other));
                if found { vec![one] } else { Vec::new() }
            }
            (Some(one), None) => vec![one],
            (None, all) => all.unwrap_or_default(),
        };
        let fits = |name: &str| types.is_none_or(|all| all.iter().any(|one| one == name));
        let (mut numbers, mut others, mut options) = (Vec::new(), Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for value in values {
            match &value {
                Value::Number(_) => {
                    let number = decimal(&value, self.numbers).and_then(Result::ok);
                    let number = number.filter(|number| {
                        allowed.as_ref().is_some_and(|all| all.contains(number))
                    });
                    numbers.extend(number.filter(|number| seen.insert(number.clone())));
                }
                Value::Array(_) if !fits("array") => {}
                Value::Object(_) if !fits("object") => {}
                Value::Array(_) | Value::Object(_) if has_number(&value) => {
                    options.push(self.schema_of(&value, is_joined));
                }
                _ => others.push(value),
            }
        }
        if options.is_empty() && numbers.is_empty() {
            members.insert("enum".to_string(), Value::Array(others));
            return members["enum"] != json!([]);
        }
        members.shift_remove("type");
        if options.is_empty() && others.is_empty() {
            members.insert("type".to_string(), json!("number"));
            let set = Allowed::Values(numbers);
            members.insert("multipleOf".to_string(), self.tags.add(set, is_joined));
            return true;
        }
        if !numbers.is_empty() {
            let set = self.tags.add(Allowed::Values(numbers), is_joined);
            options.push(json!({ "type": "number", "multipleOf": set }));
        }
        if !others.is_empty() {
            let mut rest = json!({ "enum": others });
            if let (Some(types), Value::Object(rest)) = (types, &mut rest) {
                let plain = types.iter().filter(|name| !matches!(name.as_str(), "number" | "integer"));
                rest.insert("type".to_string(), json!(plain.collect::<Vec<_>>()));
            }
            options.push(rest);
        }
        if !members.contains_key("anyOf") {
            members.insert("anyOf".to_string(), Value::Array(options));
            return true;
        }
        let all = members.entry("allOf").or_insert_with(|| json!([]));
        if let Value::Array(all) = all {
            all.push(json!({ "anyOf": options }));
        }
        true
    }

    fn is_equal(&self, left: &Value, right: &Value) -> bool {
        match (left, right) {
            (Value::Number(_), Value::Number(_)) => {
                let number = |value| decimal(value, self.numbers).and_then(Result::ok);
                number(left) == number(right)
            }
            (Value::Array(left), Value::Array(right)) => {
                left.len() == right.len()
                    && left.iter().zip(right).all(|(left, right)| self.is_equal(left, right))
            }
            (Value::Object(left), Value::Object(right)) => {
                left.len() == right.len()
                    && left.iter().all(|(name, one)| {
                        right.get(name).is_some_and(|other| self.is_equal(one, other))
                    })
            }
            _ => left == right,
        }
    }

    /// A schema that `value` alone fits, whatever the draft.
    fn schema_of(&mut self, value: &Value, is_joined: bool) -> Value {
        match value {
            Value::Number(_) => {
                let number = decimal(value, self.numbers).and_then(Result::ok);
                let set = Allowed::Values(number.into_iter().collect());
                json!({ "type": "number", "multipleOf": self.tags.add(set, is_joined) })
            }
            Value::Array(items) => {
                let schemas: Vec<Value> =
                    items.iter().map(|item| self.schema_of(item, is_joined)).collect();
                let size = schemas.len();
                json!({ "type": "array", "items": schemas, "additionalItems": false,
                        "minItems": size, "maxItems": size })
            }
            Value::Object(members) => {
                let names: Vec<&String> = members.keys().collect();
                let mut schemas = Map::new();
                for (name, item) in members {
                    schemas.insert(name.clone(), self.schema_of(item, is_joined));
                }
                json!({ "type": "object", "required": names, "properties": schemas,
                        "additionalProperties": false })
            }
            other => json!({ "enum": [other] }),
        }
    }
}

fn has_number(value: &Value) -> bool {
    match value {
        Value::Number(_) => true,
        Value::Array(items) => items.iter().any(has_number),
        Value::Object(members) => members.values().any(has_number),
        _ => false,
    }
}

fn types_of(members: &Map<String, Value>) -> Option<Vec<String>> {
    match members.get("type") {
        Some(Value::String(name)) => Some(vec![name.clone()]),
        Some(Value::Array(all)) => {
            Some(all.iter().filter_map(Value::as_str).map(str::to_string).collect())
        }
        _ => None,
    }
}

/// Whether the compiler intersects schemas of `members`: then two sets of
/// numbers may meet in one.
pub fn joins(members: &Map<String, Value>) -> bool {
    const APPLIED: [&str; 4] = ["allOf", "anyOf", "oneOf", "$ref"];
    let mut num_parts = APPLIED.iter().filter(|key| members.contains_key(**key)).count();
    if members.get("allOf").and_then(Value::as_array).is_some_and(|all| all.len() > 1) {
        num_parts += 1;
    }
    let is_plain = |key: &&String| {
        !APPLIED.contains(&key.as_str()) && !ANNOTATIONS.contains(&key.as_str())
    };
    num_parts += usize::from(members.keys().any(|key| is_plain(&key)));
    const NESTED: [&str; 6] = [
        "items", "additionalItems", "prefixItems", "properties", "additionalProperties", "required",
    ];
    let has_values = members.contains_key("const") || members.contains_key("enum");
    num_parts > 1
        || members.contains_key("patternProperties")
        || (has_values && NESTED.iter().any(|key| members.contains_key(*key)))
}

/// Whether a reference leads on from schemas that meet.
pub fn joins_references(value: &mut Value, is_joined: bool) -> bool {
    let Value::Object(members) = value else { return false };
    let is_joined = is_joined || joins(members);
    let mut found = is_joined && members.contains_key("$ref");
    for_each_schema(members, &mut |one| found |= joins_references(one, is_joined));
    found
}

/// Replaces the marks of sets by their primes.
pub fn write_primes(value: &mut Value, primes: &[u32]) {
    match value {
        Value::Object(members) => {
            for (key, item) in members.iter_mut() {
                if key == "multipleOf" {
                    if let Some([Value::Null, at]) = item.as_array().map(Vec::as_slice) {
                        let at = at.as_u64().unwrap_or(u64::MAX) as usize;
                        *item = json!(primes.get(at).copied().unwrap_or(1));
                        continue;
                    }
                }
                write_primes(item, primes);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| write_primes(item, primes)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_sets_have_the_least_primes() {
        let mut tags = Tags::default();
        for digits in 0..300 {
            let set = Allowed::Values(vec![Decimal::whole_number(&digits.to_string())]);
            tags.add(set, (290..296).contains(&digits));
        }
        let primes = tags.primes().unwrap();
        assert_eq!(primes[290..296], [2, 3, 5, 7, 11, 13]);
        assert_eq!(primes[0], 17);
        tags.all[0].is_joined = true;
        assert!(tags.primes().is_none());
    }
}
