//! Tokenizers and chat templates behind the C ABI of bridge.h.

// The only way to go on after a failed allocation; CMakeLists.txt allows it to
// this crate alone.
#![feature(alloc_error_hook)]

mod added;
mod bare_string;
mod compile_thread;
mod decimal;
mod doubles;
mod ecma_pattern;
mod exact_json;
mod exact_parser;
mod explain;
mod failure;
mod formats;
mod gbnf;
mod gbnf_lark;
mod grammar;
mod keywords;
mod lark_cost;
mod lark_json;
mod memory;
mod multiple;
mod number_lexemes;
mod number_range;
mod numbers;
mod pattern_cost;
mod pretokenize;
mod pyfilters;
mod pyjson;
mod pymethods;
mod pynumbers;
mod pyobjects;
mod references;
mod rewrite;
mod schema;
#[cfg(test)]
mod schema_answers_test;
mod schema_values;
mod sentencepiece;
mod split;
mod template;
mod tokenizer;
mod vocabulary;

use failure::{Code, Failure};
use grammar::{Compiled, Env, Limits as GrammarLimits, TokenMatcher};
use memory::OutOfMemory;
use std::panic::{catch_unwind, AssertUnwindSafe};
use template::{Limits, Template, Variables};
use tokenizer::{Span, TextTokenizer};

const OK: i32 = 0;
const KEEP_REFERENCE: u32 = 1;

#[repr(C)]
pub struct Buffer {
    data: *mut u8,
    size: usize,
    capacity: usize,
}

impl Buffer {
    fn from_vec(bytes: Vec<u8>) -> Self {
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        Buffer { data: bytes.as_mut_ptr(), size: bytes.len(), capacity: bytes.capacity() }
    }
}

/// Runs `work`; its bytes or its message land in `out`.
///
/// # Safety
/// `out` is valid for writes.
unsafe fn answer(out: *mut Buffer, work: impl FnOnce() -> failure::Result<Vec<u8>>) -> i32 {
    // The default hook prints messages, which may quote what is being encoded.
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    memory::begin_call();
    // The words of a panic may find no memory either: hence the second catch.
    let work = AssertUnwindSafe(work);
    let done = catch_unwind(|| match catch_unwind(work) {
        Ok(Ok(bytes)) => (OK, bytes),
        Ok(Err(failure)) => (failure.code as i32, failure.message.into_bytes()),
        // Of another thread, whose own memory was short.
        Err(panic) if panic.is::<OutOfMemory>() => (Code::OutOfMemory as i32, Vec::new()),
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|s| s.to_string())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "panic".to_string());
            (Code::Internal as i32, text.into_bytes())
        }
    });
    let (code, bytes) = match done {
        Ok(done) if !memory::is_short() => done,
        _ => (Code::OutOfMemory as i32, Vec::new()),
    };
    out.write(Buffer::from_vec(bytes));
    code
}

/// Makes an object by `work` for the caller, who owns it; none with an error.
///
/// # Safety
/// `out` and `message` are valid for writes.
unsafe fn make<T>(
    out: *mut *mut T,
    message: *mut Buffer,
    work: impl FnOnce() -> failure::Result<T>,
) -> i32 {
    answer(message, || {
        let made = Box::new(work()?);
        // Else it would be lost: `answer` reports an error.
        if !memory::is_short() {
            out.write(Box::into_raw(made));
        }
        Ok(Vec::new())
    })
}

/// # Safety
/// `data` is null with `size` 0, or valid for reads of `size` items.
unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

fn utf8(bytes: &[u8]) -> failure::Result<&str> {
    std::str::from_utf8(bytes)
        .map_err(|e| Failure::invalid(format!("text is not UTF-8 at byte {}", e.valid_up_to())))
}

/// # Safety
/// `buffer` came from this bridge and is freed once.
#[no_mangle]
pub unsafe extern "C" fn sluice_buffer_free(buffer: Buffer) {
    if !buffer.data.is_null() {
        drop(Vec::from_raw_parts(buffer.data, buffer.size, buffer.capacity));
    }
}

