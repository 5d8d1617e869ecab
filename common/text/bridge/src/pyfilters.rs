//! Filters and tests as jinja2 has them, where the engine's differ.

use crate::pyjson;
use crate::pynumbers::{abs, add, float, int, remainder, round, whole, whole_number};
use crate::pyobjects::{self, invalid, is_namespace, tuple, Range};
use minijinja::value::{from_args, Kwargs, Rest, Value, ValueKind};
use minijinja::{filters, Environment, Error, State};

/// What rewrite.rs writes for operators.
pub const STR: &str = "_py_str";
pub const ADD: &str = "_py_add";
pub const MOD: &str = "_py_mod";
pub const SLICE: &str = "_py_slice";
pub const TUPLE: &str = "_py_tuple";

pub type Made = Result<Value, Error>;

pub fn add_all(environment: &mut Environment<'static>) {
    environment.add_filter(STR, string);
    environment.add_filter("string", string);
    environment.add_filter(ADD, add);
    environment.add_filter(MOD, remainder);
    environment.add_filter(SLICE, slice);
    environment.add_filter(TUPLE, |items: Value| Ok::<_, Error>(tuple(elements(&items)?)));
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("first", |value: Value| Ok::<_, Error>(edge(&value, false)?));
    environment.add_filter("last", |value: Value| Ok::<_, Error>(edge(&value, true)?));
    environment.add_filter("items", items);
    environment.add_filter("dictsort", dictsort);
    environment.add_filter("list", |value: Value| Ok::<_, Error>(Value::from(elements(&value)?)));
    environment.add_filter("join", join);
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    environment.add_filter("abs", abs);
    environment.add_filter("round", round);
    environment.add_filter("trim", trim);
    environment.add_filter("upper", |value: Value| of_text(&value, |text| text.to_uppercase()));
    environment.add_filter("lower", |value: Value| of_text(&value, |text| text.to_lowercase()));
    environment.add_filter("capitalize", |value: Value| of_text(&value, capitalized));
    environment.add_filter("title", |value: Value| of_text(&value, titled));
    environment.add_filter("replace", replace);
    environment.add_filter("safe", |value: Value| Ok::<_, Error>(safe(text_of(&value)?)));
    environment.add_filter("e", escape);
    environment.add_filter("escape", escape);
    environment
        .add_filter("forceescape", |value: Value| Ok::<_, Error>(safe(escaped(&text_of(&value)?))));
    environment.add_filter("center", center);
    environment.add_filter("wordcount", wordcount);
    environment.add_filter("truncate", truncate);
    environment.add_filter("urlencode", urlencode);
    environment.add_filter("pprint", |value: Value| pyjson::representation(&value));
    environment.add_filter("map", |state: &State, value: Value, args: Rest<Value>| {
        lazily(&value, || filters::map(state, value.clone(), args))
    });
    type Selects = fn(
        &State,
        Value,
        std::borrow::Cow<'_, str>,
        Option<std::borrow::Cow<'_, str>>,
        Rest<Value>,
    ) -> Result<Vec<Value>, Error>;
    for (name, select) in
        [("selectattr", filters::selectattr as Selects), ("rejectattr", filters::rejectattr)]
    {
        environment.add_filter(
            name,
            move |state: &State,
                  value: Value,
                  attr: String,
                  test: Option<String>,
                  args: Rest<Value>| {
                lazily(&value, || {
                    select(state, value.clone(), attr.into(), test.map(Into::into), args)
                })
            },
        );
    }
    add_tests(environment);
    environment.add_function("range", pyobjects::range);
    environment.add_function("joiner", pyobjects::joiner);
    environment.add_function("cycler", pyobjects::cycler);
}

fn add_tests(environment: &mut Environment<'static>) {
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", |value: &Value| {
        !matches!(value.kind(), ValueKind::Iterable) && is_iterable(value)
    });
    environment.add_test("mapping", |value: &Value| {
        value.kind() == ValueKind::Map && !is_namespace(value)
    });
    environment.add_test("number", |value: &Value| {
        matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
    });
    environment.add_test("callable", |value: &Value| {
        matches!(value.kind(), ValueKind::Undefined | ValueKind::Plain)
    });
}

