//! `multipleOf`, exactly.

use crate::decimal::{behind, divided, multiplied, stripped, Decimal};
use crate::number_range::{Bound, Ends};

/// The digits of a `multipleOf`, and how many of them stand behind its point.
pub const MAX_MULTIPLE: u32 = 1_000_000;
pub const MAX_MULTIPLE_SCALE: usize = 6;

/// A number times a power of ten that `multipleOf` names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multiple {
    pub digits: u32,
    pub scale: u32,
}

impl Multiple {
    pub fn of(value: &Decimal) -> Option<Self> {
        if value.is_negative || value.is_zero() || value.part.len() > MAX_MULTIPLE_SCALE {
            return None;
        }
        let digits: u32 = stripped(&format!("{}{}", value.whole, value.part)).parse().ok()?;
        let scale = value.part.len() as u32;
        (digits <= MAX_MULTIPLE).then_some(Self { digits, scale })
    }

    /// The least integer of which all multiples that are integers are multiples.
    pub fn whole(self) -> Self {
        let mut digits = self.digits;
        for factor in [2, 5] {
            for _ in 0..self.scale {
                if digits % factor == 0 {
                    digits /= factor;
                }
            }
        }
        Self { digits, scale: 0 }
    }

    pub fn divides(self, value: &Decimal) -> bool {
        let scale = self.scale as usize;
        value.part.len() <= scale
            && divided(&format!("{}{:0<scale$}", value.whole, value.part), self.digits).1 == 0
    }

    /// Whether a multiple is between two bounds.
    pub fn is_between(self, ends: Ends) -> bool {
        let (Some(low), Some(high)) = ends else { return true };
        let (from, to) = match (low.value.is_negative, high.value.is_negative) {
            (false, false) if !(low.value.is_zero() && low.is_inclusive) => (low, high),
            (true, true) => (high, low),
            (false, true) => return false,
            (true, false) if !high.value.is_zero() || high.is_inclusive => return true,
            (true, false) => (high, low),
            (false, false) => return high.is_inclusive || !high.value.is_zero(),
        };
        let scale = (self.scale as usize).max(from.value.part.len()).max(to.value.part.len());
        let scaled = |bound: &Bound| {
            stripped(&format!("{}{:0<scale$}", bound.value.whole, bound.value.part))
        };
        let num_zeros = scale - self.scale as usize;
        let from_digits = format!("{:0>num_zeros$}", scaled(from));
        let (head, tail) = from_digits.split_at(from_digits.len() - num_zeros);
        let (mut count, rest) = divided(head, self.digits);
        let is_multiple = rest == 0 && tail.bytes().all(|digit| digit == b'0');
        if !is_multiple || !from.is_inclusive {
            count = behind(&count);
        }
        let first = stripped(&format!("{}{}", multiplied(&count, self.digits), "0".repeat(num_zeros)));
        let last = scaled(to);
        let order = (first.len(), &first).cmp(&(last.len(), &last));
        order.is_lt() || (order.is_eq() && to.is_inclusive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(text: &str, is_inclusive: bool) -> Bound {
        Bound { value: Decimal::parse(text).unwrap(), is_inclusive }
    }

    #[test]
    fn multiples_between_bounds_are_found() {
        for (step, low, low_in, high, high_in, want) in [
            ("5", "1", true, "4", true, false),
            ("5", "1", true, "5", true, true),
            ("5", "1", true, "5", false, false),
            ("5", "0", false, "4", true, false),
            ("5", "0", true, "4", true, true),
            ("5", "-4", true, "-1", true, false),
            ("5", "-5", true, "-1", true, true),
            ("5", "-4", true, "0", false, false),
            ("5", "-4", true, "1", false, true),
            ("0.25", "0.3", true, "0.4", true, false),
            ("0.25", "0.30001", true, "0.5", true, true),
            ("7", "1000000000000000000002", true, "1000000000000000000007", true, false),
            ("7", "1000000000000000000002", true, "1000000000000000000008", true, true),
            ("0.01", "0.071", true, "0.079", true, false),
        ] {
            let multiple = Multiple::of(&Decimal::parse(step).unwrap()).unwrap();
            let ends = (bound(low, low_in), bound(high, high_in));
            assert_eq!(multiple.is_between((Some(&ends.0), Some(&ends.1))), want, "{step} {ends:?}");
        }
    }

    #[test]
    fn multiples_keep_their_digits() {
        for (step, text, want) in [
            ("0.01", "0.07", true),
            ("0.01", "0.075", false),
            ("0.07", "0.21", true),
            ("3", "1234567890123456789012", true),
            ("3", "1234567890123456789013", false),
            ("1.5", "-4.5", true),
        ] {
            let multiple = Multiple::of(&Decimal::parse(step).unwrap()).unwrap();
            assert_eq!(multiple.divides(&Decimal::parse(text).unwrap()), want, "{step} {text}");
        }
        assert!(Multiple::of(&Decimal::parse("1e7").unwrap()).is_none());
        assert!(Multiple::of(&Decimal::parse("1e-7").unwrap()).is_none());
        assert_eq!(Multiple::of(&Decimal::parse("2.5").unwrap()).unwrap().whole().digits, 5);
        assert_eq!(Multiple::of(&Decimal::parse("0.4").unwrap()).unwrap().whole().digits, 2);
    }
}
