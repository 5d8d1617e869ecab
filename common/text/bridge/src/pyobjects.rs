//! Python's values that the engine lacks: tuples, ranges, joiners, cyclers.

use crate::pyjson;
use minijinja::value::{Enumerator, Object, ObjectRepr, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

/// As jinja2's sandbox.
const MAX_RANGE: i64 = 100_000;

pub fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Returns where `key` points in a sequence of `len` elements.
fn index_of(key: &Value, len: usize) -> Option<usize> {
    let at = key.as_i64()?;
    let at = if at < 0 { at + len as i64 } else { at };
    usize::try_from(at).ok().filter(|at| *at < len)
}

#[derive(Debug)]
pub struct Tuple(pub Vec<Value>);

impl Object for Tuple {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        index_of(key, self.0.len()).map(|at| self.0[at].clone())
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        pyjson::repr_tuple(&self.0, 0, &mut text).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

pub fn tuple(items: Vec<Value>) -> Value {
    Value::from_object(Tuple(items))
}

#[derive(Debug, Clone, Copy)]
pub struct Range {
    pub start: i64,
    pub stop: i64,
    pub step: i64, // not 0
}

impl Range {
    pub fn new(start: i64, stop: i64, step: i64) -> Result<Self, Error> {
        let range = Self { start, stop, step };
        if step == 0 {
            return Err(invalid("range: a step of 0"));
        }
        if range.len() > MAX_RANGE {
            return Err(invalid(format!("range: more than {MAX_RANGE} elements")));
        }
        Ok(range)
    }

    pub fn len(&self) -> i64 {
        let (from, to, step) = (self.start as i128, self.stop as i128, self.step as i128);
        let len =
            if step > 0 { (to - from + step - 1) / step } else { (from - to - step - 1) / -step };
        len.clamp(0, i64::MAX as i128) as i64
    }

    pub fn at(&self, index: i64) -> i64 {
        self.start.wrapping_add(index.wrapping_mul(self.step))
    }
}

impl Object for Range {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        index_of(key, self.len() as usize).map(|at| Value::from(self.at(at as i64)))
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.len() as usize)
    }
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            1 => write!(f, "range({}, {})", self.start, self.stop),
            step => write!(f, "range({}, {}, {step})", self.start, self.stop),
        }
    }
}

/// range(stop), range(start, stop), range(start, stop, step).
pub fn range(first: i64, stop: Option<i64>, step: Option<i64>) -> Result<Value, Error> {
    let (start, stop) = stop.map_or((0, first), |stop| (first, stop));
    Ok(Value::from_object(Range::new(start, stop, step.unwrap_or(1))?))
}

/// Whether `value` is what namespace() makes, which is no mapping in Python.
pub fn is_namespace(value: &Value) -> bool {
    value.kind() == ValueKind::Map
        && value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

#[derive(Debug)]
struct Joiner {
    separator: String,
    used: AtomicBool,
}

impl Object for Joiner {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
    fn call(self: &Arc<Self>, _: &State<'_, '_>, _: &[Value]) -> Result<Value, Error> {
        let used = self.used.swap(true, Ordering::Relaxed);
        Ok(Value::from(if used { self.separator.as_str() } else { "" }))
    }
}

pub fn joiner(separator: Option<String>) -> Value {
    let separator = separator.unwrap_or_else(|| ", ".to_string());
    Value::from_object(Joiner { separator, used: AtomicBool::new(false) })
}

#[derive(Debug)]
struct Cycler {
    items: Vec<Value>,
    at: AtomicUsize,
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let at = self.at.load(Ordering::Relaxed);
        (key.as_str() == Some("current")).then(|| self.items[at].clone())
    }
    fn call_method(
        self: &Arc<Self>,
        _: &State<'_, '_>,
        method: &str,
        _: &[Value],
    ) -> Result<Value, Error> {
        match method {
            "next" => {
                let at = self.at.load(Ordering::Relaxed);
                self.at.store((at + 1) % self.items.len(), Ordering::Relaxed);
                Ok(self.items[at].clone())
            }
            "reset" => {
                self.at.store(0, Ordering::Relaxed);
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

pub fn cycler(items: minijinja::value::Rest<Value>) -> Result<Value, Error> {
    if items.is_empty() {
        return Err(invalid("cycler: no items"));
    }
    Ok(Value::from_object(Cycler { items: items.0, at: AtomicUsize::new(0) }))
}
