//! A schema's numbers as doubles, where a double keeps each number.

use crate::decimal::Decimal;
use crate::exact_json::number_text;
use crate::multiple::MAX_MULTIPLE_SCALE;
use crate::numbers::RANGE_KEYWORDS;
use crate::schema::for_each_schema;
use serde_json::{json, Value};

/// Puts the numbers of a schema back as doubles: None where one of them, or what
/// the compiler makes of it, is another number.
pub fn write_doubles(value: &mut Value, numbers: &[String]) -> Option<()> {
    let Value::Object(members) = value else { return Some(()) };
    let mut is_fine = true;
    for_each_schema(members, &mut |one| is_fine &= write_doubles(one, numbers).is_some());
    for (key, item) in members.iter_mut() {
        if RANGE_KEYWORDS.contains(&key.as_str()) || matches!(key.as_str(), "const" | "enum") {
            write_double(item, numbers)?;
        }
        if key == "multipleOf" {
            keeps_multiple(item.as_f64()?).then_some(())?;
        }
    }
    is_fine.then_some(())
}

/// Whether the compiler finds the digits of `step`, which it scales.
fn keeps_multiple(step: f64) -> bool {
    let (mut scaled, mut scale) = (step, 0);
    while scaled.fract() != 0.0 && scale <= MAX_MULTIPLE_SCALE {
        scaled *= 10.0;
        scale += 1;
    }
    let digits = Decimal::parse(&format!("{scaled}e-{scale}")).ok();
    scaled.fract() == 0.0 && digits == Decimal::parse(&format!("{step}")).ok()
}

fn write_double(value: &mut Value, numbers: &[String]) -> Option<()> {
    match value {
        Value::Number(_) => {
            const EXACT: f64 = (1u64 << 53) as f64;
            let number = Decimal::parse(number_text(value, numbers)?).ok()?;
            let double: f64 = number.text().parse().ok()?;
            let is_same = Decimal::parse(&format!("{double}")).ok()? == number;
            let is_fine = is_same && double.abs() <= EXACT && number.part.len() <= MAX_MULTIPLE_SCALE;
            *value = match number.text().parse::<i64>() {
                Ok(integer) => json!(integer),
                Err(_) => json!(double),
            };
            is_fine.then_some(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| write_double(item, numbers)),
        Value::Object(members) => {
            members.values_mut().try_for_each(|item| write_double(item, numbers))
        }
        _ => Some(()),
    }
}
