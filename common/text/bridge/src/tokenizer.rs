//! A tokenizer.json, run with our added-token cutter and splitter.

use crate::added::{piece, Cutters, Piece};
use crate::failure::{Code, Failure, Result};
use crate::pretokenize::PreTokenize;
use serde_json::Value;
use std::collections::HashSet;
use tokenizers::{
    Model, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper, OffsetType,
    PreTokenizedString, Tokenizer,
};

const ADD_SPECIAL: u32 = 1;
const PARSE_SPECIAL: u32 = 2;
const REFERENCE: u32 = 4;

/// Bytes [begin, end) of a text that are the token `id`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Span {
    pub begin: usize,
    pub end: usize,
    pub id: u32,
}

pub struct TextTokenizer {
    pub inner: Tokenizer,
    pre_tokenize: PreTokenize,
    with_special: Cutters,
    without_special: Cutters,
    /// Special ids that plain text may never become: all but the unknown one.
    forbidden: HashSet<u32>,
    keep_reference: bool,
}

impl TextTokenizer {
    pub fn from_json(json: &[u8], keep_reference: bool) -> Result<Self> {
        let mut inner: Tokenizer = serde_json::from_slice(json)
            .map_err(|e| Failure::invalid(format!("tokenizer.json: {e}")))?;
        // Left over from training: they would cut or vary what is encoded.
        inner.with_padding(None);
        inner.with_truncation(None)?;
        let mut unknown = None;
        if let ModelWrapper::BPE(bpe) = inner.get_model() {
            unknown = bpe.unk_token.clone();
            if bpe.dropout.is_some_and(|d| d != 0.0) {
                let mut copy = bpe.clone();
                copy.dropout = None;
                inner.with_model(copy);
            }
        }
        check_normalizer(inner.get_normalizer())?;
        let unknown = unknown.and_then(|name| inner.token_to_id(&name));
        let forbidden = inner
            .get_added_vocabulary()
            .get_added_tokens_decoder()
            .iter()
            .filter(|(id, token)| token.special && Some(**id) != unknown)
            .map(|(id, _)| *id)
            .collect();
        Ok(Self {
            pre_tokenize: PreTokenize::new(inner.get_pre_tokenizer())?,
            with_special: Cutters::new(&inner, true)?,
            without_special: Cutters::new(&inner, false)?,
            forbidden,
            keep_reference,
            inner,
        })
    }

    /// Takes linear time on every text.
    pub fn is_linear(&self) -> bool {
        self.pre_tokenize.is_linear()
    }

    /// A text has at most so many times the bytes that its tokens decode to;
    /// 0: nothing is known.
    pub fn max_shrinking(&self) -> u32 {
        let vocabulary = self.inner.get_added_vocabulary();
        let swallows = vocabulary
            .get_added_tokens_decoder()
            .values()
            .any(|token| token.lstrip || token.rstrip);
        if swallows || !self.pre_tokenize.keeps_all() {
            return 0;
        }
        match serde_json::to_value(self.inner.get_normalizer()) {
            Ok(value) => normalizer_shrinking(&value),
            Err(_) => 0,
        }
    }

