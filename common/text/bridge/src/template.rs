//! Chat templates: minijinja set up as transformers sets jinja2 up.

use crate::failure::{Code, Failure, Result};
use crate::pyjson::{self, Layout};
use crate::{pyfilters, pymethods, rewrite};
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Write;

const MAX_RECURSION: usize = 100;
const MAX_SOURCE_BYTES: usize = 1 << 20;
const NAME: &str = "chat_template";

thread_local! {
    static NOW: Cell<i64> = const { Cell::new(0) };
    static RAISED: RefCell<Option<String>> = const { RefCell::new(None) };
}

pub struct Template {
    environment: Environment<'static>,
}

/// What one rendering may take.
pub struct Limits {
    /// Bytes that it writes.
    pub max_output: usize,
    /// Instructions of the engine: some hundred per message.
    pub max_steps: u64,
}

/// Variables of a rendering.
pub struct Variables(BTreeMap<String, Value>);

impl Variables {
    pub fn parse(json: &[u8]) -> Result<Self> {
        serde_json::from_slice(json)
            .map(Self)
            .map_err(|e| Failure::invalid(format!("template variables: {e}")))
    }
}

impl Template {
    pub fn compile(source: &str) -> Result<Self> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(Failure::invalid(format!(
                "chat template of {} bytes; the limit is {MAX_SOURCE_BYTES}",
                source.len()
            )));
        }
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_recursion_limit(MAX_RECURSION);
        environment.set_unknown_method_callback(pymethods::call);
        environment.set_formatter(|out, state, value| {
            // Only {% autoescape %} asks for it.
            if !matches!(state.auto_escape(), AutoEscape::None) && !value.is_safe() {
                return Ok(out.write_str(&pyfilters::escaped(&pyfilters::text_of(value)?))?);
            }
            if let Some(text) = value.as_str() {
                return Ok(out.write_str(text)?);
            }
            Ok(out.write_str(&pyfilters::text_of(value)?)?)
        });
        pyfilters::add_all(&mut environment);
        environment.add_filter("tojson", tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        let source = without_generation_tags(source);
        let source = rewrite::rewrite(&source).unwrap_or(source);
        environment
            .add_template_owned(NAME, source)
            .map_err(|e| Failure::invalid(format!("chat template: {e}")))?;
        Ok(Self { environment })
    }

    /// Returns the variables that the template reads from outside, a line each.
    pub fn reads(&self) -> Result<Vec<u8>> {
        let template = self
            .environment
            .get_template(NAME)
            .map_err(|e| Failure::invalid(format!("chat template: {e}")))?;
        let mut names = template.undeclared_variables(false);
        names.extend(set_by_themselves(template.source()));
        let mut names: Vec<String> = names.into_iter().collect();
        names.sort();
        Ok(names.join("\n").into_bytes())
    }

    /// Renders, on the caller's thread, with the variables of `names` and of
    /// `common`, which win.
    pub fn render(
        &self,
        names: Variables,
        common: &Variables,
        now: i64,
        limits: Limits,
    ) -> Result<Vec<u8>> {
        // Values are shared, not copied.
        let mut context = names.0;
        context.extend(common.0.iter().map(|(name, value)| (name.clone(), value.clone())));
        // The clone shares the template.
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(limits.max_steps));
        NOW.set(now);
        RAISED.set(None);
        let mut output = Capped { bytes: Vec::new(), limit: limits.max_output, full: false };
        let template = environment
            .get_template(NAME)
            .map_err(|e| Failure::invalid(format!("chat template: {e}")))?;
        let outcome = template.render_captured_to(Value::from(context), &mut output).map(|_| ());
        match outcome {
            Ok(()) => Ok(output.bytes),
            Err(_) if output.full => Err(Failure::exhausted(format!(
                "the chat template writes more than {} bytes",
                limits.max_output
            ))),
            Err(e) => Err(failure_of(e, limits.max_steps)),
        }
    }
}

