//! Regular expressions of the numbers between two bounds: of their plain texts,
//! without exponents.

use crate::decimal::{before, behind, Decimal};
use std::cmp::Ordering;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bound {
    pub value: Decimal,
    pub is_inclusive: bool,
}

pub type Ends<'a> = (Option<&'a Bound>, Option<&'a Bound>);

/// The numbers from the first to the second bound; None where there is none.
pub fn numbers(ends: Ends) -> Option<String> {
    joined(signed(ends, &numbers_of))
}

/// The integers among them.
pub fn integers(ends: Ends) -> Option<String> {
    let whole = |bound: Option<&Bound>, is_up: bool| {
        bound.map(|bound| Bound {
            value: bound.value.rounded(is_up, bound.is_inclusive),
            is_inclusive: true,
        })
    };
    let (low, high) = (whole(ends.0, true), whole(ends.1, false));
    joined(signed((low.as_ref(), high.as_ref()), &|low, high| {
        let first = if low.is_inclusive { low.value.whole } else { behind(&low.value.whole) };
        wholes(&first, high.map(|bound| bound.value.whole).as_deref())
    }))
}

fn joined(all: Vec<String>) -> Option<String> {
    if all.is_empty() {
        return None;
    }
    Some(format!("(?:{})", all.join("|")))
}

type Magnitudes<'a> = &'a dyn Fn(Bound, Option<Bound>) -> Vec<String>;

/// Both signs, each by the sizes of its numbers.
fn signed((low, high): Ends, magnitudes: Magnitudes) -> Vec<String> {
    let zero = || Decimal::whole_number("0");
    let negated = |bound: &Bound| Bound { value: bound.value.negated(), ..bound.clone() };
    if let (Some(low), Some(high)) = (low, high) {
        if low.value > high.value {
            return Vec::new();
        }
    }
    let mut all = Vec::new();
    if low.is_none_or(|bound| bound.value.is_negative) {
        let from = match high {
            Some(bound) if bound.value.is_negative => negated(bound),
            _ => Bound { value: zero(), is_inclusive: false },
        };
        let below = joined(magnitudes(from, low.map(negated)));
        all.extend(below.map(|text| format!("-{text}")));
    }
    if high.is_none_or(|bound| !bound.value.is_negative) {
        let from = match low {
            Some(bound) if !bound.value.is_negative => bound.clone(),
            _ => Bound { value: zero(), is_inclusive: true },
        };
        all.extend(magnitudes(from, high.cloned()));
    }
    all
}

/// The numbers of at least 0 between two bounds.
fn numbers_of(low: Bound, high: Option<Bound>) -> Vec<String> {
    let any = Part::any().text();
    let mut all = Vec::new();
    let starts_whole = low.value.part.is_empty() && low.is_inclusive;
    let first_whole =
        if starts_whole { low.value.whole.clone() } else { behind(&low.value.whole) };
    let above = |all: &mut Vec<String>| {
        if !starts_whole {
            let part = Part::above(&low.value.part, low.is_inclusive);
            all.push(format!("{}{}", low.value.whole, part.text()));
        }
    };
    let Some(high) = high else {
        above(&mut all);
        all.extend(wholes(&first_whole, None).iter().map(|whole| format!("{whole}{any}")));
        return all;
    };
    match low.value.magnitude_cmp(&high.value) {
        Ordering::Greater => return all,
        Ordering::Equal if low.is_inclusive && high.is_inclusive => {
            let part = Part::equal(&low.value.part);
            return vec![format!("{}{}", low.value.whole, part.text())];
        }
        Ordering::Equal => return all,
        Ordering::Less => {}
    }
    if low.value.whole == high.value.whole {
        let part = Part::between(&low, &high);
        return vec![format!("{}{}", low.value.whole, part.text())];
    }
    above(&mut all);
    if high.value.whole != first_whole {
        let last_whole = before(&high.value.whole);
        let inner = wholes(&first_whole, Some(&last_whole));
        all.extend(inner.iter().map(|whole| format!("{whole}{any}")));
    }
    if let Some(part) = Part::below(&high.value.part, high.is_inclusive) {
        all.push(format!("{}{}", high.value.whole, part.text()));
    }
    all
}

