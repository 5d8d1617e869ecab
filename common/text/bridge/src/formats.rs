//! The formats that a string is held to; others are annotations.

/// What a format asks of a string: a pattern, and the most characters.
pub struct Format {
    pub pattern: String,
    pub max_length: Option<u64>,
}

// RFC 3339; years from 1 on, which libraries that read dates have, and no leap
// second: which day has one, no grammar knows.
const YEAR: &str = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})";
const DAY: &str = "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|\
    (?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))";
const BY_FOUR: &str = "(?:0[48]|[2468][048]|[13579][26])";
const TIME: &str = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]+)?\
    (?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
// RFC 5321
const ATOM: &str = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+";
const MAIL_LABEL: &str = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?";
// RFC 1123
const LABEL: &str = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
const MAX_HOSTNAME: u64 = 253;
const OCTET: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const HEX: &str = "[0-9a-fA-F]";

#[cfg(test)]
pub const FORMATS: [&str; 10] = [
    "date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri",
];

/// The form of `name`; None of an annotation. Patterns are Rust's and search.
pub fn format(name: &str) -> Option<Format> {
    let pattern = match name {
        "date-time" => format!("{}[tT]{TIME}", date()),
        "date" => date(),
        "time" => TIME.to_string(),
        "duration" => duration(),
        "email" => format!(
            "{ATOM}(?:[.]{ATOM})*@(?:{MAIL_LABEL}(?:[.]{MAIL_LABEL})*|\\[{}\\])",
            ipv4()
        ),
        "hostname" => format!("{LABEL}(?:[.]{LABEL})*"),
        "ipv4" => ipv4(),
        "ipv6" => ipv6(),
        "uuid" => format!("{HEX}{{8}}(?:-{HEX}{{4}}){{3}}-{HEX}{{12}}"),
        "uri" => uri(),
        _ => return None,
    };
    let max_length = (name == "hostname").then_some(MAX_HOSTNAME);
    Some(Format { pattern: format!("^(?:{pattern})$"), max_length })
}

fn date() -> String {
    let leap_year = format!("(?:[0-9]{{2}}{BY_FOUR}|{BY_FOUR}00)");
    format!("(?:{YEAR}-{DAY}|{leap_year}-02-29)")
}

/// RFC 3339, appendix A.
fn duration() -> String {
    let minute = "[0-9]+M(?:[0-9]+S)?";
    let time = format!("T(?:[0-9]+H(?:{minute})?|{minute}|[0-9]+S)");
    let month = "[0-9]+M(?:[0-9]+D)?";
    format!("P(?:(?:[0-9]+Y(?:{month})?|{month}|[0-9]+D)(?:{time})?|{time}|[0-9]+W)")
}

fn ipv4() -> String {
    format!("(?:{OCTET}[.]){{3}}{OCTET}")
}

/// RFC 3986, section 3.2.2.
fn ipv6() -> String {
    let group = format!("{HEX}{{1,4}}");
    let last = format!("(?:{group}:{group}|{})", ipv4());
    let mut all = vec![format!("(?:{group}:){{6}}{last}")];
    for num_before in 0..=7usize {
        let before = match num_before {
            0 => String::new(),
            count => format!("(?:(?:{group}:){{0,{}}}{group})?", count - 1),
        };
        let behind = match num_before {
            0..=4 => format!("(?:{group}:){{{}}}{last}", 5 - num_before),
            5 => last.clone(),
            6 => group.clone(),
            _ => String::new(),
        };
        all.push(format!("{before}::{behind}"));
    }
    format!("(?:{})", all.join("|"))
}

/// RFC 3986.
fn uri() -> String {
    let chars = "a-zA-Z0-9._~!$&'()*+,;=\\-";
    let escaped = "%[0-9a-fA-F]{2}";
    let user = format!("(?:[{chars}:]|{escaped})*");
    let name = format!("(?:[{chars}]|{escaped})*");
    let path_char = format!("(?:[{chars}:@]|{escaped})");
    let tail = format!("(?:[{chars}:@/?]|{escaped})*");
    let host = format!("(?:\\[(?:{}|v{HEX}+[.][{chars}:]+)\\]|{name})", ipv6());
    let authority = format!("(?:{user}@)?{host}(?::[0-9]*)?");
    let path = format!("{path_char}+(?:/{path_char}*)*");
    format!(
        "[a-zA-Z][a-zA-Z0-9+.-]*:(?://{authority}(?:/{path_char}*)*|/(?:{path})?|(?:{path})?)\
         (?:[?]{tail})?(?:\\x{{23}}{tail})?"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, fits: &[&str], others: &[&str]) {
        let made = format(name).unwrap();
        let compiled = regex::Regex::new(&made.pattern).unwrap();
        for text in fits {
            assert!(compiled.is_match(text), "{name}: {text}");
        }
        for text in others {
            assert!(!compiled.is_match(text), "{name}: {text}");
        }
    }

    #[test]
    fn dates_are_days_of_the_calendar() {
        let compiled = regex::Regex::new(&format("date").unwrap().pattern).unwrap();
        for year in [1, 4, 100, 400, 1900, 1999, 2000, 2023, 2024, 2100, 9996, 9999] {
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            for month in 0..=13 {
                let last = match month {
                    2 if is_leap => 29,
                    2 => 28,
                    4 | 6 | 9 | 11 => 30,
                    1..=12 => 31,
                    _ => 0,
                };
                for day in 0..=32 {
                    let text = format!("{year:04}-{month:02}-{day:02}");
                    assert_eq!(compiled.is_match(&text), (1..=last).contains(&day), "{text}");
                }
            }
        }
        check("date", &[], &["0000-01-01", "2023-1-01", "20230101", "2023-01-01T", "x2023-01-01"]);
    }

    #[test]
    fn times_have_60_seconds() {
        check(
            "time",
            &["23:59:59Z", "00:00:00.123456789+05:30", "08:00:00z"],
            &["24:00:00Z", "12:60:00Z", "12:00:60Z", "23:59:60Z", "12:00:00", "12:00:00+24:00"],
        );
        check(
            "date-time",
            &["2024-02-29T23:59:59Z", "2000-02-29t00:00:00.5-08:00"],
            &["2023-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2023-01-01 00:00:00Z",
              "2016-12-31T23:59:60Z"],
        );
        check(
            "duration",
            &["P1Y2M3DT4H5M6S", "PT0S", "P3W", "P1M", "PT5M"],
            &["P", "P1W1D", "PT", "1D", "P1DT", "PT1H1S"],
        );
    }

    #[test]
    fn names_of_hosts_have_their_forms() {
        check("hostname", &["a", "a.b-c.d0", "xn--bcher-kva.example"], &["-a", "a-", "a..b", ""]);
        let label = "a".repeat(63);
        check("hostname", &[&label], &[&format!("{label}a")]);
        assert_eq!(format("hostname").unwrap().max_length, Some(253));
        check("email", &["a@b", "a.b+c@d.e", "a@[127.0.0.1]"], &["a..b@c", ".a@b", "a@", "a@-b"]);
    }

    #[test]
    fn addresses_have_their_forms() {
        check("ipv4", &["0.0.0.0", "255.255.255.255"], &["256.0.0.0", "01.0.0.0", "1.2.3"]);
        check(
            "ipv6",
            &["::", "::1", "1::", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4",
              "fe80::1", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1::8"],
            &[":::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "::1::", "12345::", "1.2.3.4",
              "::1.2.3.256", "1:2:3:4:5:6:7:1.2.3.4", "1::2:3:4:5:6:7:8:9"],
        );
    }

    #[test]
    fn uris_and_uuids_have_their_forms() {
        check(
            "uri",
            &["http://a.b/c?d=e#f", "urn:isbn:1", "mailto:a@b", "http://[::1]:80/", "file:///a",
              "http://u:p@h", "a:", "x://1.2.3.4"],
            &["a", "//b", "http://a b", "http://%zz", "1a:b", "http://[::g]/", "a:#b#c"],
        );
        check(
            "uuid",
            &["01234567-89ab-cdef-0123-456789ABCDEF"],
            &["0123456789abcdef0123456789abcdef", "01234567-89ab-cdef-0123-456789abcdeg"],
        );
    }

    #[test]
    fn other_formats_are_annotations() {
        for name in ["int32", "int64", "double", "password", "binary", "uuid4", "unknown", ""] {
            assert!(format(name).is_none(), "{name}");
        }
        assert!(FORMATS.iter().all(|name| format(name).is_some()));
    }
}
