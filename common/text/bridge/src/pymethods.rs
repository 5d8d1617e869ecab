//! Methods of Python's texts, lists and mappings, where minijinja-contrib lacks
//! them or counts bytes.

use crate::pyfilters::{capitalized, centered, pairs, text_of};
use crate::pyobjects::{invalid, tuple};
use minijinja::value::{from_args, Value, ValueKind};
use minijinja::{Error, State};
use minijinja_contrib::pycompat;

type Made = Result<Value, Error>;

pub fn call(state: &State, value: &Value, method: &str, args: &[Value]) -> Made {
    let made = match value.kind() {
        ValueKind::String => of_text(value.as_str().unwrap_or_default(), method, args),
        ValueKind::Map => of_mapping(value, method, args),
        ValueKind::Seq => of_sequence(value, method, args),
        _ => Ok(None),
    }?;
    match made {
        Some(made) => Ok(made),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn of_mapping(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match method {
        "items" => {
            let () = from_args(args)?;
            Ok(Some(Value::from(pairs(value)?)))
        }
        "copy" => {
            let () = from_args(args)?;
            Ok(Some(value.clone()))
        }
        _ => Ok(None),
    }
}

fn of_sequence(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match method {
        "copy" => {
            let () = from_args(args)?;
            Ok(Some(value.clone()))
        }
        "index" => {
            let (what,): (&Value,) = from_args(args)?;
            let at = value.try_iter()?.position(|item| item == *what);
            at.map(|at| Some(Value::from(at))).ok_or_else(|| invalid("index: not in the list"))
        }
        _ => Ok(None),
    }
}

/// The text between characters `start` and `stop`, as a slice, and where it
/// begins.
fn between(text: &str, start: Option<i64>, stop: Option<i64>) -> Option<(&str, i64)> {
    let len = text.chars().count() as i64;
    let place = |at: i64| if at < 0 { (at + len).max(0) } else { at };
    let (start, stop) = (place(start.unwrap_or(0)), place(stop.unwrap_or(len)).min(len));
    if start > stop {
        return None;
    }
    let byte = |at: i64| text.char_indices().nth(at as usize).map_or(text.len(), |found| found.0);
    Some((&text[byte(start)..byte(stop)], start))
}

/// str.find and str.rfind: the place in characters.
fn find(text: &str, args: &[Value], last: bool) -> Result<Option<i64>, Error> {
    let (what, start, stop): (&str, Option<i64>, Option<i64>) = from_args(args)?;
    let Some((part, before)) = between(text, start, stop) else { return Ok(None) };
    let at = if last { part.rfind(what) } else { part.find(what) };
    Ok(at.map(|at| before + part[..at].chars().count() as i64))
}

fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// Cuts by white space or by a text, from the right, at most `most` times.
fn rsplit(text: &str, separator: Option<&str>, most: i64) -> Vec<Value> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    let mut rest = text;
    match separator {
        Some(separator) => {
            while let Some((left, right)) =
                (parts.len() < most).then(|| rest.rsplit_once(separator)).flatten()
            {
                parts.push(Value::from(right));
                rest = left;
            }
            parts.push(Value::from(rest));
        }
        None => {
            rest = rest.trim_end_matches(is_space);
            while !rest.is_empty() {
                let cut = if parts.len() < most { rest.rfind(is_space) } else { None };
                let begin =
                    cut.map_or(0, |at| at + rest[at..].chars().next().map_or(0, char::len_utf8));
                parts.push(Value::from(&rest[begin..]));
                rest = rest[..cut.unwrap_or(0)].trim_end_matches(is_space);
            }
        }
    }
    parts.reverse();
    parts
}

fn split_lines(text: &str, keep_ends: bool) -> Vec<Value> {
    let ends = |c: char| "\n\r\x0b\x0c\x1c\x1d\x1e\u{85}\u{2028}\u{2029}".contains(c);
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.find(ends).unwrap_or(rest.len());
        let mut end = at + rest[at..].chars().next().map_or(0, char::len_utf8);
        if rest[at..].starts_with("\r\n") {
            end += 1;
        }
        lines.push(Value::from(&rest[..if keep_ends { end } else { at }]));
        rest = &rest[end..];
    }
    lines
}

