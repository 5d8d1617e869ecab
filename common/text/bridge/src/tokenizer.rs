//! A tokenizer.json, run with our added-token cutter and splitter.

use crate::added::{piece, Cutters, Piece};
use crate::failure::{Code, Failure, Result};
use crate::pretokenize::PreTokenize;
use crate::sentencepiece::{self, SentencePiece};
use serde_json::Value;
use std::collections::HashSet;
use tokenizers::{
    Encoding, Model, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper, OffsetType,
    PreTokenizedString, Token, Tokenizer,
};

const ADD_SPECIAL: u32 = 1;
const PARSE_SPECIAL: u32 = 2;
const REFERENCE: u32 = 4;
/// Texts beyond this are encoded in parts.
const CHUNK_BYTES: usize = 64 << 10;

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
    /// In the place of a normalizer.
    sentencepiece: Option<SentencePiece>,
    pre_tokenize: PreTokenize,
    with_special: Cutters,
    without_special: Cutters,
    /// Special ids that plain text may never become: all but the unknown one.
    forbidden: HashSet<u32>,
    keep_reference: bool,
    parts_words: bool,
}

impl TextTokenizer {
    pub fn from_json(json: &[u8], keep_reference: bool) -> Result<Self> {
        let (sentencepiece, json) = sentencepiece::take(json)?;
        let mut inner: Tokenizer = serde_json::from_slice(&json)
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
        let pre_tokenize = PreTokenize::new(inner.get_pre_tokenizer())?;
        Ok(Self {
            parts_words: pre_tokenize.parts_words()
                && sentencepiece.is_none()
                && keeps_ends(inner.get_normalizer()),
            sentencepiece,
            pre_tokenize,
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
        let shortens = self.sentencepiece.as_ref().is_some_and(|own| !own.keeps_all());
        if swallows || shortens || !self.pre_tokenize.keeps_all() {
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
            if self.sentencepiece.is_some() {
                return Err(Failure::invalid("the crate has no normalizer of sentencepiece's"));
            }
            return Ok(self.inner.encode_fast(text, add_special)?.get_ids().to_vec());
        }
        check_spans(text, spans)?;
        let parse_special = flags & PARSE_SPECIAL != 0;
        let cutters = if parse_special { &self.with_special } else { &self.without_special };
        if text.len() > CHUNK_BYTES && self.parts_words && cutters.normalized.is_empty() {
            let ids = self.encode_in_chunks(text, cutters, spans)?;
            self.check_special(&ids, parse_special, spans)?;
            return if add_special { self.with_added(ids) } else { Ok(ids) };
        }
        let mut parts: PreTokenizedString = text.into();
        parts.split(|_, whole| Ok(cut_raw(whole, cutters, spans)))?;
        let encoding = self.encode_parts(parts, cutters)?;
        self.check_special(encoding.get_ids(), parse_special, spans)?;
        if !add_special {
            return Ok(encoding.get_ids().to_vec());
        }
        Ok(self.inner.post_process(encoding, None, true)?.get_ids().to_vec())
    }

    /// A text whose raw added tokens are cut out, to its end.
    fn encode_parts(&self, mut parts: PreTokenizedString, cutters: &Cutters) -> Result<Encoding> {
        parts.split(|_, mut part| {
            if let Some(own) = &self.sentencepiece {
                part = own.normalize(part.get()).into();
            } else if let Some(normalizer) = self.inner.get_normalizer() {
                normalizer.normalize(&mut part)?;
            }
            Ok(cutters.normalized.cut(part))
        })?;
        self.pre_tokenize.run(&mut parts)?;
        self.inner.get_model().tokenize_in_pretokenized(&mut parts, None)?;
        Ok(parts.into_encoding(None, 0, OffsetType::None)?)
    }

    /// The same ids: the crate keeps some hundred bytes for each of a text, so
    /// a long one goes through it in parts.
    fn encode_in_chunks(&self, text: &str, cutters: &Cutters, spans: &[Span]) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 4);
        let text_between = |begin: usize, end: usize, ids: &mut Vec<u32>| -> Result<()> {
            for (id, b, e) in cutters.raw.find(&text[begin..end]) {
                match id {
                    Some(id) => ids.push(id),
                    None => self.encode_words(&text[begin + b..begin + e], cutters, ids)?,
                }
            }
            Ok(())
        };
        let mut done = 0;
        for span in spans {
            text_between(done, span.begin, &mut ids)?;
            ids.push(span.id);
            done = span.end;
        }
        text_between(done, text.len(), &mut ids)?;
        Ok(ids)
    }

    /// A text without added tokens, cut behind words.
    fn encode_words(&self, text: &str, cutters: &Cutters, ids: &mut Vec<u32>) -> Result<()> {
        let mut rest = text;
        while !rest.is_empty() {
            let (part, more) = rest.split_at(end_of_chunk(rest));
            ids.extend(self.encode_parts(part.into(), cutters)?.get_ids());
            rest = more;
        }
        Ok(())
    }

    /// What the post-processor puts around `ids`.
    fn with_added(&self, ids: Vec<u32>) -> Result<Vec<u32>> {
        const STANDIN: u32 = u32::MAX;
        let one = Encoding::from_tokens(vec![Token::new(STANDIN, "a".to_string(), (0, 1))], 0);
        let around = self.inner.post_process(one, None, true)?;
        let mut made = Vec::with_capacity(ids.len() + around.get_ids().len());
        for id in around.get_ids() {
            if *id == STANDIN {
                made.extend_from_slice(&ids);
            } else {
                made.push(*id);
            }
        }
        Ok(made)
    }

    /// An error if plain text became special tokens.
    fn check_special(&self, ids: &[u32], parse_special: bool, spans: &[Span]) -> Result<()> {
        if !parse_special {
            let found = ids.iter().filter(|id| self.forbidden.contains(id)).count();
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
        Ok(())
    }
}

/// Where to cut `text`: between a letter and a space, no further than needed
/// beyond CHUNK_BYTES.
fn end_of_chunk(text: &str) -> usize {
    let bytes = text.as_bytes();
    (CHUNK_BYTES..bytes.len())
        .find(|&at| bytes[at] == b' ' && bytes[at - 1].is_ascii_alphabetic())
        .unwrap_or(bytes.len())
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

/// Whether a text that is cut ahead of a space is normalized in its parts as it
/// is as a whole: NFC composes nothing with what is ASCII.
fn keeps_ends(normalizer: Option<&NormalizerWrapper>) -> bool {
    matches!(normalizer, None | Some(NormalizerWrapper::NFC(_)))
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
