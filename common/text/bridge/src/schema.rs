//! A JSON Schema, checked before it is compiled: bounds, the types of keywords,
//! what is not supported, references.

use crate::failure::{Failure, Result};
use crate::grammar::Limits;
use crate::keywords::{Kind, DRAFTS, FORMATS, KEYWORDS, TYPES, UNSUPPORTED};
use crate::references;
use serde_json::{json, Map, Value};
use std::collections::HashSet;

/// White space between JSON tokens is bounded, so that answers end: line feeds
/// with indentation, or a little space.
const WHITE_SPACE: &str = r"\x0A{1,2}[\x20\x09]{0,32}|\x20{1,2}|\x09";

struct Check<'a> {
    limits: &'a Limits,
    num_enum_values: usize,
    path: String,
    one_of: Vec<String>,  // where they are
    // No schema is joined with another one about the same object.
    may_close: bool,
    multiples: HashSet<String>,  // of multipleOf
    multiples_product: f64,      // their digits', as whole numbers
}

const MAX_MULTIPLES: f64 = 1e6;
/// Of one object: the compiler compares each pair of patterns, and lists the
/// properties that are left behind each one.
const MAX_PATTERNS: usize = 32;
const MAX_PROPERTIES: usize = 2_000;

const YEAR_ABOVE_0: &str = "^([1-9][0-9]{3}|[0-9][1-9][0-9]{2}|[0-9]{2}[1-9][0-9]|[0-9]{3}[1-9])-";

/// A checked schema, with the options that all schemas have.
pub struct Checked {
    pub value: Value,
    one_of: Vec<String>,
}

impl Checked {
    /// Names the keyword and its places in a message of the compiler, which has
    /// neither.
    pub fn explain(&self, message: &str) -> Option<String> {
        if message.contains("Pointer '") {
            return Some(format!("`$ref`: {message}"));
        }
        if !message.contains("oneOf") {
            return None;
        }
        let places: Vec<String> =
            self.one_of.iter().take(5).map(|path| format!("\"{}\"", cut(path))).collect();
        Some(format!(
            "`oneOf` at {} is not supported where a value may fit two of its branches; \
             `anyOf` is",
            places.join(", ")
        ))
    }
}

/// Parses and checks a schema.
pub fn checked(text: &str, limits: &Limits) -> Result<Checked> {
    check_levels(text, limits)?;
    let mut value: Value = serde_json::from_str(text)
        .map_err(|e| Failure::invalid(format!("the schema is not JSON: {e}")))?;
    let mut check = Check {
        limits,
        num_enum_values: 0,
        path: String::new(),
        one_of: Vec::new(),
        may_close: true,
        multiples: HashSet::new(),
        multiples_product: 1.0,
    };
    check.schema(&mut value)?;
    references::check(&value)?;
    if check.may_close {
        close_objects(&mut value);
    }
    if value == Value::Bool(true) {
        value = json!({});
    }
    let Value::Object(members) = &mut value else {
        return Err(Failure::invalid("schema: `false` fits no answer"));
    };
    members.insert("x-guidance".to_string(), json!({ "whitespace_pattern": WHITE_SPACE }));
    Ok(Checked { value, one_of: check.one_of })
}

/// Does `work` to each schema directly within `members`.
fn for_each_schema(members: &mut Map<String, Value>, work: &mut impl FnMut(&mut Value)) {
    for (key, item) in members.iter_mut() {
        let kind = KEYWORDS.iter().find(|(name, _)| name == key).map(|(_, kind)| *kind);
        match (kind, item) {
            (Some(Kind::SchemaMap | Kind::PatternMap), Value::Object(all)) => {
                all.values_mut().for_each(&mut *work);
            }
            (Some(Kind::Schemas | Kind::SchemaOrList), Value::Array(all)) => {
                all.iter_mut().for_each(&mut *work);
            }
            (Some(Kind::Schema | Kind::SchemaOrList), item) => work(item),
            _ => {}
        }
    }
}

/// An object whose schema names its properties, and says nothing of others, has
/// these alone: a model that may add members goes on adding them. Each such
/// answer fits the schema.
fn close_objects(value: &mut Value) {
    let Value::Object(members) = value else { return };
    for_each_schema(members, &mut close_objects);
    let Some(Value::Object(named)) = members.get("properties") else { return };
    let is_open = ["additionalProperties", "patternProperties", "minProperties"]
        .iter()
        .any(|key| members.contains_key(*key));
    let is_named = |one: &Value| one.as_str().is_some_and(|name| named.contains_key(name));
    let required = members.get("required").and_then(Value::as_array);
    let names_all = required.is_none_or(|all| all.iter().all(is_named));
    if !is_open && names_all && !named.is_empty() {
        members.insert("additionalProperties".to_string(), Value::Bool(false));
    }
}