/// str.title: the letters behind what is no letter are upper.
fn titled(text: &str) -> String {
    let mut out = String::new();
    let mut within = false;
    for c in text.chars() {
        if within {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        within = c.is_alphabetic();
    }
    out
}

/// Whether all characters are so, and there are some.
fn all(text: &str, is: impl Fn(char) -> bool) -> Value {
    Value::from(!text.is_empty() && text.chars().all(is))
}

/// Whether some letters have a case, and all those are `is`.
fn cased(text: &str, is: impl Fn(char) -> bool) -> Value {
    let mut letters = text.chars().filter(|c| c.is_lowercase() || c.is_uppercase()).peekable();
    Value::from(letters.peek().is_some() && letters.all(is))
}

fn of_text(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let padded = |left: bool| -> Made {
        let (width, fill): (usize, Option<char>) = from_args(args)?;
        let fill = fill.unwrap_or(' ');
        let count = width.min(1 << 20).saturating_sub(text.chars().count());
        let pad: String = std::iter::repeat_n(fill, count).collect();
        Ok(Value::from(if left { pad + text } else { text.to_string() + &pad }))
    };
    let three = |found: Option<(&str, &str)>, separator: &str, first: bool| match found {
        Some((left, right)) => tuple(vec![left.into(), separator.into(), right.into()]),
        None if first => tuple(vec![text.into(), "".into(), "".into()]),
        None => tuple(vec!["".into(), "".into(), text.into()]),
    };
    let none = || from_args::<()>(args);
    Ok(Some(match method {
        "find" | "rfind" => Value::from(find(text, args, method == "rfind")?.unwrap_or(-1)),
        "index" | "rindex" => find(text, args, method == "rindex")?
            .map(Value::from)
            .ok_or_else(|| invalid(format!("{method}: substring not found")))?,
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            three(text.split_once(separator), separator, true)
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            three(text.rsplit_once(separator), separator, false)
        }
        "rsplit" => {
            let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
            if separator == Some("") {
                return Err(invalid("rsplit: empty separator"));
            }
            Value::from(rsplit(text, separator, most.unwrap_or(-1)))
        }
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(args)?;
            Value::from(split_lines(text, keep_ends.unwrap_or(false)))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let signs = text.starts_with(['+', '-']) as usize;
            let count = width.min(1 << 20).saturating_sub(text.chars().count());
            Value::from(format!("{}{}{}", &text[..signs], "0".repeat(count), &text[signs..]))
        }
        "ljust" => padded(false)?,
        "rjust" => padded(true)?,
        "center" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            Value::from(centered(text, width.min(1 << 20), fill.unwrap_or(' ')))
        }
        "casefold" => {
            none()?;
            Value::from(text.to_lowercase().replace('ß', "ss"))
        }
        "swapcase" => {
            none()?;
            let swapped = |c: char| match c.is_uppercase() {
                true => c.to_lowercase().to_string(),
                false => c.to_uppercase().to_string(),
            };
            Value::from(text.chars().map(swapped).collect::<String>())
        }
        "title" => {
            none()?;
            Value::from(titled(text))
        }
        "capitalize" => {
            none()?;
            Value::from(capitalized(text))
        }
        "encode" => Value::from_bytes(text.as_bytes().to_vec()),
        "isspace" => {
            none()?;
            all(text, is_space)
        }
        "isdigit" | "isdecimal" | "isnumeric" => {
            none()?;
            all(text, char::is_numeric)
        }
        "isalnum" => {
            none()?;
            all(text, char::is_alphanumeric)
        }
        "isalpha" => {
            none()?;
            all(text, char::is_alphabetic)
        }
        "islower" => {
            none()?;
            cased(text, char::is_lowercase)
        }
        "isupper" => {
            none()?;
            cased(text, char::is_uppercase)
        }
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            let parts: Result<Vec<String>, Error> =
                items.try_iter()?.map(|item| text_of(&item)).collect();
            Value::from(parts?.join(text))
        }
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(parts: Vec<Value>) -> Vec<String> {
        parts.iter().map(|part| part.as_str().unwrap().to_string()).collect()
    }

    #[test]
    fn texts_are_cut_from_the_right() {
        assert_eq!(texts(rsplit("a-b-c", Some("-"), 1)), ["a-b", "c"]);
        assert_eq!(texts(rsplit("a-b-c", Some("-"), -1)), ["a", "b", "c"]);
        assert_eq!(texts(rsplit(" a  b c ", None, 1)), [" a  b", "c"]);
        assert_eq!(texts(rsplit(" é  b ", None, -1)), ["é", "b"]);
        assert!(rsplit("  ", None, -1).is_empty());
    }

    #[test]
    fn lines_end_as_pythons_do() {
        assert_eq!(texts(split_lines("a\r\nb\u{85}c\n", false)), ["a", "b", "c"]);
        assert_eq!(texts(split_lines("a\r\n\nb", true)), ["a\r\n", "\n", "b"]);
    }

    #[test]
    fn places_count_characters() {
        assert_eq!(find("éa", &["a".into()], false).unwrap(), Some(1));
        assert_eq!(find("aéa", &["a".into(), 1.into()], false).unwrap(), Some(2));
        assert_eq!(find("aéa", &["a".into(), 3.into()], true).unwrap(), None);
    }
}