/// Python's None is not, the engine's has no elements; a namespace is not.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && !is_namespace(value) && value.try_iter().is_ok()
}

/// Returns the arguments by place or by name.
pub fn named<const N: usize>(
    args: &[Value],
    names: [&str; N],
) -> Result<[Option<Value>; N], Error> {
    let (given, kwargs): (&[Value], Kwargs) = from_args(args)?;
    if given.len() > N {
        return Err(Error::from(minijinja::ErrorKind::TooManyArguments));
    }
    let mut out = [const { None }; N];
    for (i, name) in names.into_iter().enumerate() {
        out[i] = match given.get(i) {
            Some(value) => Some(value.clone()),
            None => kwargs.get::<Option<Value>>(name)?,
        };
    }
    kwargs.assert_all_used()?;
    Ok(out)
}

fn is_set(value: Option<Value>) -> bool {
    value.is_some_and(|value| value.is_true())
}

/// str(value).
pub fn text_of(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_string());
    }
    let mut text = String::new();
    pyjson::text(value, &mut text)?;
    Ok(text)
}

fn string(value: Value) -> Made {
    if value.as_str().is_some() {
        return Ok(value);
    }
    Ok(Value::from(text_of(&value)?))
}

fn of_text(value: &Value, make: impl Fn(&str) -> String) -> Made {
    Ok(Value::from(make(&text_of(value)?)))
}

/// list(value).
pub fn elements(value: &Value) -> Result<Vec<Value>, Error> {
    match value.as_str() {
        Some(text) => Ok(text.chars().map(Value::from).collect()),
        None => Ok(value.try_iter()?.collect()),
    }
}

/// jinja2 iterates over what is false, whatever it is, as over nothing.
fn lazily(value: &Value, make: impl FnOnce() -> Result<Vec<Value>, Error>) -> Made {
    if !value.is_true() && value.try_iter().is_err() {
        return Ok(Value::from(Vec::<Value>::new()));
    }
    make().map(Value::from)
}

/// Python's slice(start, stop, step).indices(len), as a range of indices.
fn indices(bounds: [Option<i64>; 3], len: i64) -> Result<Range, Error> {
    let [start, stop, step] = bounds;
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(invalid("slice: a step of 0"));
    }
    let (least, most) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let place = |at: Option<i64>, otherwise: i64| match at {
        None => otherwise,
        Some(at) if at < 0 => (at + len).max(least),
        Some(at) => at.min(most),
    };
    let (first, last) = if step > 0 { (least, most) } else { (most, least) };
    Ok(Range { start: place(start, first), stop: place(stop, last), step })
}

/// `value[start:stop:step]`; undefined of what has no slices, as jinja2's.
fn slice(value: Value, start: Value, stop: Value, step: Value) -> Made {
    let bound = |value: Value| match value.is_none() {
        true => Ok(None),
        false => whole(&value).map(Some).ok_or_else(|| invalid("slice: no whole number")),
    };
    let bounds = [bound(start)?, bound(stop)?, bound(step)?];
    let picked = |len: usize| -> Result<Vec<usize>, Error> {
        let at = indices(bounds, len as i64)?;
        Ok((0..at.len()).map(|i| at.at(i) as usize).collect())
    };
    if let Some(text) = value.as_str() {
        let chars: Vec<char> = text.chars().collect();
        let part: String = picked(chars.len())?.into_iter().map(|at| chars[at]).collect();
        return Ok(Value::from(part));
    }
    if let Some(range) = value.downcast_object_ref::<Range>() {
        let at = indices(bounds, range.len())?;
        let (start, stop) = (range.at(at.start), range.at(at.stop));
        return Ok(Value::from_object(Range { start, stop, step: range.step * at.step }));
    }
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return Ok(Value::UNDEFINED);
    }
    let all = elements(&value)?;
    let part = picked(all.len())?.into_iter().map(|at| all[at].clone()).collect();
    let is_tuple = value.downcast_object_ref::<pyobjects::Tuple>().is_some();
    Ok(if is_tuple { tuple(part) } else { Value::from(part) })
}

