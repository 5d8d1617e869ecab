//! Values as Python shows them: `json.dumps(ensure_ascii=False)` for tojson,
//! and `str()` for what a template writes out.

use crate::pyobjects::{is_namespace, Range, Tuple};
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt::Write;

const MAX_DEPTH: usize = 128;

/// How json.dumps lays a value out.
pub struct Layout {
    pub indent: Option<String>,
    pub item: String,
    pub key: String,
    pub sort_keys: bool,
    pub ensure_ascii: bool,
}

pub fn dumps(value: &Value, layout: &Layout) -> Result<String, Error> {
    let mut out = String::new();
    dump(value, layout, 0, &mut out)?;
    Ok(out)
}

fn dump(value: &Value, layout: &Layout, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: nested too deeply"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => quote(value.as_str().unwrap_or_default(), layout.ensure_ascii, out),
        ValueKind::Map => return dump_map(value, layout, depth, out),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            if items.is_empty() {
                out.push_str("[]");
                return Ok(());
            }
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                separate(i, layout, depth + 1, out);
                dump(item, layout, depth + 1, out)?;
            }
            close(layout, depth, out);
            out.push(']');
        }
        kind => {
            return Err(Error::new(
                ErrorKind::BadSerialization,
                format!("tojson: {kind} is not JSON serializable"),
            ))
        }
    }
    Ok(())
}

fn dump_map(value: &Value, layout: &Layout, depth: usize, out: &mut String) -> Result<(), Error> {
    let mut keys: Vec<Value> = value.try_iter()?.collect();
    if layout.sort_keys {
        keys.sort_by_key(|k| k.to_string());
    }
    if keys.is_empty() {
        out.push_str("{}");
        return Ok(());
    }
    out.push('{');
    for (i, key) in keys.iter().enumerate() {
        separate(i, layout, depth + 1, out);
        match key.as_str() {
            Some(text) => quote(text, layout.ensure_ascii, out),
            None => {
                out.push('"');
                dump(key, layout, depth + 1, out)?;
                out.push('"');
            }
        }
        out.push_str(&layout.key);
        dump(&value.get_item(key)?, layout, depth + 1, out)?;
    }
    close(layout, depth, out);
    out.push('}');
    Ok(())
}

fn separate(i: usize, layout: &Layout, depth: usize, out: &mut String) {
    if i > 0 {
        out.push_str(&layout.item);
    }
    newline(layout, depth, out);
}

fn close(layout: &Layout, depth: usize, out: &mut String) {
    newline(layout, depth, out);
}

fn newline(layout: &Layout, depth: usize, out: &mut String) {
    if let Some(indent) = &layout.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn quote(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => write!(out, "\\u{:04x}", c as u32).expect("to a string"),
            c if ensure_ascii && !c.is_ascii() => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}").expect("to a string");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A number as Python's repr() writes it.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(x) = f64::try_from(value.clone()) else { return value.to_string() };
    if x.is_nan() {
        return "NaN".to_string();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.to_string();
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').expect("format of {:e}");
    let exponent: i32 = exponent.parse().expect("format of {:e}");
    if (-4..16).contains(&exponent) {
        let plain = format!("{x}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// str(value), as `{{ value }}` writes it.
pub fn text(value: &Value, out: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::String => out.push_str(value.as_str().unwrap_or_default()),
        _ => repr(value, 0, out)?,
    }
    Ok(())
}

/// repr(value).
pub fn representation(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    repr(value, 0, &mut out)?;
    Ok(out)
}

pub fn repr_tuple(items: &[Value], depth: usize, out: &mut String) -> Result<(), Error> {
    out.push('(');
    for (i, item) in items.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        repr(item, depth + 1, out)?;
    }
    out.push_str(if items.len() == 1 { ",)" } else { ")" });
    Ok(())
}

fn repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "value nested too deeply"));
    }
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => repr_string(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            if let Some(tuple) = value.downcast_object_ref::<Tuple>() {
                return repr_tuple(&tuple.0, depth, out);
            }
            if value.downcast_object_ref::<Range>().is_some() {
                write!(out, "{value}").expect("to a string");
                return Ok(());
            }
            out.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(&item, depth + 1, out)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            let is_namespace = is_namespace(value);
            out.push_str(if is_namespace { "<Namespace {" } else { "{" });
            for (i, key) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(&key, depth + 1, out)?;
                out.push_str(": ");
                repr(&value.get_item(&key)?, depth + 1, out)?;
            }
            out.push_str(if is_namespace { "}>" } else { "}" });
        }
        _ => write!(out, "{value}").expect("to a string"),
    }
    Ok(())
}

fn repr_string(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                write!(out, "\\x{:02x}", c as u32).expect("to a string")
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}