/// # Safety
/// Pointers as bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn sluice_tokenizer_new(
    json: *const u8,
    json_size: usize,
    flags: u32,
    tokenizer: *mut *mut TextTokenizer,
    message: *mut Buffer,
) -> i32 {
    make(tokenizer, message, || {
        TextTokenizer::from_json(slice(json, json_size), flags & KEEP_REFERENCE != 0)
    })
}

#[repr(C)]
pub struct Traits {
    max_shrinking: u32,
    is_linear: u32,
}

/// # Safety
/// `tokenizer` came from sluice_tokenizer_new.
#[no_mangle]
pub unsafe extern "C" fn sluice_tokenizer_traits(tokenizer: *const TextTokenizer) -> Traits {
    let found = catch_unwind(AssertUnwindSafe(|| Traits {
        max_shrinking: (*tokenizer).max_shrinking(),
        is_linear: u32::from((*tokenizer).is_linear()),
    }));
    found.unwrap_or(Traits { max_shrinking: 0, is_linear: 0 })
}

/// # Safety
/// `tokenizer` came from sluice_tokenizer_new and is freed once.
#[no_mangle]
pub unsafe extern "C" fn sluice_tokenizer_free(tokenizer: *mut TextTokenizer) {
    if !tokenizer.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(tokenizer))));
    }
}

/// # Safety
/// Pointers as bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn sluice_tokenizer_encode(
    tokenizer: *const TextTokenizer,
    text: *const u8,
    text_size: usize,
    flags: u32,
    spans: *const Span,
    num_spans: usize,
    ids: *mut Buffer,
) -> i32 {
    answer(ids, || {
        let text = utf8(slice(text, text_size))?;
        let ids = (*tokenizer).encode(text, flags, slice(spans, num_spans))?;
        Ok(ids.iter().flat_map(|id| id.to_ne_bytes()).collect())
    })
}

/// # Safety
/// Pointers as bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn sluice_tokenizer_vocabulary(
    tokenizer: *const TextTokenizer,
    table: *mut Buffer,
) -> i32 {
    answer(table, || vocabulary::table(&*tokenizer))
}

/// # Safety
/// Pointers as bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn sluice_template_new(
    source: *const u8,
    source_size: usize,
    compiled: *mut *mut Template,
    message: *mut Buffer,
) -> i32 {
    make(compiled, message, || Template::compile(utf8(slice(source, source_size))?))
}

/// # Safety
/// `compiled` came from sluice_template_new and is freed once.
#[no_mangle]
pub unsafe extern "C" fn sluice_template_free(compiled: *mut Template) {
    if !compiled.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(compiled))));
    }
}

/// # Safety
/// Pointers as bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn sluice_variables_new(
    json: *const u8,
    json_size: usize,
    variables: *mut *mut Variables,
    message: *mut Buffer,
) -> i32 {
    make(variables, message, || Variables::parse(slice(json, json_size)))
}

/// # Safety
/// `variables` came from sluice_variables_new and is freed once.
#[no_mangle]
pub unsafe extern "C" fn sluice_variables_free(variables: *mut Variables) {
    if !variables.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(variables))));
    }
}

/// # Safety
/// Pointers as bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn sluice_template_reads(
    compiled: *const Template,
    names: *mut Buffer,
) -> i32 {
    answer(names, || (*compiled).reads())
}

/// # Safety
/// Pointers as bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn sluice_template_render(
    compiled: *const Template,
    names: *const u8,
    names_size: usize,
    variables: *const Variables,
    now: i64,
    max_output: usize,
    max_steps: u64,
    output: *mut Buffer,
) -> i32 {
    answer(output, || {
        let names = Variables::parse(slice(names, names_size))?;
        (*compiled).render(names, &*variables, now, Limits { max_output, max_steps })
    })
}

