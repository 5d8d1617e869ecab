//! Decimal numbers of any size, to the digit.

use std::cmp::Ordering;

/// Before and behind the point, each.
pub const MAX_DIGITS: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    pub is_negative: bool, // never of zero
    pub whole: String,     // without leading zeros, but for "0"
    pub part: String,      // behind the point, without trailing zeros
}

impl Decimal {
    /// Reads a number of JSON, or says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (is_negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent_of(exponent)),
            None => (rest, 0),
        };
        let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{before}{behind}");
        let digits = all.trim_start_matches('0');
        let num_zeros = (all.len() - digits.len()) as i64;
        let digits = digits.trim_end_matches('0');
        if digits.is_empty() {
            return Ok(Self { is_negative: false, whole: "0".to_string(), part: String::new() });
        }
        let size = digits.len() as i64;
        let point = before.len() as i64 - num_zeros + exponent;
        if point > MAX_DIGITS as i64 || size - point > MAX_DIGITS as i64 {
            return Err(format!(
                "has a number of more than {MAX_DIGITS} digits before or behind its point"
            ));
        }
        let zeros = |count: i64| "0".repeat(count.max(0) as usize);
        let cut = point.clamp(0, size) as usize;
        let whole = format!("{}{}", &digits[..cut], zeros(point - size));
        let part = if cut < digits.len() {
            format!("{}{}", zeros(-point), &digits[cut..])
        } else {
            String::new()
        };
        let whole = if whole.is_empty() { "0".to_string() } else { whole };
        Ok(Self { is_negative, whole, part })
    }

    pub fn whole_number(whole: &str) -> Self {
        Self { is_negative: false, whole: whole.to_string(), part: String::new() }
    }

    pub fn is_integer(&self) -> bool {
        self.part.is_empty()
    }

    pub fn is_zero(&self) -> bool {
        self.whole == "0" && self.part.is_empty()
    }

    pub fn negated(&self) -> Self {
        Self { is_negative: !self.is_negative && !self.is_zero(), ..self.clone() }
    }

    /// The plain text of the number, the shortest without an exponent.
    pub fn text(&self) -> String {
        let sign = if self.is_negative { "-" } else { "" };
        let point = if self.part.is_empty() { "" } else { "." };
        format!("{sign}{}{point}{}", self.whole, self.part)
    }

    /// The integer next to an exclusive bound, or at or next to an inclusive
    /// one: upwards for a lower bound.
    pub fn rounded(&self, is_up: bool, is_inclusive: bool) -> Self {
        let truncated =
            Self { part: String::new(), ..self.clone() }.negated().negated();
        let is_beyond = if self.is_integer() { !is_inclusive } else { self.is_negative != is_up };
        if is_beyond {
            truncated.next(is_up)
        } else {
            truncated
        }
    }

    /// The integer that is one more, or one less, of an integer.
    fn next(&self, is_up: bool) -> Self {
        if self.is_zero() {
            Self { is_negative: !is_up, whole: "1".to_string(), part: String::new() }
        } else if self.is_negative == is_up {
            let whole = before(&self.whole);
            Self { is_negative: self.is_negative && whole != "0", whole, part: String::new() }
        } else {
            Self { is_negative: self.is_negative, whole: behind(&self.whole), part: String::new() }
        }
    }

    pub fn magnitude_cmp(&self, other: &Self) -> Ordering {
        (self.whole.len(), &self.whole, &self.part).cmp(&(
            other.whole.len(),
            &other.whole,
            &other.part,
        ))
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.magnitude_cmp(other),
            (true, true) => other.magnitude_cmp(self),
        }
    }
}

/// Beyond this, a number has too many digits, or too many zeros behind its point.
fn exponent_of(text: &str) -> i64 {
    const FAR: i64 = 1 << 40;
    let is_negative = text.starts_with('-');
    let digits = text.trim_start_matches(['+', '-']).trim_start_matches('0');
    let size = if digits.is_empty() { 0 } else { digits.parse::<i64>().unwrap_or(FAR).min(FAR) };
    if is_negative {
        -size
    } else {
        size
    }
}