/// Counts the nesting of the text, before a parser recurses into it.
fn check_levels(text: &str, limits: &Limits) -> Result<()> {
    let (mut level, mut in_string, mut escaped) = (0u32, false, false);
    for byte in text.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => level += 1,
            b'}' | b']' => level = level.saturating_sub(1),
            _ => {}
        }
        if level > limits.max_levels {
            return Err(Failure::invalid(format!(
                "a schema of more than {} levels of objects and arrays",
                limits.max_levels
            )));
        }
    }
    Ok(())
}

impl Check<'_> {
    fn fail<T>(&self, keyword: &str, what: &str) -> Result<T> {
        let mut path = self.path.as_str();
        if path.len() > 300 {
            let end = (0..=300).rev().find(|at| path.is_char_boundary(*at)).unwrap_or(0);
            path = &path[..end];
        }
        Err(Failure::invalid(format!("schema: `{}` at \"{path}\" {what}", cut(keyword))))
    }

    fn within<T>(&mut self, part: &str, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.path.len();
        self.path.push('/');
        self.path.push_str(&part.replace('~', "~0").replace('/', "~1"));
        let done = work(self);
        if done.is_ok() {
            self.path.truncate(before);
        }
        done
    }

    fn schema(&mut self, value: &mut Value) -> Result<()> {
        let members = match value {
            Value::Bool(_) => return Ok(()),
            Value::Object(members) => members,
            _ => return self.fail("schema", "is not an object or a boolean"),
        };
        let joins = ["$ref", "anyOf", "oneOf"].iter().any(|key| members.contains_key(*key));
        let is_about_members =
            ["properties", "required", "additionalProperties", "patternProperties"]
                .iter()
                .any(|key| members.contains_key(*key));
        if members.contains_key("allOf") || (joins && is_about_members) {
            self.may_close = false;
        }
        if members.contains_key("oneOf") {
            self.one_of.push(self.path.clone());
        }
        // Year 0 is a year of RFC 3339, but of no library that reads dates.
        let is_date = matches!(members.get("format"), Some(Value::String(f)) if f.starts_with("date"));
        if is_date && !members.contains_key("pattern") {
            members.insert("pattern".to_string(), json!(YEAR_ABOVE_0));
        }
        if members.get("uniqueItems") == Some(&Value::Bool(false)) {
            members.shift_remove("uniqueItems");
        }
        for (key, item) in members.iter_mut() {
            if UNSUPPORTED.contains(&key.as_str()) || (key == "uniqueItems" && item.is_boolean()) {
                return self.fail(key, "is not supported");
            }
            if let Some((_, kind)) = KEYWORDS.iter().find(|(name, _)| name == key) {
                let kind = *kind;
                self.within(key, |check| check.keyword(key, kind, item))?;
            }
        }
        Ok(())
    }

    fn keyword(&mut self, key: &str, kind: Kind, item: &mut Value) -> Result<()> {
        match kind {
            Kind::Any => Ok(()),
            Kind::Schema => self.schema(item),
            Kind::SchemaOrList if !item.is_array() => self.schema(item),
            Kind::SchemaOrList | Kind::Schemas => self.schemas(key, item),
            Kind::SchemaMap => self.schema_map(key, item),
            Kind::Text => self.text(key, item),
            Kind::Format => self.format(key, item),
            Kind::Pattern => {
                self.text(key, item)?;
                self.pattern(key, item.as_str().unwrap_or(""))
            }
            Kind::PatternMap => {
                for pattern in item.as_object().into_iter().flat_map(|all| all.keys()) {
                    self.pattern(key, pattern)?;
                }
                self.schema_map(key, item)
            }
            Kind::Flag => self.expect(item.is_boolean(), key, "is not true or false"),
            Kind::Number => self.number(key, item),
            Kind::Count => {
                let count = item.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0);
                self.expect(count.is_some(), key, "is not a whole number of at least 0")?;
                if item.is_f64() {
                    *item = json!(count.unwrap_or(0.0) as u64);
                }
                Ok(())
            }
            Kind::Strings => {
                let strings =
                    item.as_array().is_some_and(|all| all.iter().all(Value::is_string));
                self.expect(strings, key, "is not a list of strings")
            }
            Kind::Enum => self.values(key, item),
            Kind::Types => {
                let known = |v: &Value| v.as_str().is_some_and(|name| TYPES.contains(&name));
                let fine = match item.as_array() {
                    Some(all) => !all.is_empty() && all.iter().all(known),
                    None => known(item),
                };
                self.expect(fine, key, &format!("is not one of {} or a list of them", TYPES.join(", ")))
            }
        }
    }

    fn expect(&self, fine: bool, key: &str, what: &str) -> Result<()> {
        if fine {
            Ok(())
        } else {
            self.fail(key, what)
        }
    }

    fn schemas(&mut self, key: &str, item: &mut Value) -> Result<()> {
        match item {
            Value::Array(all) if !all.is_empty() || matches!(key, "prefixItems" | "items") => {
                for (index, one) in all.iter_mut().enumerate() {
                    self.within(&index.to_string(), |check| check.schema(one))?;
                }
                Ok(())
            }
            _ => self.fail(key, "is not a list of schemas"),
        }
    }

    fn schema_map(&mut self, key: &str, item: &mut Value) -> Result<()> {
        let Value::Object(all) = item else {
            return self.fail(key, "is not an object of schemas");
        };
        let most = match key {
            "patternProperties" => MAX_PATTERNS,
            "properties" => MAX_PROPERTIES,
            _ => usize::MAX,
        };
        if all.len() > most {
            return self.fail(key, &format!("has {} members; the limit is {most}", all.len()));
        }
        for (name, one) in all.iter_mut() {
            self.within(name, |check| check.schema(one))?;
        }
        Ok(())
    }

    fn text(&mut self, key: &str, item: &Value) -> Result<()> {
        let Some(text) = item.as_str() else {
            return self.fail(key, "is not a string");
        };
        if key == "$ref" && !text.starts_with('#') {
            return self.fail(key, &format!("points outside the schema: {}", cut(text)));
        }
        if key == "$schema" && !DRAFTS.iter().any(|draft| text.contains(draft)) {
            return self.fail(key, &format!("is none of {}", DRAFTS.join(", ")));
        }
        Ok(())
    }

    /// `format` holds a string to its form, or is refused.
    fn format(&self, key: &str, item: &Value) -> Result<()> {
        match item.as_str() {
            None => self.fail(key, "is not a string"),
            Some(name) if FORMATS.contains(&name) => Ok(()),
            Some(name) => self.fail(
                key,
                &format!("\"{}\" is not supported; supported are {}", cut(name), FORMATS.join(", ")),
            ),
        }
    }

    /// A pattern is a regular expression without look-around.
    fn pattern(&self, key: &str, pattern: &str) -> Result<()> {
        match regex_syntax::parse(pattern) {
            Ok(_) => Ok(()),
            Err(error) => {
                let why = match &error {
                    regex_syntax::Error::Parse(parse) => parse.kind().to_string(),
                    regex_syntax::Error::Translate(translate) => translate.kind().to_string(),
                    _ => error.to_string(),
                };
                self.fail(key, &format!("is not supported: \"{}\": {why}", cut(pattern)))
            }
        }
    }

    fn number(&mut self, key: &str, item: &Value) -> Result<()> {
        let Some(number) = item.as_f64() else {
            return self.fail(key, "is not a number");
        };
        if key != "multipleOf" {
            return Ok(());
        }
        self.expect(number > 0.0, key, "is not above 0")?;
        // Multiples of several numbers take states for their product.
        let text = item.to_string();
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        if self.multiples.insert(text) {
            self.multiples_product *= digits.parse::<f64>().unwrap_or(f64::MAX).max(1.0);
        }
        self.expect(self.multiples_product <= MAX_MULTIPLES, key, "is beyond a million, \
            with the others of the schema multiplied")
    }

    fn values(&mut self, key: &str, item: &Value) -> Result<()> {
        let Some(all) = item.as_array().filter(|all| !all.is_empty()) else {
            return self.fail(key, "is not a list of values");
        };
        self.num_enum_values += all.len();
        let limit = self.limits.max_enum_values as usize;
        if self.num_enum_values > limit {
            return self.fail(key, &format!("is beyond {limit} values of all enums together"));
        }
        Ok(())
    }
}

pub fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}