/// # Safety
/// Pointers as bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn sluice_grammar_env_new(
    tokenizer: *const TextTokenizer,
    vocab_size: u32,
    eos: *const u32,
    num_eos: usize,
    env: *mut *mut Env,
    message: *mut Buffer,
) -> i32 {
    make(env, message, || Env::new(tokenizer, vocab_size, slice(eos, num_eos)))
}

/// # Safety
/// Pointers as bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn sluice_grammar_env_of_table(
    table: *const u8,
    table_size: usize,
    vocab_size: u32,
    eos: *const u32,
    num_eos: usize,
    env: *mut *mut Env,
    message: *mut Buffer,
) -> i32 {
    make(env, message, || {
        let table = slice(table, table_size);
        Env::of_table(table, std::ptr::null(), vocab_size, slice(eos, num_eos))
    })
}

/// # Safety
/// `env` came from sluice_grammar_env_new or .._of_table and is freed once.
#[no_mangle]
pub unsafe extern "C" fn sluice_grammar_env_free(env: *mut Env) {
    free(env);
}

/// # Safety
/// Pointers as bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn sluice_grammar_new(
    env: *const Env,
    kind: u32,
    text: *const u8,
    text_size: usize,
    limits: GrammarLimits,
    grammar: *mut *mut Compiled,
    message: *mut Buffer,
) -> i32 {
    make(grammar, message, || {
        grammar::compile(&*env, kind, utf8(slice(text, text_size))?, &limits)
    })
}

/// # Safety
/// `grammar` came from sluice_grammar_new and is freed once.
#[no_mangle]
pub unsafe extern "C" fn sluice_grammar_free(grammar: *mut Compiled) {
    free(grammar);
}

/// # Safety
/// Pointers as bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn sluice_schema_check(
    text: *const u8,
    text_size: usize,
    limits: GrammarLimits,
    checked: *mut Buffer,
) -> i32 {
    answer(checked, || {
        Ok(grammar::check_schema(utf8(slice(text, text_size))?, &limits)?.into_bytes())
    })
}

/// # Safety
/// Pointers as bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn sluice_string_terminal(
    text: *const u8,
    text_size: usize,
    limits: GrammarLimits,
    terminal: *mut Buffer,
) -> i32 {
    answer(terminal, || {
        Ok(grammar::string_terminal(utf8(slice(text, text_size))?, &limits)?.into_bytes())
    })
}

/// # Safety
/// Pointers as bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn sluice_gbnf_to_lark(
    text: *const u8,
    text_size: usize,
    limits: GrammarLimits,
    lark: *mut Buffer,
) -> i32 {
    answer(lark, || Ok(grammar::gbnf_to_lark(utf8(slice(text, text_size))?, &limits)?.into_bytes()))
}

/// # Safety
/// Pointers as bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn sluice_matcher_new(
    grammar: *const Compiled,
    matcher: *mut *mut TokenMatcher,
    message: *mut Buffer,
) -> i32 {
    make(matcher, message, || Ok(TokenMatcher::new(&*grammar)))
}

/// # Safety
/// `matcher` came from sluice_matcher_new and is freed once.
#[no_mangle]
pub unsafe extern "C" fn sluice_matcher_free(matcher: *mut TokenMatcher) {
    free(matcher);
}

/// # Safety
/// Pointers as bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn sluice_matcher_step(
    matcher: *mut TokenMatcher,
    tokens: *const u32,
    num_tokens: usize,
    max_forced: usize,
    step: *mut Buffer,
) -> i32 {
    answer(step, || (*matcher).step(slice(tokens, num_tokens), max_forced))
}

/// # Safety
/// `object` is null, or came from Box::into_raw and is freed once.
unsafe fn free<T>(object: *mut T) {
    if !object.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(object))));
    }
}

/// # Safety
/// `message` is valid for writes.
#[no_mangle]
pub unsafe extern "C" fn sluice_bridge_test_panic(message: *mut Buffer) -> i32 {
    answer(message, || panic!("test panic"))
}
