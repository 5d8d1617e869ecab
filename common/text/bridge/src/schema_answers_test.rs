//! Which answers the grammars of schemas take, byte by byte.

use crate::exact_parser::Schemas;
use crate::explain::explained;
use crate::failure::Result;
use crate::grammar::Limits;
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities};
use llguidance::{Matcher, ParserFactory};

const LIMITS: Limits = Limits {
    max_bytes: 1 << 20,
    max_levels: 64,
    max_enum_values: 10_000,
    max_compile_ms: 0,
    is_trial: 0,
};

/// One token for each byte.
fn factory() -> ParserFactory {
    let env = ApproximateTokEnv::single_byte_env();
    let mut made =
        ParserFactory::new(&env, InferenceCapabilities::default(), &[]).unwrap();
    made.quiet();
    made
}

fn matcher(made: Result<(TopLevelGrammar, Schemas)>) -> std::result::Result<Matcher, String> {
    let (grammar, schemas) = made.map_err(|failure| failure.message)?;
    Ok(Matcher::new(Ok(schemas.parser(&factory(), grammar)?)))
}

fn fits(matcher: &Matcher, text: &str) -> bool {
    let mut matcher = matcher.deep_clone();
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    matcher.try_consume_tokens(&tokens).ok() == Some(tokens.len())
        && matcher.is_accepting().unwrap_or(false)
}

fn check(schema: &str, good: &[&str], bad: &[&str]) {
    let matcher = matcher(Schemas::of_schema(schema, &LIMITS))
        .unwrap_or_else(|why| panic!("{schema}: {why}"));
    for text in good {
        assert!(fits(&matcher, text), "{schema}: {text}");
    }
    for text in bad {
        assert!(!fits(&matcher, text), "{schema}: {text}");
    }
}

fn refusal(schema: &str) -> String {
    match matcher(Schemas::of_schema(schema, &LIMITS)) {
        Ok(_) => panic!("{schema} is taken"),
        Err(why) => explained("schema", &why) + &why,
    }
}