fn length(value: Value) -> Made {
    if value.is_undefined() {
        return Ok(Value::from(0));
    }
    value.len().map(Value::from).ok_or_else(|| invalid(format!("a {} has no length", value.kind())))
}

/// The first or the last element; undefined if there is none.
fn edge(value: &Value, last: bool) -> Made {
    if value.is_undefined() {
        return Ok(Value::UNDEFINED);
    }
    let mut all = elements(value)?;
    let found = if last { all.pop() } else { all.into_iter().next() };
    Ok(found.unwrap_or(Value::UNDEFINED))
}

/// The members of a mapping, a tuple each.
pub fn pairs(value: &Value) -> Result<Vec<Value>, Error> {
    let mut made = Vec::new();
    for key in value.try_iter()? {
        let of_key = value.get_item(&key)?;
        made.push(tuple(vec![key, of_key]));
    }
    Ok(made)
}

fn items(value: Value) -> Made {
    match value.kind() {
        ValueKind::Undefined => Ok(Value::from(Vec::<Value>::new())),
        ValueKind::Map => pairs(&value).map(Value::from),
        kind => Err(invalid(format!("items: of a mapping alone, got a {kind}"))),
    }
}

fn dictsort(value: Value, args: Rest<Value>) -> Made {
    if value.kind() != ValueKind::Map {
        return Err(invalid(format!("dictsort: of a mapping alone, got a {}", value.kind())));
    }
    let [by_case, by, reverse] = named(&args, ["case_sensitive", "by", "reverse"])?;
    let place = match by.as_ref().map(|by| by.as_str().unwrap_or_default()) {
        None | Some("key") => 0,
        Some("value") => 1,
        Some(_) => return Err(invalid("dictsort: by is \"key\" or \"value\"")),
    };
    let by_case = is_set(by_case);
    let mut all = Vec::new();
    for pair in pairs(&value)? {
        let of = pair.get_item(&Value::from(place))?;
        let lower = of.as_str().filter(|_| !by_case).map(|text| Value::from(text.to_lowercase()));
        all.push((lower.unwrap_or(of), pair));
    }
    // Of equal keys a reversed sort keeps the order.
    all.sort_by(|a, b| a.0.cmp(&b.0));
    if is_set(reverse) {
        all.reverse();
        all.sort_by(|a, b| b.0.cmp(&a.0));
    }
    Ok(Value::from(all.into_iter().map(|(_, pair)| pair).collect::<Vec<_>>()))
}

fn join(value: Value, args: Rest<Value>) -> Made {
    let [separator, attribute] = named(&args, ["d", "attribute"])?;
    let separator = separator.map_or(Ok(String::new()), |text| text_of(&text))?;
    let mut out = String::new();
    for (i, item) in elements(&value)?.into_iter().enumerate() {
        out.push_str(if i > 0 { &separator } else { "" });
        let item = match &attribute {
            Some(name) if !name.is_none() => item.get_item(name)?,
            _ => item,
        };
        out.push_str(&text_of(&item)?);
    }
    Ok(Value::from(out))
}

fn trim(value: Value, args: Rest<Value>) -> Made {
    let [chars] = named(&args, ["chars"])?;
    let chars = chars.filter(|chars| !chars.is_none());
    let Some(chars) = chars else { return of_text(&value, |text| text.trim().to_string()) };
    let chars = text_of(&chars)?;
    of_text(&value, |text| text.trim_matches(|c| chars.contains(c)).to_string())
}

pub fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    first + &chars.as_str().to_lowercase()
}