    pub fn encode(&self, text: &str, flags: u32, spans: &[Span]) -> Result<Vec<u32>> {
        let add_special = flags & ADD_SPECIAL != 0;
        if flags & REFERENCE != 0 {
            if !self.keep_reference {
                return Err(Failure::invalid("made without SLUICE_KEEP_REFERENCE"));
            }
            return Ok(self.inner.encode_fast(text, add_special)?.get_ids().to_vec());
        }
        check_spans(text, spans)?;
        let parse_special = flags & PARSE_SPECIAL != 0;
        let cutters = if parse_special { &self.with_special } else { &self.without_special };
        let mut parts: PreTokenizedString = text.into();
        parts.split(|_, whole| Ok(cut_raw(whole, cutters, spans)))?;
        parts.split(|_, mut part| {
            if let Some(normalizer) = self.inner.get_normalizer() {
                normalizer.normalize(&mut part)?;
            }
            Ok(cutters.normalized.cut(part))
        })?;
        self.pre_tokenize.run(&mut parts)?;
        self.inner.get_model().tokenize_in_pretokenized(&mut parts, None)?;
        let encoding = parts.into_encoding(None, 0, OffsetType::None)?;
        if !parse_special {
            let found = encoding.get_ids().iter().filter(|id| self.forbidden.contains(id)).count();
            let asked = spans.iter().filter(|s| self.forbidden.contains(&s.id)).count();
            if found != asked {
                return Err(Failure {
                    code: Code::InvalidArgument,
                    message: format!(
                        "plain text would become {} special tokens of the vocabulary",
                        found.abs_diff(asked)
                    ),
                });
            }
        }
        if !add_special {
            return Ok(encoding.get_ids().to_vec());
        }
        Ok(self.inner.post_process(encoding, None, true)?.get_ids().to_vec())
    }
}

fn check_spans(text: &str, spans: &[Span]) -> Result<()> {
    let mut done = 0;
    for span in spans {
        if span.begin < done
            || span.end <= span.begin
            || span.end > text.len()
            || !text.is_char_boundary(span.begin)
            || !text.is_char_boundary(span.end)
        {
            return Err(Failure::invalid(format!(
                "control span [{}, {}) after byte {} in a text of {} bytes",
                span.begin,
                span.end,
                done,
                text.len()
            )));
        }
        done = span.end;
    }
    Ok(())
}

/// The spans as tokens, and what the cutters find between them.
fn cut_raw(whole: NormalizedString, cutters: &Cutters, spans: &[Span]) -> Vec<Piece> {
    if spans.is_empty() {
        return cutters.raw.cut(whole);
    }
    let mut pieces = Vec::with_capacity(2 * spans.len() + 1);
    let mut done = 0;
    let size = whole.get().len();
    let text_between = |begin: usize, end: usize, pieces: &mut Vec<Piece>| {
        for (id, b, e) in cutters.raw.find(&whole.get()[begin..end]) {
            pieces.push(piece(&whole, id, begin + b, begin + e));
        }
    };
    for span in spans {
        text_between(done, span.begin, &mut pieces);
        pieces.push(piece(&whole, Some(span.id), span.begin, span.end));
        done = span.end;
    }
    text_between(done, size, &mut pieces);
    pieces
}

/// How many times shorter a text may become: 0 if nothing is known.
fn normalizer_shrinking(value: &Value) -> u32 {
    match value.get("type").and_then(Value::as_str) {
        None => 1, // no normalizer
        Some("Prepend") => 1,
        // Spaces become U+2581.
        Some("Replace")
            if value.pointer("/pattern/String").and_then(Value::as_str) == Some(" ") =>
        {
            1
        }
        // Composing makes four characters of nine bytes one of three at most.
        Some("NFC") => 4,
        Some("Sequence") => value
            .get("normalizers")
            .and_then(Value::as_array)
            .map_or(0, |parts| parts.iter().map(normalizer_shrinking).product()),
        Some(_) => 0,
    }
}

/// A normalizer's regular expressions must be ones that the linear engine
/// takes: the crate would end silently where a backtracking one gives up.
fn check_normalizer(normalizer: Option<&NormalizerWrapper>) -> Result<()> {
    let Some(normalizer) = normalizer else { return Ok(()) };
    let value = serde_json::to_value(normalizer)
        .map_err(|e| Failure::invalid(format!("normalizer: {e}")))?;
    check_patterns(&value)
}

fn check_patterns(value: &Value) -> Result<()> {
    if let Some(pattern) = value.pointer("/pattern/Regex").and_then(Value::as_str) {
        if regex::Regex::new(pattern).is_err() {
            return Err(Failure::unimplemented(format!(
                "normalizer: pattern {pattern:?} needs a backtracking engine"
            )));
        }
    }
    let parts = value.get("normalizers").and_then(Value::as_array);
    parts.into_iter().flatten().try_for_each(check_patterns)
}