/// What may follow the digits before the point.
struct Part {
    may_lack: bool,
    digits: Vec<String>, // of at least one digit each
}

impl Part {
    fn any() -> Self {
        Self { may_lack: true, digits: vec!["[0-9]+".to_string()] }
    }

    fn equal(part: &str) -> Self {
        if part.is_empty() {
            Self { may_lack: true, digits: vec!["0+".to_string()] }
        } else {
            Self { may_lack: false, digits: vec![format!("{part}0*")] }
        }
    }

    fn above(part: &str, is_inclusive: bool) -> Self {
        if part.is_empty() && is_inclusive {
            return Self::any();
        }
        Self { may_lack: false, digits: tails_above(part, is_inclusive) }
    }

    fn below(part: &str, is_inclusive: bool) -> Option<Self> {
        if part.is_empty() {
            return is_inclusive.then(|| Self::equal(part));
        }
        let mut digits = tails_below(part, is_inclusive);
        digits.retain(|tail| !tail.is_empty());
        Some(Self { may_lack: true, digits })
    }

    /// Of bounds with the same digits before the point, the first less.
    fn between(low: &Bound, high: &Bound) -> Self {
        let (from, to) = (low.value.part.as_bytes(), high.value.part.as_str());
        let digit = |at: usize| from.get(at).copied().unwrap_or(b'0');
        let Some(at) = (0..to.len()).find(|at| digit(*at) != to.as_bytes()[*at]) else {
            return Self { may_lack: false, digits: Vec::new() };
        };
        let (first, last) = (digit(at), to.as_bytes()[at]);
        let (same, rest) = (&to[..at], &to[at + 1..]);
        let low_rest = low.value.part.get(at + 1..).unwrap_or("");
        let mut digits = Vec::new();
        if first + 1 < last {
            digits.push(format!("{same}{}[0-9]*", class(first + 1, last - 1)));
        }
        for tail in tails_above(low_rest, low.is_inclusive) {
            digits.push(format!("{same}{}{tail}", first as char));
        }
        for tail in tails_below(rest, high.is_inclusive) {
            digits.push(format!("{same}{}{tail}", last as char));
        }
        let may_lack = low.value.part.is_empty() && low.is_inclusive;
        if low.is_inclusive {
            let zeros = if low.value.part.is_empty() { "0+" } else { "0*" };
            digits.push(format!("{}{zeros}", low.value.part));
        }
        Self { may_lack, digits }
    }

    fn text(&self) -> String {
        let optional = if self.may_lack { "?" } else { "" };
        format!("(?:\\.(?:{})){optional}", self.digits.join("|"))
    }
}

/// Digits behind which, behind a point, a number is at least `part`.
fn tails_above(part: &str, is_inclusive: bool) -> Vec<String> {
    let mut all = Vec::new();
    for (at, digit) in part.bytes().enumerate() {
        if digit < b'9' {
            all.push(format!("{}{}[0-9]*", &part[..at], class(digit + 1, b'9')));
        }
    }
    let rest = if is_inclusive { "[0-9]*" } else { "[0-9]*[1-9][0-9]*" };
    all.push(format!("{part}{rest}"));
    all
}

fn tails_below(part: &str, is_inclusive: bool) -> Vec<String> {
    let mut all = Vec::new();
    for (at, digit) in part.bytes().enumerate() {
        all.push(part[..at].to_string());
        if digit > b'0' {
            all.push(format!("{}{}[0-9]*", &part[..at], class(b'0', digit - 1)));
        }
    }
    if is_inclusive {
        all.push(format!("{part}0*"));
    }
    all
}