/// jinja2's title: words begin behind white space, dashes and brackets.
fn titled(text: &str) -> String {
    let mut out = String::new();
    let mut begins = true;
    for c in text.chars() {
        let splits = c.is_whitespace() || "-({[<".contains(c);
        if begins {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        begins = splits;
    }
    out
}

fn replace(value: Value, args: Rest<Value>) -> Made {
    let [old, new, count] = named(&args, ["old", "new", "count"])?;
    let text = |part: Option<Value>, name: &str| {
        part.ok_or_else(|| invalid(format!("replace: no {name}"))).and_then(|part| text_of(&part))
    };
    let (old, new) = (text(old, "old")?, text(new, "new")?);
    let count = whole_number(count.filter(|count| !count.is_none()), -1)?;
    of_text(&value, |text| match usize::try_from(count) {
        Ok(count) => text.replacen(&old, &new, count),
        Err(_) => text.replace(&old, &new),
    })
}

pub fn safe(text: String) -> Value {
    Value::from_safe_string(text)
}

/// As markupsafe.
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    out
}

fn escape(value: Value) -> Made {
    if value.is_safe() {
        return Ok(value);
    }
    Ok(safe(escaped(&text_of(&value)?)))
}

fn center(value: Value, args: Rest<Value>) -> Made {
    let [width] = named(&args, ["width"])?;
    let width = whole_number(width, 80)?.clamp(0, 1 << 20) as usize;
    of_text(&value, |text| centered(text, width, ' '))
}

/// str.center: of an odd margin the larger part is on the left if the width is
/// odd.
pub fn centered(text: &str, width: usize, fill: char) -> String {
    let margin = width.saturating_sub(text.chars().count());
    let left = margin / 2 + (margin & width & 1);
    let spaces = |count: usize| std::iter::repeat_n(fill, count).collect::<String>();
    format!("{}{text}{}", spaces(left), spaces(margin - left))
}

fn wordcount(value: Value) -> Made {
    let word = regex::Regex::new(r"\w+").expect("constant");
    Ok(Value::from(word.find_iter(&text_of(&value)?).count()))
}

fn truncate(value: Value, args: Rest<Value>) -> Made {
    let [length, kill, end, leeway] = named(&args, ["length", "killwords", "end", "leeway"])?;
    let length = whole_number(length, 255)?.max(0) as usize;
    let leeway = whole_number(leeway, 5)?.max(0) as usize;
    let end = end.map_or(Ok("...".to_string()), |end| text_of(&end))?;
    let room = length
        .checked_sub(end.chars().count())
        .ok_or_else(|| invalid("truncate: length is less than the end's"))?;
    let kill = is_set(kill);
    of_text(&value, |text| {
        if text.chars().count() <= length + leeway {
            return text.to_string();
        }
        let cut: String = text.chars().take(room).collect();
        let kept = if kill { &cut } else { cut.rsplit_once(' ').map_or(cut.as_str(), |two| two.0) };
        format!("{kept}{end}")
    })
}

fn urlencode(value: Value) -> Made {
    let quoted = |value: &Value, slash: &str| -> Result<String, Error> {
        let mut out = String::new();
        for byte in text_of(value)?.bytes() {
            let is_plain = byte.is_ascii_alphanumeric()
                || b"_.-~".contains(&byte)
                || slash.as_bytes().contains(&byte);
            if is_plain {
                out.push(byte as char);
            } else {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
        Ok(out)
    };
    if matches!(value.kind(), ValueKind::String) || !is_iterable(&value) {
        return Ok(Value::from(quoted(&value, "/")?));
    }
    let all = if value.kind() == ValueKind::Map { pairs(&value)? } else { elements(&value)? };
    let mut parts = Vec::new();
    for pair in all {
        let (key, of_key) = (pair.get_item(&Value::from(0))?, pair.get_item(&Value::from(1))?);
        parts.push(format!("{}={}", quoted(&key, "")?, quoted(&of_key, "")?));
    }
    Ok(Value::from(parts.join("&").replace("%20", "+")))
}