/// `whole` and one.
pub fn behind(whole: &str) -> String {
    let kept = whole.trim_end_matches('9');
    let zeros = "0".repeat(whole.len() - kept.len());
    match kept.as_bytes().last() {
        Some(digit) => format!("{}{}{zeros}", &kept[..kept.len() - 1], (digit + 1) as char),
        None => format!("1{zeros}"),
    }
}

/// `whole`, which is above 0, less one.
pub fn before(whole: &str) -> String {
    let kept = whole.trim_end_matches('0');
    let nines = "9".repeat(whole.len() - kept.len());
    let Some(digit) = kept.as_bytes().last() else { return "0".to_string() };
    let text = format!("{}{}{nines}", &kept[..kept.len() - 1], (digit - 1) as char);
    let trimmed = text.trim_start_matches('0');
    if trimmed.is_empty() { "0".to_string() } else { trimmed.to_string() }
}

/// Digits divided by a small number: the quotient and the rest.
pub fn divided(digits: &str, by: u32) -> (String, u32) {
    let (mut quotient, mut rest) = (String::new(), 0u64);
    for byte in digits.bytes() {
        rest = rest * 10 + u64::from(byte - b'0');
        quotient.push((b'0' + (rest / u64::from(by)) as u8) as char);
        rest %= u64::from(by);
    }
    (stripped(&quotient), rest as u32)
}

pub fn multiplied(digits: &str, by: u32) -> String {
    let (mut product, mut carry) = (Vec::new(), 0u64);
    for byte in digits.bytes().rev() {
        carry += u64::from(byte - b'0') * u64::from(by);
        product.push(b'0' + (carry % 10) as u8);
        carry /= 10;
    }
    while carry > 0 {
        product.push(b'0' + (carry % 10) as u8);
        carry /= 10;
    }
    product.reverse();
    stripped(&String::from_utf8(product).unwrap_or_default())
}

pub fn stripped(digits: &str) -> String {
    let kept = digits.trim_start_matches('0');
    if kept.is_empty() { "0".to_string() } else { kept.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn texts_keep_their_value() {
        for (text, plain) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.0e7", "0"),
            ("1.0", "1"),
            ("1e2", "100"),
            ("120e-1", "12"),
            ("125e-2", "1.25"),
            ("-1e-3", "-0.001"),
            ("0.00120", "0.0012"),
            ("1234567890123456789", "1234567890123456789"),
            ("18446744073709551615", "18446744073709551615"),
            ("0.100000000000000000000000000001", "0.100000000000000000000000000001"),
            ("1E+3", "1000"),
        ] {
            assert_eq!(of(text).text(), plain, "{text}");
        }
        assert_eq!(of("1e400").text().len(), 401);
        assert!(Decimal::parse("1e100000").is_err());
        assert!(Decimal::parse("1e-999999999999999999999").is_err());
        assert!(of("0e999999999999999999999").is_zero());
    }

    #[test]
    fn order_is_that_of_numbers() {
        let sorted = ["-1e3", "-10", "-9.5", "-0.01", "0", "0.2", "0.25", "1", "9", "10", "1e30"];
        for (i, left) in sorted.iter().enumerate() {
            for (j, right) in sorted.iter().enumerate() {
                assert_eq!(of(left).cmp(&of(right)), i.cmp(&j), "{left} {right}");
            }
        }
    }

    #[test]
    fn bounds_round_to_integers() {
        for (text, is_up, is_inclusive, want) in [
            ("1.5", true, true, "2"),
            ("-1.5", true, true, "-1"),
            ("-1.5", false, false, "-2"),
            ("1.5", false, true, "1"),
            ("5", true, false, "6"),
            ("5", true, true, "5"),
            ("-1", true, false, "0"),
            ("0", true, false, "1"),
            ("0", false, false, "-1"),
            ("-9", false, false, "-10"),
            ("-0.5", true, true, "0"),
            ("0.5", false, true, "0"),
            ("99", true, false, "100"),
            ("100", false, false, "99"),
            ("-9223372036854775808", true, false, "-9223372036854775807"),
        ] {
            assert_eq!(of(text).rounded(is_up, is_inclusive).text(), want, "{text}");
        }
    }
}