/// Whole numbers from `first` to `last`, without leading zeros.
fn wholes(first: &str, last: Option<&str>) -> Vec<String> {
    let size = first.len();
    let nines = "9".repeat(size);
    let Some(last) = last else {
        let mut all = same_size(first, &nines);
        all.push(format!("[1-9][0-9]{{{size},}}"));
        return all;
    };
    let last_size = last.len();
    if (size, first) > (last_size, last) {
        return Vec::new();
    }
    if size == last_size {
        return same_size(first, last);
    }
    let mut all = same_size(first, &nines);
    if last_size > size + 1 {
        all.push(format!("[1-9][0-9]{{{size},{}}}", last_size - 2));
    }
    all.extend(same_size(&format!("1{}", "0".repeat(last_size - 1)), last));
    all
}

/// Digits between two texts of one size.
fn same_size(low: &str, high: &str) -> Vec<String> {
    let Some(at) = (0..low.len()).find(|at| low.as_bytes()[*at] != high.as_bytes()[*at]) else {
        return vec![low.to_string()];
    };
    let (first, last) = (low.as_bytes()[at], high.as_bytes()[at]);
    let (same, low_rest, high_rest) = (&low[..at], &low[at + 1..], &high[at + 1..]);
    let takes_first = low_rest.bytes().all(|digit| digit == b'0');
    let takes_last = high_rest.bytes().all(|digit| digit == b'9');
    let from = if takes_first { first } else { first + 1 };
    let to = if takes_last { last } else { last - 1 };
    let mut all = Vec::new();
    if from <= to {
        all.push(format!("{same}{}{}", class(from, to), any(low_rest.len())));
    }
    if !takes_first {
        all.extend(at_least(low_rest).iter().map(|rest| format!("{same}{}{rest}", first as char)));
    }
    if !takes_last {
        all.extend(at_most(high_rest).iter().map(|rest| format!("{same}{}{rest}", last as char)));
    }
    all
}

/// Digits of the size of `digits`, which are not all 0, and at least these.
fn at_least(digits: &str) -> Vec<String> {
    let kept = digits.trim_end_matches('0');
    let mut all = Vec::new();
    for (at, digit) in kept.bytes().enumerate() {
        let first = if at + 1 == kept.len() { digit } else { digit + 1 };
        if first <= b'9' {
            let rest = any(digits.len() - at - 1);
            all.push(format!("{}{}{rest}", &kept[..at], class(first, b'9')));
        }
    }
    all
}

/// Digits of the size of `digits`, which are not all 9, and at most these.
fn at_most(digits: &str) -> Vec<String> {
    let kept = digits.trim_end_matches('9');
    let mut all = Vec::new();
    for (at, digit) in kept.bytes().enumerate() {
        let last = if at + 1 == kept.len() { digit } else { digit - 1 };
        if last >= b'0' {
            let rest = any(digits.len() - at - 1);
            all.push(format!("{}{}{rest}", &kept[..at], class(b'0', last)));
        }
    }
    all
}

fn any(size: usize) -> String {
    match size {
        0 => String::new(),
        1 => "[0-9]".to_string(),
        _ => format!("[0-9]{{{size}}}"),
    }
}

