//! A JSON Schema, checked before it is compiled: bounds, the types of keywords,
//! what is not supported, references.

use crate::exact_json::ExactJson;
use crate::failure::{Failure, Result};
use crate::formats;
use crate::grammar::Limits;
use crate::keywords::{Kind, DRAFTS, KEYWORDS, TYPES, UNSUPPORTED};
use crate::pattern_cost;
use crate::references;
use serde_json::{json, Map, Value};
use std::collections::HashSet;

/// White space between JSON tokens is bounded, so that answers end: line feeds
/// with indentation, or a little space.
const WHITE_SPACE: &str = r"\x0A{1,2}[\x20\x09]{0,32}|\x20{1,2}|\x09";

pub struct Check<'a> {
    limits: &'a Limits,
    pub numbers: &'a [String],
    num_enum_values: usize,
    path: String,
    one_of: Vec<String>,  // where they are
    // No schema is joined with another one about the same object.
    may_close: bool,
    pub multiples: HashSet<String>,  // of multipleOf
    pub multiples_product: f64,      // their digits', as whole numbers
    checked: HashSet<String>,    // paths of schemas
    references: Vec<String>,     // the paths that they name
    again: HashSet<String>,      // paths that two walks reach
    has_ids: bool,               // within the root, from which pointers may lead
}

/// Of one object: the compiler compares each pair of patterns, and lists the
/// properties that are left behind each one.
const MAX_PATTERNS: usize = 32;
const MAX_PROPERTIES: usize = 2_000;

/// A checked schema, with the options that all schemas have.
pub struct Checked {
    /// Its numbers are places in `numbers`, but for counts.
    pub value: Value,
    pub numbers: Vec<String>,
    /// As the client wrote it.
    pub text: String,
    /// Schemas at places that no keyword makes schemas, but references do.
    others: Vec<String>,
    one_of: Vec<String>,
}

impl Checked {
    /// Does `work` to each schema that no other schema has within.
    pub fn for_each_root(&mut self, mut work: impl FnMut(&mut Value)) {
        work(&mut self.value);
        for path in &self.others {
            if let Some(value) = self.value.pointer_mut(path) {
                work(value);
            }
        }
    }

    /// Names the keyword and its places in a message of the compiler, which has
    /// neither.
    pub fn explain(&self, message: &str) -> Option<String> {
        if !message.contains("oneOf") {
            return None;
        }
        let places: Vec<String> =
            self.one_of.iter().take(5).map(|path| format!("\"{}\"", cut(path))).collect();
        Some(format!(
            "schema: `oneOf` at {} is not supported where a value may fit two of its branches; \
             `anyOf` is",
            places.join(", ")
        ))
    }
}

/// Parses and checks a schema.
pub fn checked(text: &str, limits: &Limits) -> Result<Checked> {
    check_levels(text, limits)?;
    let mut json = ExactJson::parse(text, "the schema")?;
    let text = json.text();
    let mut check = Check {
        limits,
        numbers: &json.numbers,
        num_enum_values: 0,
        path: String::new(),
        one_of: Vec::new(),
        may_close: true,
        multiples: HashSet::new(),
        multiples_product: 1.0,
        checked: HashSet::new(),
        references: Vec::new(),
        again: HashSet::new(),
        has_ids: false,
    };
    check.schema(&mut json.value)?;
    let others = check.referred(&mut json.value)?;
    let (may_close, one_of) = (check.may_close, check.one_of);
    references::check(&json.value)?;
    if json.value == Value::Bool(true) {
        json.value = json!({});
    }
    let Value::Object(members) = &mut json.value else {
        return Err(Failure::invalid("schema: `false` fits no answer"));
    };
    members.insert("x-guidance".to_string(), json!({ "whitespace_pattern": WHITE_SPACE }));
    let (value, numbers) = (json.value, json.numbers);
    let mut checked = Checked { value, numbers, text, others, one_of };
    if may_close {
        checked.for_each_root(close_objects);
    }
    match pattern_cost::objection_to_schema(&checked.value) {
        Some(why) => Err(Failure::invalid(format!("schema: {why}"))),
        None => Ok(checked),
    }
}

