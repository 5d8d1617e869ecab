//! The references of a JSON Schema.

use crate::failure::{Failure, Result};
use crate::schema::cut;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Refuses a schema that refers to itself with nothing between: no answer would
/// ever begin.
pub fn check(root: &Value) -> Result<()> {
    check_within(root, root, &mut Fine::new())
}

fn check_within<'a>(root: &'a Value, value: &'a Value, fine: &mut Fine<'a>) -> Result<()> {
    match value {
        Value::Object(members) => {
            follow(root, members, &mut Vec::new(), fine)?;
            for (key, item) in members {
                if !matches!(key.as_str(), "const" | "enum" | "default" | "examples") {
                    check_within(root, item, fine)?;
                }
            }
            Ok(())
        }
        Value::Array(items) => items.iter().try_for_each(|item| check_within(root, item, fine)),
        _ => Ok(()),
    }
}

/// References that lead to no circle.
type Fine<'a> = HashSet<&'a str>;

/// Follows references, and the schemas that stand at the same place.
fn follow<'a>(
    root: &'a Value,
    members: &'a Map<String, Value>,
    path: &mut Vec<&'a str>,
    fine: &mut Fine<'a>,
) -> Result<()> {
    if let Some(Value::String(target)) = members.get("$ref") {
        if path.contains(&target.as_str()) {
            return Err(Failure::invalid(format!(
                "schema: `$ref` to \"{}\" leads to itself with nothing between",
                cut(target)
            )));
        }
        let next = if fine.contains(target.as_str()) { None } else { resolve(root, target) };
        if let Some(Value::Object(next)) = next {
            path.push(target);
            follow(root, next, path, fine)?;
            path.pop();
            fine.insert(target);
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        let Some(Value::Array(all)) = members.get(key) else { continue };
        for one in all {
            if let Value::Object(next) = one {
                follow(root, next, path, fine)?;
            }
        }
    }
    Ok(())
}

fn resolve<'a>(root: &'a Value, target: &str) -> Option<&'a Value> {
    let pointer = target.strip_prefix('#')?;
    let plain = percent_encoding::percent_decode_str(pointer).decode_utf8().ok()?;
    root.pointer(&plain)
}