fn class(first: u8, last: u8) -> String {
    if first == last {
        (first as char).to_string()
    } else {
        format!("[{}-{}]", first as char, last as char)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixed sequence of bits.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % end
        }

        fn number(&mut self, max_digits: u64) -> String {
            let digits = |random: &mut Self, size: u64| -> String {
                (0..size).map(|_| {
                    let digit = [b'0', b'9', b'5', b'0' + random.below(10) as u8];
                    digit[random.below(4) as usize] as char
                }).collect()
            };
            let size = 1 + self.below(max_digits);
            let whole = crate::decimal::stripped(&digits(self, size));
            let size = self.below(max_digits + 1);
            let part = digits(self, size);
            let sign = if self.below(2) == 0 { "-" } else { "" };
            let point = if part.is_empty() { "" } else { "." };
            let text = format!("{sign}{whole}{point}{part}");
            if Decimal::parse(&text).unwrap().is_zero() { text.replace('-', "") } else { text }
        }
    }

    fn holds(ends: Ends, value: &Decimal) -> bool {
        let above = ends.0.is_none_or(|b| {
            b.value < *value || (b.is_inclusive && b.value == *value)
        });
        above && ends.1.is_none_or(|b| *value < b.value || (b.is_inclusive && b.value == *value))
    }

    /// Near the bounds are the texts that a wrong expression mistakes.
    fn neighbours(text: &str) -> Vec<String> {
        let value = Decimal::parse(text).unwrap();
        let mut all = vec![text.to_string()];
        for is_up in [false, true] {
            all.push(value.rounded(is_up, false).text());
        }
        let dot = if text.contains('.') { "" } else { "." };
        for tail in ["0", "00", "1", "9", "01", "99"] {
            all.push(format!("{text}{dot}{tail}"));
        }
        let mut cut = text.to_string();
        while cut.pop().is_some() {
            if cut.ends_with(|c: char| c.is_ascii_digit()) && cut.trim_start_matches('-') != "0" {
                all.push(cut.clone());
                all.push(format!("{cut}0"));
                all.push(format!("{cut}9"));
            }
        }
        // Negative zero is spelled without its sign.
        all.retain(|text| !(text.starts_with('-') && Decimal::parse(text).unwrap().is_zero()));
        all
    }

    #[test]
    fn texts_fit_iff_their_number_is_between_the_bounds() {
        let mut random = Random(7);
        for round in 0..3_000 {
            let max_digits = [1, 2, 3, 20][random.below(4) as usize];
            let mut texts = [random.number(max_digits), random.number(max_digits)];
            if random.below(3) == 0 {
                texts[1] = texts[0].clone() + if texts[0].contains('.') { "01" } else { ".5" };
            }
            let bounds = texts.clone().map(|text| Bound {
                value: Decimal::parse(&text).unwrap(),
                is_inclusive: random.below(2) == 0,
            });
            let low = (random.below(5) > 0).then_some(&bounds[0]);
            let high = (random.below(5) > 0).then_some(&bounds[1]);
            let ends = (low, high);
            let compiled = |text: Option<String>| {
                text.map(|text| regex::Regex::new(&format!("^(?:{text})$")).unwrap())
            };
            let (all, whole) = (compiled(numbers(ends)), compiled(integers(ends)));
            let mut samples: Vec<String> = texts.iter().flat_map(|t| neighbours(t)).collect();
            samples.extend((0..20).map(|_| random.number(max_digits)));
            samples.extend(["0", "1", "-1", "0.0", "0.5", "10", "-10"].map(str::to_string));
            for text in samples {
                let value = Decimal::parse(&text).unwrap();
                let is_in = holds(ends, &value);
                let fits = all.as_ref().is_some_and(|all| all.is_match(&text));
                assert_eq!(fits, is_in, "{round}: {text} in {ends:?}");
                if !text.contains('.') {
                    let fits = whole.as_ref().is_some_and(|whole| whole.is_match(&text));
                    assert_eq!(fits, is_in, "{round}: integer {text} in {ends:?}");
                }
            }
        }
    }

    #[test]
    fn bounds_of_any_size_make_short_expressions() {
        let bound = |text: &str| Bound { value: Decimal::parse(text).unwrap(), is_inclusive: true };
        for text in ["1.7976931348623157e308", "3.4028235e38", "9223372036854775808", "1e400"] {
            let (low, high) = (bound(&format!("-{text}")), bound(text));
            let made = numbers((Some(&low), Some(&high))).unwrap();
            assert!(made.len() < 20_000, "{text}: {}", made.len());
        }
    }

    #[test]
    fn leading_zeros_are_no_numbers() {
        let bound = Bound { value: Decimal::parse("0").unwrap(), is_inclusive: true };
        let made = regex::Regex::new(&format!("^{}$", integers((Some(&bound), None)).unwrap()));
        let made = made.unwrap();
        assert!(made.is_match("0") && made.is_match("10"));
        assert!(!made.is_match("00") && !made.is_match("01") && !made.is_match("-0"));
    }
}