/// Does `work` to each schema directly within `members`.
pub fn for_each_schema(members: &mut Map<String, Value>, work: &mut impl FnMut(&mut Value)) {
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
    pub fn fail<T>(&self, keyword: &str, what: &str) -> Result<T> {
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

    /// Checks schemas that references name at places of no schema, and returns
    /// the places. No other place is left to refer to.
    fn referred(&mut self, root: &mut Value) -> Result<Vec<String>> {
        let mut others = Vec::new();
        while let Some(path) = self.references.pop() {
            if self.checked.contains(&path) {
                continue;
            }
            match root.pointer_mut(&path) {
                Some(value) => {
                    self.path = path.clone();
                    self.schema(value)?;
                    others.push(path);
                }
                None if path.starts_with('/') && !self.has_ids => {
                    return self.fail("$ref", &format!("leads nowhere: #{}", cut(&path)));
                }
                None => {}
            }
        }
        others.retain(|path| !self.again.contains(path));
        Ok(others)
    }

    fn schema(&mut self, value: &mut Value) -> Result<()> {
        if !self.checked.insert(self.path.clone()) {
            self.again.insert(self.path.clone());
            return Ok(());
        }
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
        let is_root = self.path.is_empty();
        self.has_ids |= !is_root && ["$id", "id"].iter().any(|key| members.contains_key(*key));
        if members.contains_key("oneOf") {
            self.one_of.push(self.path.clone());
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
        hold_format(members);
        members.retain(|key, item| !(key.starts_with("max") && is_dropped(item)));
        Ok(())
    }

    fn keyword(&mut self, key: &str, kind: Kind, item: &mut Value) -> Result<()> {
        match kind {
            Kind::Any => Ok(()),
            Kind::Const => self.exact(key, item),
            Kind::Schema => self.schema(item),
            Kind::SchemaOrList if !item.is_array() => self.schema(item),
            Kind::SchemaOrList | Kind::Schemas => self.schemas(key, item),
            Kind::SchemaMap => self.schema_map(key, item),
            Kind::Text | Kind::Format => self.text(key, item),
            Kind::Pattern => {
                self.text(key, item)?;
                *item = Value::String(self.pattern(key, item.as_str().unwrap_or(""))?);
                Ok(())
            }
            Kind::PatternMap => self.pattern_map(key, item),
            Kind::Flag => self.expect(item.is_boolean(), key, "is not true or false"),
            Kind::Number => self.number(key, item),
            Kind::Count => self.count(key, item),
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

    pub fn expect(&self, fine: bool, key: &str, what: &str) -> Result<()> {
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

    pub fn schema_map(&mut self, key: &str, item: &mut Value) -> Result<()> {
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
        if key == "$ref" {
            let Some(pointer) = text.strip_prefix('#') else {
                return self.fail(key, &format!("points outside the schema: {}", cut(text)));
            };
            let plain = percent_encoding::percent_decode_str(pointer).decode_utf8_lossy();
            self.references.push(plain.into_owned());
        }
        if key == "$schema" && !DRAFTS.iter().any(|draft| text.contains(draft)) {
            return self.fail(key, &format!("is none of {}", DRAFTS.join(", ")));
        }
        Ok(())
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
        self.exact(key, item)
    }
}

/// Stands for a keyword that binds nothing.
pub fn dropped() -> Value {
    json!([null, "dropped"])
}

fn is_dropped(item: &Value) -> bool {
    item.get(0) == Some(&Value::Null) && item.get(1).is_some_and(|one| one == "dropped")
}

/// Strings are held to a known format by a pattern.
fn hold_format(members: &mut Map<String, Value>) {
    let Some(Value::String(name)) = members.shift_remove("format") else { return };
    let Some(format) = formats::format(&name) else { return };
    if let Some(most) = format.max_length {
        let set = members.get("maxLength").and_then(Value::as_u64).unwrap_or(most);
        members.insert("maxLength".to_string(), json!(most.min(set)));
    }
    let pattern = Value::String(format.pattern);
    if !members.contains_key("pattern") {
        members.insert("pattern".to_string(), pattern);
        return;
    }
    let all = members.entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(all) = all {
        all.push(json!({ "type": "string", "pattern": pattern }));
    }
}

pub fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}
