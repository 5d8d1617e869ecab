//! Grammars over a vocabulary: compiled once, matched token by token.

use crate::bare_string;
use crate::compile_thread::deeply;
use crate::exact_parser::Schemas;
use crate::explain::explained;
use crate::failure::{Code, Failure, Result};
use crate::gbnf;
use crate::lark_cost;
use crate::pattern_cost;
use crate::schema;
use crate::tokenizer::TextTokenizer;
use crate::vocabulary;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{
    InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenizerEnv,
};
use llguidance::{Matcher, ParserFactory};
use std::collections::VecDeque;
use std::sync::Arc;

const LARK: u32 = 0;
const JSON_SCHEMA: u32 = 1;
const JSON_OBJECT: u32 = 2;
const REGEX: u32 = 3;
const CHOICE: u32 = 4;
const GBNF: u32 = 5;

const COMPLETE: u32 = 1;

struct Vocabulary {
    trie: TokTrie,
    /// Null: the longest tokens spell a text.
    tokenizer: *const TextTokenizer,
    is_canonical: bool,
}

/// The tokenizer outlives the vocabulary (bridge.h) and is immutable.
unsafe impl Send for Vocabulary {}
unsafe impl Sync for Vocabulary {}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }
    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        let tokens = match unsafe { self.tokenizer.as_ref() } {
            Some(tokenizer) => self.trie.tokenize_with_greedy_fallback(bytes, |text| {
                tokenizer.encode(text, 0, &[]).unwrap_or_default()
            }),
            None => self.trie.greedy_tokenize(bytes),
        };
        // A vocabulary without a token for some byte spells less: then nothing
        // is forced. Names of special tokens stand behind their marker.
        let is_text = !bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER);
        if is_text && self.trie.decode(&tokens) != bytes {
            return Vec::new();
        }
        tokens
    }
    fn tokenize_is_canonical(&self) -> bool {
        self.is_canonical
    }
}

pub struct Env {
    factory: ParserFactory,
    vocab_size: u32,
    eos: Vec<u32>,
}

impl Env {
    /// # Safety
    /// `tokenizer` outlives the environment and all that is made from it.
    pub unsafe fn new(
        tokenizer: *const TextTokenizer,
        vocab_size: u32,
        eos: &[u32],
    ) -> Result<Self> {
        Self::of_table(&vocabulary::table(&*tokenizer)?, tokenizer, vocab_size, eos)
    }

    /// `table`: what `vocabulary::table` writes. `tokenizer` may be null: forced
    /// texts are then spelled with the longest tokens.
    ///
    /// # Safety
    /// As `new`.
    pub unsafe fn of_table(
        table: &[u8],
        tokenizer: *const TextTokenizer,
        vocab_size: u32,
        eos: &[u32],
    ) -> Result<Self> {
        let table = vocabulary::words(table)?;
        let mut words = table.words;
        words.truncate(vocab_size as usize);
        let eos: Vec<u32> = eos.iter().copied().filter(|id| (*id as usize) < words.len()).collect();
        let first = *eos.first().ok_or_else(|| Failure::invalid("no end token"))?;
        // Without a token for each of these, the tokens of a text that a grammar
        // forces may stand for less than the text.
        let spells_ascii = (b' '..=b'~').all(|byte| words.iter().any(|word| word[..] == [byte]));
        let is_canonical = table.is_plain && spells_ascii;
        let info = TokRxInfo::new(words.len() as u32, first);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&eos);
        let env: TokEnv = Arc::new(Vocabulary { trie, tokenizer, is_canonical });
        let capabilities = InferenceCapabilities { ff_tokens: is_canonical, ..Default::default() };
        let mut factory =
            ParserFactory::new(&env, capabilities, &SlicedBiasComputer::general_slices())
                .map_err(|e| Failure::invalid(e.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            // About 2 KB each.
            max_lexer_states: 20_000,
            max_grammar_size: 50_000,
            verbose_errors: false,
            ..ParserLimits::default()
        };
        Ok(Self { factory, vocab_size: words.len() as u32, eos })
    }
}

/// Bounds of a grammar's text.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Limits {
    pub max_bytes: usize,
    pub max_levels: u32,
    pub max_enum_values: u32,
    /// Of CPU time, so that a busy machine refuses no more; 0: no limit.
    pub max_compile_ms: u32,
    /// Not 0: a trial, on a smaller stack (compile_thread.rs).
    pub is_trial: u32,
}

/// The CPU time of one compilation, on its thread.
struct Meter {
    begin: f64,
    limit_ms: u32,
}

impl Meter {
    fn new(limits: &Limits) -> Self {
        Self { begin: cpu_ms(), limit_ms: limits.max_compile_ms }
    }

    fn check(&self, what: &str) -> Result<()> {
        let took = cpu_ms() - self.begin;
        if self.limit_ms == 0 || took <= f64::from(self.limit_ms) {
            return Ok(());
        }
        Err(Failure::invalid(format!(
            "{what}: took {took:.0} ms of CPU time to compile; the limit is {}",
            self.limit_ms
        )))
    }
}