fn failure_of(error: Error, max_steps: u64) -> Failure {
    if let Some(message) = RAISED.take() {
        return Failure::invalid(message);
    }
    if error.kind() == ErrorKind::OutOfFuel {
        return Failure {
            code: Code::OutOfSteps,
            message: format!("the chat template takes more than {max_steps} steps"),
        };
    }
    Failure::invalid(format!("chat template: {error}"))
}

/// Collects output up to a limit.
struct Capped {
    bytes: Vec<u8>,
    limit: usize,
    full: bool,
}

impl Write for Capped {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + part.len() > self.limit {
            self.full = true;
            return Err(std::io::Error::other("output limit"));
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// `{% generation %}` blocks only mark text for training: taken as plain
/// blocks.
fn without_generation_tags(source: &str) -> String {
    let tag = regex::Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").expect("constant");
    tag.replace_all(source, |found: &regex::Captures| {
        let word = if found.get(2).is_some() { "endif" } else { "if true" };
        format!("{{%{} {} {}%}}", &found[1], word, &found[3])
    })
    .into_owned()
}

/// Returns the names that `{% set NAME = NAME | default(..) %}` reads: the
/// engine's own list takes such a name for the template's.
fn set_by_themselves(source: &str) -> Vec<String> {
    let set = regex::Regex::new(r"(?s)\{%[-+]?\s*set\s+(\w+)\s*=(.*?)%\}").expect("constant");
    let word = regex::Regex::new(r"\w+").expect("constant");
    set.captures_iter(source)
        .filter(|found| word.find_iter(&found[2]).any(|part| part.as_str() == &found[1]))
        .map(|found| found[1].to_string())
        .collect()
}

fn raise_exception(message: String) -> std::result::Result<Value, Error> {
    RAISED.set(Some(message.clone()));
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn strftime_now(format: &str) -> std::result::Result<String, Error> {
    let bad = |why: &str| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {why}"));
    if format.len() > 256 {
        return Err(bad("format longer than 256 bytes"));
    }
    let format = std::ffi::CString::new(format).map_err(|_| bad("format with a zero byte"))?;
    let now: libc::time_t = NOW.get();
    let mut buffer = vec![0u8; 4096];
    // SAFETY: tm is filled by gmtime_r before it is read; strftime writes at
    // most buffer.len() bytes and says how many.
    let written = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::gmtime_r(&now, &mut tm).is_null() {
            return Err(bad("time out of range"));
        }
        libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), format.as_ptr(), &tm)
    };
    buffer.truncate(written);
    String::from_utf8(buffer).map_err(|_| bad("result is not UTF-8"))
}

/// json.dumps with the arguments that transformers' tojson has.
fn tojson(value: Value, args: Kwargs) -> std::result::Result<Value, Error> {
    let ensure_ascii: Option<bool> = args.get("ensure_ascii")?;
    let indent: Option<Value> = args.get("indent")?;
    let separators: Option<Value> = args.get("separators")?;
    let sort_keys: Option<bool> = args.get("sort_keys")?;
    args.assert_all_used()?;
    let indent = match indent.filter(|v| !v.is_none()) {
        Some(text) if text.kind() == ValueKind::String => text.as_str().map(str::to_string),
        Some(count) => {
            let count = usize::try_from(count)?;
            Some(" ".repeat(count.min(64)))
        }
        None => None,
    };
    let mut item = if indent.is_some() { "," } else { ", " }.to_string();
    let mut key = ": ".to_string();
    if let Some(pair) = separators.filter(|v| !v.is_none()) {
        item = pair.get_item(&Value::from(0))?.to_string();
        key = pair.get_item(&Value::from(1))?.to_string();
    }
    let layout = Layout {
        indent,
        item,
        key,
        sort_keys: sort_keys.unwrap_or(false),
        ensure_ascii: ensure_ascii.unwrap_or(false),
    };
    Ok(Value::from(pyjson::dumps(&value, &layout)?))
}
