//! Python's numbers: operators and filters of them.

use crate::pyfilters::{elements, escaped, named, safe, text_of, Made};
use crate::pyobjects::{invalid, Tuple};
use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Error, State};

pub fn whole_number(value: Option<Value>, otherwise: i64) -> Result<i64, Error> {
    match value {
        None => Ok(otherwise),
        Some(value) => value.as_i64().ok_or_else(|| invalid("expected a whole number")),
    }
}

/// `left + right` where texts may be marked as safe: beside such a text the
/// other one is escaped.
pub fn add(left: Value, right: Value) -> Made {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        if left.is_safe() == right.is_safe() {
            let both = [a, b].concat();
            return Ok(if left.is_safe() { safe(both) } else { Value::from(both) });
        }
        return Ok(safe(match left.is_safe() {
            true => a.to_string() + &escaped(b),
            false => escaped(a) + b,
        }));
    }
    let are_lists = [&left, &right]
        .iter()
        .all(|side| matches!(side.kind(), ValueKind::Seq | ValueKind::Iterable));
    if are_lists {
        let mut all = elements(&left)?;
        all.extend(elements(&right)?);
        return Ok(Value::from(all));
    }
    if let (Some(a), Some(b)) = (whole(&left), whole(&right)) {
        return a.checked_add(b).map(Value::from).ok_or_else(|| invalid("+: too large"));
    }
    let is_number = |side: &Value| matches!(side.kind(), ValueKind::Number | ValueKind::Bool);
    match (real(&left), real(&right)) {
        (Some(a), Some(b)) if is_number(&left) && is_number(&right) => Ok(Value::from(a + b)),
        _ => Err(invalid(format!("+ of {} and {}", left.kind(), right.kind()))),
    }
}

/// `left % right`: of texts printf's format, of numbers the remainder with the
/// divisor's sign.
pub fn remainder(state: &State, left: Value, right: Value) -> Made {
    if left.as_str().is_some() {
        let is_tuple = right.downcast_object_ref::<Tuple>().is_some();
        let args = if is_tuple { elements(&right)? } else { vec![right] };
        let by_name = left.as_str().is_some_and(|text| text.contains("%("));
        let mut all = vec![left];
        for arg in args {
            let is_plain = matches!(arg.kind(), ValueKind::Number | ValueKind::String)
                || (by_name && arg.kind() == ValueKind::Map);
            all.push(if is_plain { arg } else { Value::from(text_of(&arg)?) });
        }
        return state.apply_filter("format", &all);
    }
    let both = (whole(&left), whole(&right));
    if let (Some(a), Some(b)) = both {
        if b == 0 {
            return Err(invalid("modulo by zero"));
        }
        return Ok(Value::from(a.wrapping_rem(b).wrapping_add(b).wrapping_rem(b)));
    }
    let (Ok(a), Ok(b)) = (f64::try_from(left.clone()), f64::try_from(right.clone())) else {
        return Err(invalid(format!("% of {} and {}", left.kind(), right.kind())));
    };
    if b == 0.0 {
        return Err(invalid("modulo by zero"));
    }
    let rest = a % b;
    Ok(Value::from(if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }))
}

/// A whole number, as which Python takes booleans.
pub fn whole(value: &Value) -> Option<i64> {
    match value.kind() {
        ValueKind::Bool => Some(value.is_true() as i64),
        ValueKind::Number if value.is_integer() => value.as_i64(),
        _ => None,
    }
}

pub fn int(value: Value, args: Rest<Value>) -> Made {
    let [default, base] = named(&args, ["default", "base"])?;
    let base = u32::try_from(whole_number(base, 10)?).unwrap_or(0);
    let default = default.unwrap_or_else(|| Value::from(0));
    if let Some(text) = value.as_str() {
        let text = text.trim();
        let (sign, digits) = match text.strip_prefix('-') {
            Some(rest) => ("-", rest),
            None => ("", text.strip_prefix('+').unwrap_or(text)),
        };
        let prefix = match base {
            2 => "0b",
            8 => "0o",
            16 => "0x",
            _ => "",
        };
        let lower = digits.to_lowercase();
        let digits = lower.strip_prefix(prefix).unwrap_or(&lower);
        if (2..=36).contains(&base) && !digits.starts_with(['+', '-']) {
            let plain = format!("{sign}{}", digits.replace('_', ""));
            if let Ok(number) = i128::from_str_radix(&plain, base) {
                return Ok(i64::try_from(number).map_or(Value::from(number), Value::from));
            }
        }
    } else if let Some(number) = whole(&value) {
        return Ok(Value::from(number));
    } else if value.is_integer() {
        return Ok(value);
    }
    Ok(match real(&value) {
        Some(number) if number.is_finite() => {
            let cut = number.trunc();
            if cut.abs() < 9e18 {
                Value::from(cut as i64)
            } else {
                Value::from(cut as i128)
            }
        }
        _ => default,
    })
}

/// float(value), if it has one.
fn real(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::String => value.as_str()?.trim().replace('_', "").parse().ok(),
        ValueKind::Bool => Some(value.is_true() as i64 as f64),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        _ => None,
    }
}

pub fn float(value: Value, args: Rest<Value>) -> Made {
    let [default] = named(&args, ["default"])?;
    Ok(real(&value).map_or_else(|| default.unwrap_or_else(|| Value::from(0.0)), Value::from))
}

pub fn abs(value: Value) -> Made {
    if let Some(number) = whole(&value) {
        return number.checked_abs().map(Value::from).ok_or_else(|| invalid("abs: too large"));
    }
    match value.kind() {
        ValueKind::Number => Ok(Value::from(f64::try_from(value)?.abs())),
        kind => Err(invalid(format!("abs: of a number alone, got a {kind}"))),
    }
}

pub fn round(value: Value, args: Rest<Value>) -> Made {
    let [precision, method] = named(&args, ["precision", "method"])?;
    let precision = whole_number(precision, 0)?.clamp(-300, 300) as i32;
    let method = method.as_ref().map_or("common", |name| name.as_str().unwrap_or_default());
    if !matches!(value.kind(), ValueKind::Number | ValueKind::Bool) {
        return Err(invalid(format!("round: of a number alone, got a {}", value.kind())));
    }
    let number = real(&value).ok_or_else(|| invalid("round: too large"))?;
    let scale = 10f64.powi(precision);
    match method {
        "ceil" => Ok(Value::from((number * scale).ceil() / scale)),
        "floor" => Ok(Value::from((number * scale).floor() / scale)),
        "common" if precision >= 0 => match whole(&value) {
            Some(number) => Ok(Value::from(number)),
            // The nearest decimal, of two the even one.
            None => Ok(Value::from(
                format!("{number:.*}", precision as usize).parse::<f64>().unwrap_or(number),
            )),
        },
        "common" => {
            let rounded = (number * scale).round_ties_even() / scale;
            let is_whole = whole(&value).is_some();
            Ok(if is_whole { Value::from(rounded as i64) } else { Value::from(rounded) })
        }
        _ => Err(invalid("round: method is \"common\", \"ceil\" or \"floor\"")),
    }
}