#[test]
fn constants_keep_their_digits() {
    for number in [
        "-9223372036854775808", "-9223372036854775296", "9223372036854775808",
        "18446744073709551615", "1234567890123456789", "9007199254740993", "0", "-1",
        "0.100000000000000000000000000001", "1.5", "340282346638528859811704183484516925440",
    ] {
        let neighbours: Vec<String> =
            ["1", "0"].iter().map(|digit| format!("{number}{digit}")).collect();
        let bad = ["1234567890123456768", "9223372036854775807", "7", &neighbours[0]];
        for form in ["{\"const\":#}", "{\"enum\":[#]}", "{\"minimum\":#,\"maximum\":#,\"type\":\"number\"}"] {
            check(&form.replace('#', number), &[number], &bad);
        }
        check(
            &r#"{"const":{"a":[#,"x"],"b":null}}"#.replace('#', number),
            &[&r#"{"a":[#,"x"],"b":null}"#.replace('#', number)],
            &[r#"{"a":[7,"x"],"b":null}"#, r#"{"a":[],"b":null}"#],
        );
    }
    check(r#"{"const":1e2}"#, &["100"], &["1e2", "10", "99"]);
    check(r#"{"const":1.0,"type":"integer"}"#, &["1"], &["2"]);
    check(r#"{"const":-0}"#, &["0"], &["1"]);
    check(r#"{"const":1e400}"#, &[&format!("1{}", "0".repeat(400))], &["1"]);
    assert!(refusal(r#"{"const":1e5000}"#).contains("`const`"));
    assert!(refusal(r#"{"items":{"enum":[1e5000]}}"#).contains("/items"));
}

#[test]
fn enums_have_numbers_beside_others() {
    check(
        r#"{"enum":[1234567890123456789,"a",null,[1.5],{"k":2}]}"#,
        &["1234567890123456789", "\"a\"", "null", "[1.5]", "{\"k\":2}"],
        &["1", "[]", "[1]", "{\"k\":3}", "{}", "\"b\"", "true"],
    );
    check(r#"{"enum":[1,2,3,"a"],"type":"integer","minimum":2}"#, &["2", "3"], &["1", "\"a\""]);
    check(r#"{"enum":[1,1.5,null],"type":["integer","null"]}"#, &["1", "null"], &["1.5"]);
    check(r#"{"enum":[1,"a"],"anyOf":[{"type":"string"},{"type":"null"}]}"#, &["\"a\""], &["1"]);
    check(r#"{"type":["string","integer"],"enum":["1",2]}"#, &["\"1\"", "2"], &["1", "\"2\""]);
    check(r#"{"enum":[1,2],"const":2}"#, &["2"], &["1"]);
    assert!(refusal(r#"{"enum":[1,2],"minimum":5}"#).contains("no value fits"));
    assert!(refusal(r#"{"const":1.5,"type":"integer"}"#).contains("no value fits"));
}

#[test]
fn bounds_that_generators_write_hold() {
    let int = |text: &str| format!(r#"{{"type":"integer",{text}}}"#);
    check(&int(r#""minimum":-9223372036854775808"#),
        &["-9223372036854775808", "0", "99999999999999999999"], &["-9223372036854775809"]);
    check(&int(r#""minimum":-9223372036854775808,"maximum":9223372036854775807"#),
        &["-9223372036854775808", "9223372036854775807"],
        &["-9223372036854775809", "9223372036854775808", "1.5"]);
    check(&int(r#""minimum":0,"maximum":18446744073709551615"#),
        &["0", "18446744073709551615"], &["-1", "18446744073709551616"]);
    check(&int(r#""exclusiveMinimum":-1e20,"maximum":-1e19"#),
        &["-99999999999999999999", "-10000000000000000000"],
        &["-100000000000000000000", "-9999999999999999999"]);
    check(&int(r#""minimum":-9223372036854775808,"maximum":-9223372036854775808"#),
        &["-9223372036854775808"], &["-9223372036854775807"]);
    check(&int(r#""maximum":123456789012345678901234567890"#),
        &["123456789012345678901234567890", "-1"], &["123456789012345678901234567891"]);
    let number = |text: &str| format!(r#"{{"type":"number",{text}}}"#);
    for bound in ["9223372036854775808", "1e19", "3.4028235e38", "1.7976931348623157e308"] {
        for key in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"] {
            check(&number(&format!("\"{key}\":{bound}")), &[], &["x", "00"]);
        }
        check(&number(&format!("\"minimum\":-{bound},\"maximum\":{bound}")),
            &["0", "-1.5", "9223372036854775807"], &["x"]);
    }
    check(&number(r#""exclusiveMinimum":0,"maximum":0.5"#),
        &["0.5", "0.001"], &["0", "0.0", "0.51", "-0.1"]);
    check(&number(r#""minimum":0.1,"exclusiveMaximum":0.100000000000000000001"#),
        &["0.1", "0.1000000000000000000005"], &["0.100000000000000000001", "0.2"]);
    check(r#"{"type":["integer","null"],"minimum":-1e300,"maximum":-9223372036854775808}"#,
        &["null", "-9223372036854775808", "-9223372036854775809"], &["-9223372036854775807"]);
    check(r#"{"minimum":5}"#, &["5", "\"a\"", "[1]", "{\"a\":1}"], &["4"]);
    check(r#"{"type":["string","integer"],"minimum":5,"maximum":4}"#, &["\"a\""], &["5", "4"]);
    assert!(refusal(&int(r#""minimum":5,"maximum":4"#)).contains("no value fits"));
    assert!(refusal(&int(r#""minimum":1.2,"maximum":1.8"#)).contains("no value fits"));
}

#[test]
fn multiples_hold_between_bounds() {
    check(r#"{"type":"integer","multipleOf":5,"minimum":-12,"maximum":12}"#,
        &["-10", "0", "5"], &["-15", "12", "15", "3"]);
    check(r#"{"type":"number","multipleOf":0.07,"minimum":0,"maximum":1}"#,
        &["0", "0.07", "0.21", "0.7"], &["0.1", "1.4"]);
    check(r#"{"type":"integer","multipleOf":2.5,"minimum":1}"#, &["5", "10"], &["2.5", "7"]);
    check(r#"{"type":"integer","multipleOf":1000000,"maximum":18446744073709551615}"#,
        &["3000000", "0"], &["1"]);
    assert!(refusal(r#"{"type":"integer","multipleOf":5,"minimum":1,"maximum":4}"#)
        .contains("no value fits"));
    assert!(refusal(r#"{"items":{"multipleOf":1e7}}"#).contains("`multipleOf` at \"/items"));
    assert!(refusal(r#"{"multipleOf":1e-400}"#).contains("`multipleOf`"));
}

#[test]
fn joined_schemas_hold_all_their_numbers() {
    check(r#"{"allOf":[{"type":"integer","minimum":-9223372036854775808},{"maximum":9223372036854775807}]}"#,
        &["-9223372036854775808", "9223372036854775807"],
        &["-9223372036854775809", "9223372036854775808", "1.5"]);
    check(r##"{"$ref":"#/$defs/n","minimum":3,"$defs":{"n":{"type":"integer","maximum":5}}}"##,
        &["3", "5"], &["2", "6"]);
    check(r#"{"minimum":3,"anyOf":[{"type":"integer","maximum":5},{"type":"string"},{"enum":[7,8]}]}"#,
        &["3", "5", "7", "\"x\""], &["2", "6", "9"]);
    check(r#"{"allOf":[{"multipleOf":2},{"multipleOf":3},{"type":"integer"},{"minimum":1}]}"#,
        &["6", "12"], &["0", "2", "3"]);
    assert!(refusal(r#"{"allOf":[{"type":"integer","minimum":6},{"maximum":5}]}"#)
        .contains("no "));
    let many: Vec<String> = (0..8).map(|i| format!("{{\"minimum\":{i}}}")).collect();
    check(&format!(r#"{{"type":"integer","allOf":[{}]}}"#, many.join(",")), &["7"], &["6"]);
    let many: Vec<String> =
        (0..8).map(|i| format!("{{\"minimum\":1234567890123456789{i}}}")).collect();
    assert!(refusal(&format!(r#"{{"allOf":[{}]}}"#, many.join(","))).contains("`allOf`"));
    let many: Vec<String> = (0..60)
        .map(|i| format!(r#""p{i}":{{"type":"integer","minimum":{i},"maximum":9223372036854775807}}"#))
        .collect();
    check(&format!(r#"{{"properties":{{{}}},"required":["p7"]}}"#, many.join(",")),
        &[r#"{"p7":7}"#, r#"{"p1":1,"p7":9223372036854775807,"p59":59}"#],
        &[r#"{"p7":6}"#, r#"{"p7":9223372036854775808}"#]);
}

#[test]
fn references_to_any_place_are_checked() {
    check(r##"{"$ref":"#/components/schemas/a","components":{"schemas":{"a":
        {"const":-9223372036854775808}}}}"##, &["-9223372036854775808"], &["0", "1"]);
    assert!(refusal(r##"{"$ref":"#/x","x":{"not":{}}}"##).contains("`not`"));
    assert!(refusal(r##"{"$ref":"#/$defs/none"}"##).contains("#/$defs/none"));
    check(r##"{"$ref":"#/x","x":{"properties":{"p":{"pattern":"^\\d$","type":"string"},
        "q":{"$ref":"#/x/properties/p"}}}}"##, &[r#"{"p":"1","q":"2"}"#], &[r#"{"p":"a"}"#]);
}

#[test]
fn lark_has_the_same_schemas() {
    let lark = |text: &str| matcher(Schemas::of_lark(text, &LIMITS));
    let made = lark(
        "start: \"%json {\" /[\"\\/]%json/ a // %json {\n| %json {\"type\":\"null\"} # %json\n\
         a: %json {\"const\":\n-9223372036854775808} | %json {\"enum\":[9007199254740993]}\n",
    );
    let made = made.unwrap();
    for (text, want) in [
        ("%json {/%json-9223372036854775808", true),
        ("%json {\"%json9007199254740993", true),
        ("%json {\"%json9007199254740992", false),
        ("null", true),
    ] {
        assert_eq!(fits(&made, text), want, "{text}");
    }
    for (text, word) in [
        ("start: %json {\"not\":{}}\n", "`not`"),
        ("start: %json {\"const\":1e5000}\n", "`const`"),
        ("start: %json {\n", "%json"),
        ("start: missing\n", "without a rule"),
        ("start: %json [\n", "%json"),
    ] {
        let why = lark(text).err().unwrap();
        let why = explained("grammar", &why) + &why;
        assert!(why.contains(word), "{text}: {why}");
    }
}

#[test]
fn formats_hold_strings_alone() {
    check(r#"{"type":"string","format":"date"}"#, &["\"2024-02-29\""],
        &["\"2023-02-29\"", "\"0000-01-01\""]);
    check(r#"{"type":"integer","format":"int32"}"#, &["7"], &["\"a\""]);
    check(r#"{"type":"integer","format":"date"}"#, &["7"], &[]);
    check(r#"{"type":"string","format":"password"}"#, &["\"anything\""], &[]);
    check(r#"{"type":["string","null"],"format":"ipv6"}"#, &["\"::ffff:1.2.3.4\"", "null"], &["\"x\""]);
    check(r#"{"type":"string","format":"date","pattern":"^2024"}"#, &["\"2024-01-01\""],
        &["\"2023-01-01\""]);
    let long = format!("\"{}\"", ["a".repeat(60), "b".repeat(60), "c".repeat(60), "d".repeat(60),
        "e".repeat(9)].join("."));
    let longer = long.replace("e\"", "ee\"");
    check(r#"{"type":"string","format":"hostname"}"#, &["\"a.b\"", &long], &[&longer, "\"-a\""]);
}

#[test]
fn patterns_are_those_of_ecma_262() {
    check(r#"{"type":"string","pattern":"^[+--]$"}"#, &["\",\"", "\"+\""], &["\"a\""]);
    check(r#"{"type":"string","pattern":"^.$"}"#, &["\"a\"", "\"\u{85}\""], &["\"\u{2028}\"", "\"\\r\""]);
    check(r#"{"type":"string","pattern":"^\\s$"}"#, &["\"\u{feff}\"", "\" \""], &["\"\u{85}\""]);
    check(r#"{"patternProperties":{"^a/\\d$":{"type":"null"}},"additionalProperties":false,"type":"object"}"#,
        &["{\"a/1\":null}"], &["{\"a/x\":null}"]);
    assert!(refusal(r#"{"pattern":"\\bx"}"#).contains("`pattern`"));
    assert!(refusal(r#"{"pattern":"a^b","type":"string"}"#).contains("`^`"));
}