/// The CPU time of this thread, in milliseconds.
fn cpu_ms() -> f64 {
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn check_size(text: &str, limits: &Limits) -> Result<()> {
    if text.len() > limits.max_bytes {
        return Err(Failure::invalid(format!(
            "a grammar of {} bytes; the limit is {}",
            text.len(),
            limits.max_bytes
        )));
    }
    Ok(())
}

pub fn compile(env: &Env, kind: u32, text: &str, limits: &Limits) -> Result<Compiled> {
    deeply(text.len(), limits.is_trial != 0, || compile_here(env, kind, text, limits))
}

/// A checked schema, compact, with its numbers to the digit.
pub fn check_schema(text: &str, limits: &Limits) -> Result<String> {
    check_size(text, limits)?;
    deeply(text.len(), limits.is_trial != 0, || Ok(schema::checked(text, limits)?.text))
}

/// The terminal of a string's bare text; empty where no keyword holds the text.
pub fn string_terminal(text: &str, limits: &Limits) -> Result<String> {
    check_size(text, limits)?;
    deeply(text.len(), limits.is_trial != 0, || bare_string::terminal(text, limits.max_bytes))
}

/// The text of a Lark grammar for a GBNF.
pub fn gbnf_to_lark(text: &str, limits: &Limits) -> Result<String> {
    check_size(text, limits)?;
    deeply(text.len(), limits.is_trial != 0, || gbnf::to_lark(text))
}

/// A grammar at its start. Its first mask is there, so that a grammar whose start
/// is too complex fails here, and so that the states behind the mask are copied
/// and not made anew for each answer.
pub struct Compiled {
    start: TokenMatcher,
}

fn choice(text: &str) -> Result<String> {
    let words: Vec<String> = serde_json::from_str(text)
        .map_err(|e| Failure::invalid(format!("a choice is not a list of strings: {e}")))?;
    if words.is_empty() {
        return Err(Failure::invalid("a choice of no strings"));
    }
    let escaped: Vec<String> = words.iter().map(|word| regex_syntax::escape(word)).collect();
    Ok(format!("(?:{})", escaped.join("|")))
}

fn lark(text: String) -> Result<TopLevelGrammar> {
    object(lark_cost::objection(&text), "grammar")?;
    Ok(TopLevelGrammar::from_lark(text))
}

fn object(why: Option<String>, what: &str) -> Result<()> {
    why.map_or(Ok(()), |why| Err(Failure::invalid(format!("{what}: {why}"))))
}

fn compile_here(env: &Env, kind: u32, text: &str, limits: &Limits) -> Result<Compiled> {
    check_size(text, limits)?;
    let meter = Meter::new(limits);
    let plain = |grammar| (grammar, Schemas::default());
    let (grammar, schemas) = match kind {
        LARK => {
            object(lark_cost::objection(text), "grammar")?;
            Schemas::of_lark(text, limits)?
        }
        JSON_SCHEMA => Schemas::of_schema(text, limits)?,
        JSON_OBJECT => Schemas::of_schema("{\"type\":\"object\"}", limits)?,
        REGEX => {
            object(pattern_cost::objection(text), "grammar")?;
            plain(TopLevelGrammar::from_regex(text))
        }
        CHOICE => plain(TopLevelGrammar::from_regex(&choice(text)?)),
        GBNF => plain(lark(gbnf::to_lark(text)?)?),
        _ => return Err(Failure::invalid(format!("kind of grammar {kind}"))),
    };
    let what = if matches!(kind, JSON_SCHEMA | JSON_OBJECT) { "schema" } else { "grammar" };
    let parser = schemas.parser(&env.factory, grammar).map_err(|e| {
        Failure::invalid(schemas.explain(&e).unwrap_or_else(|| explained(what, &e)))
    })?;
    meter.check(what)?;
    let matcher = Matcher::new(Ok(parser));
    if let Some(error) = matcher.get_error() {
        return Err(Failure::invalid(explained(what, &error)));
    }
    let mut start = TokenMatcher {
        matcher,
        vocab_size: env.vocab_size,
        eos: env.eos.clone(),
        ahead: VecDeque::new(),
        mask: None,
        num_tokens: 0,
    };
    start
        .begin()
        .map_err(|_| Failure::invalid(format!("{what}: no answer can begin: {}", start.why())))?;
    meter.check(what)?;
    Ok(Compiled { start })
}

/// One sequence's place in a grammar.
pub struct TokenMatcher {
    matcher: Matcher,
    vocab_size: u32,
    eos: Vec<u32>,
    /// Tokens that must follow, which `matcher` has consumed.
    ahead: VecDeque<u32>,
    /// What may follow behind `ahead`.
    mask: Option<SimpleVob>,
    num_tokens: usize,
}

impl TokenMatcher {
    pub fn new(compiled: &Compiled) -> Self {
        let start = &compiled.start;
        Self {
            matcher: start.matcher.deep_clone(),
            vocab_size: start.vocab_size,
            eos: start.eos.clone(),
            ahead: start.ahead.clone(),
            mask: start.mask.clone(),
            num_tokens: 0,
        }
    }

    fn begin(&mut self) -> Result<()> {
        self.look_ahead()?;
        if !self.matcher.is_stopped() {
            self.mask = Some(self.matcher.compute_mask().map_err(|_| self.failure())?);
        }
        Ok(())
    }

    /// Takes `tokens` in, and returns the step behind them (bridge.h). Token by
    /// token, so that the step is a function of the history alone.
    pub fn step(&mut self, tokens: &[u32], max_forced: usize) -> Result<Vec<u8>> {
        for &token in tokens {
            self.consume(token)?;
        }
        if self.mask.is_none() && !self.matcher.is_stopped() && self.ahead.len() <= max_forced {
            let mask = self.matcher.compute_mask();
            self.mask = Some(mask.map_err(|_| self.failure())?);
        }
        Ok(self.encode(max_forced).iter().flat_map(|word| word.to_ne_bytes()).collect())
    }

    fn consume(&mut self, token: u32) -> Result<()> {
        self.num_tokens += 1;
        if let Some(next) = self.ahead.pop_front() {
            if next == token {
                return Ok(());
            }
            return Err(Failure::invalid(format!("token {token} where {next} was forced")));
        }
        if self.matcher.is_stopped() {
            return Err(Failure::invalid(format!("token {token} behind a complete answer")));
        }
        self.mask = None;
        let token = if self.eos.contains(&token) { self.eos[0] } else { token };
        if self.matcher.consume_token(token).is_err() {
            return Err(self.failure());
        }
        self.look_ahead()
    }

    fn look_ahead(&mut self) -> Result<()> {
        while !self.matcher.is_stopped() {
            let forced = self.matcher.compute_ff_tokens();
            if self.matcher.is_error() {
                return Err(self.failure());
            }
            if forced.is_empty() {
                break;
            }
            for &token in &forced {
                if self.matcher.consume_token(token).is_err() {
                    return Err(self.failure());
                }
            }
            self.ahead.extend(forced);
        }
        if self.matcher.is_error() {
            return Err(self.failure());
        }
        Ok(())
    }

    fn why(&self) -> String {
        let why = self.matcher.get_error().unwrap_or_default();
        match why.contains("NoExtensionBias") {
            true => "no token of the vocabulary continues the answer".to_string(),
            false => "it is too complex, or nothing continues the answer".to_string(),
        }
    }

    fn failure(&self) -> Failure {
        let message =
            format!("the grammar fails behind {} tokens: {}", self.num_tokens, self.why());
        Failure { code: Code::ResourceExhausted, message }
    }

    fn encode(&self, max_forced: usize) -> Vec<u32> {
        let stopped = self.matcher.is_stopped();
        // The last token of an answer is drawn, so that nothing is behind it.
        let most = if stopped { self.ahead.len().saturating_sub(1) } else { self.ahead.len() };
        let num_forced = most.min(max_forced);
        let mut runs = Vec::new();
        let complete = stopped && self.ahead.is_empty();
        if let Some(next) = self.ahead.get(num_forced) {
            runs.extend([*next, *next + 1]);
        } else if let Some(mask) = &self.mask {
            add_runs(mask.as_slice(), self.vocab_size, &mut runs);
        }
        let flags = if complete { COMPLETE } else { 0 };
        let mut out = vec![flags, num_forced as u32];
        out.extend(self.ahead.iter().take(num_forced));
        out.push((runs.len() / 2) as u32);
        out.extend(runs);
        out
    }
}

/// The runs of set bits below `size`, as [begin, end) pairs.
fn add_runs(words: &[u32], size: u32, runs: &mut Vec<u32>) {
    let mut begin = None;
    let mut close = |begin: &mut Option<u32>, end: u32| {
        if let Some(from) = begin.take() {
            runs.extend([from, end]);
        }
    };
    for (index, &word) in words.iter().enumerate() {
        let base = index as u32 * 32;
        match word {
            0 => close(&mut begin, base),
            u32::MAX if begin.is_some() => {}
            _ => {
                for bit in 0..32 {
                    if word >> bit & 1 == 0 {
                        close(&mut begin, base + bit);
                    } else if begin.is_none() {
                        begin = Some(base + bit);
                    }
                }
            }
        }
    }
    close(&mut begin, words.len() as u32 * 32);
    // The set may have bits up to a whole word.
    while runs.len() >= 2 && runs[runs.len() - 2] >= size {
        runs.truncate(runs.len() - 2);
    }
    if let Some(end) = runs.last_mut() {
        *end = (*end).min(size);
    }
}
