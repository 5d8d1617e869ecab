//! The vocabulary as one table of names and bytes, and the rule that joins
//! them: decoding is concatenation, so that streaming is too.

use crate::failure::{Failure, Result};
use crate::tokenizer::TextTokenizer;
use llguidance::toktrie::TokTrie;
use serde_json::Value;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

const EXISTS: u32 = 1;
const SPECIAL: u32 = 2;
const ADDED: u32 = 4;
const JOIN_WITH_SPACE: u32 = 1;
const STRIP_LEADING_SPACE: u32 = 2;
/// Ids above this are refused: they would make the table huge.
const MAX_IDS: u32 = 1 << 22;

/// What a decoder does to one token.
#[derive(Default)]
struct Rule {
    join: u32,
    replace: Vec<(String, String)>,
    byte_fallback: bool,
    /// By character.
    byte_level: Option<Vec<Option<u8>>>,
}

pub fn table(tokenizer: &TextTokenizer) -> Result<Vec<u8>> {
    let inner = &tokenizer.inner;
    let decoder = match inner.get_decoder() {
        Some(decoder) => {
            serde_json::to_value(decoder).map_err(|e| Failure::invalid(format!("decoder: {e}")))?
        }
        None => Value::Null,
    };
    let rule = rule_of(&decoder)?;
    let added = inner.get_added_vocabulary();
    let vocab = inner.get_vocab(false);
    let ids = vocab.values().chain(added.get_added_tokens_decoder().keys());
    let num_ids = ids.max().map_or(0, |max| max.saturating_add(1));
    if num_ids > MAX_IDS {
        return Err(Failure::invalid(format!("token id {} over {}", num_ids - 1, MAX_IDS)));
    }
    let mut names = vec![None; num_ids as usize];
    for (name, id) in vocab {
        names[id as usize] = Some(name);
    }
    for (id, token) in added.get_added_tokens_decoder() {
        names[*id as usize] = Some(token.content.clone());
    }
    let mut out = Vec::with_capacity(num_ids as usize * 28);
    out.extend(rule.join.to_ne_bytes());
    out.extend(num_ids.to_ne_bytes());
    for (id, name) in (0..num_ids).zip(&names) {
        let Some(name) = name else {
            out.extend([0; 12]);
            continue;
        };
        let token = added.get_added_tokens_decoder().get(&id);
        let mut flags = EXISTS;
        if token.is_some() {
            flags |= ADDED;
        }
        if token.is_some_and(|t| t.special) {
            flags |= SPECIAL;
        }
        let shown = added.simple_id_to_token(id).unwrap_or_else(|| name.clone());
        let bytes = rule.bytes(shown);
        out.extend(flags.to_ne_bytes());
        out.extend((name.len() as u32).to_ne_bytes());
        out.extend((bytes.len() as u32).to_ne_bytes());
        out.extend(name.as_bytes());
        out.extend(bytes);
    }
    Ok(out)
}

/// Every token's bytes by id, as llguidance wants them.
pub struct Words {
    pub words: Vec<Vec<u8>>,
    /// Decoding is concatenation, of the whole text and of any part.
    pub is_plain: bool,
}

/// Reads what `table` wrote: a special token is its name behind a marker byte, an
/// unused id is empty.
pub fn words(table: &[u8]) -> Result<Words> {
    if table.len() < 8 {
        return Err(Failure::invalid("a vocabulary without a head"));
    }
    let word =
        |at: usize| u32::from_ne_bytes([table[at], table[at + 1], table[at + 2], table[at + 3]]);
    let mut words = Vec::with_capacity(word(4) as usize);
    let mut at = 8;
    while words.len() < word(4) as usize {
        let (flags, name, bytes) = (word(at), word(at + 4) as usize, word(at + 8) as usize);
        at += 12;
        let mut made = Vec::new();
        if flags & SPECIAL != 0 {
            made.push(TokTrie::SPECIAL_TOKEN_MARKER);
            made.extend(&table[at..at + name]);
        } else {
            made.extend(&table[at + name..at + name + bytes]);
        }
        words.push(made);
        at += name + bytes;
    }
    Ok(Words { words, is_plain: word(0) == 0 })
}

impl Rule {
    fn bytes(&self, token: String) -> Vec<u8> {
        let mut text = token;
        for (from, to) in &self.replace {
            text = text.replace(from.as_str(), to);
        }
        if self.byte_fallback {
            let hex = text.strip_prefix("<0x").and_then(|t| t.strip_suffix('>'));
            if let Some(byte) =
                hex.filter(|h| h.len() == 2).and_then(|h| u8::from_str_radix(h, 16).ok())
            {
                return vec![byte];
            }
        }
        if let Some(table) = &self.byte_level {
            let mapped: Option<Vec<u8>> = text.chars().map(|c| *table.get(c as usize)?).collect();
            return mapped.unwrap_or_else(|| text.into_bytes());
        }
        text.into_bytes()
    }
}

fn rule_of(decoder: &Value) -> Result<Rule> {
    let mut rule = Rule::default();
    if decoder.is_null() {
        rule.join = JOIN_WITH_SPACE;
        return Ok(rule);
    }
    let single = [decoder.clone()];
    let steps = decoder.get("decoders").and_then(Value::as_array).map_or(&single[..], |v| v);
    for step in steps {
        add_step(step, &mut rule)?;
    }
    Ok(rule)
}

fn add_step(step: &Value, rule: &mut Rule) -> Result<()> {
    let kind = step.get("type").and_then(Value::as_str).unwrap_or("");
    let text = |key: &str| step.get(key).and_then(Value::as_str).unwrap_or("").to_string();
    match kind {
        "ByteLevel" => rule.byte_level = Some(byte_level_table()),
        "ByteFallback" => rule.byte_fallback = true,
        "Fuse" => {}
        "Replace" if step.pointer("/pattern/String").is_some() => {
            let from = step.pointer("/pattern/String").and_then(Value::as_str).unwrap_or("");
            if !from.is_empty() {
                rule.replace.push((from.to_string(), text("content")));
            }
        }
        "Strip"
            if text("content") == " "
                && step["start"] == Value::from(1)
                && step["stop"] == Value::from(0) =>
        {
            rule.join |= STRIP_LEADING_SPACE
        }
        "Metaspace" => {
            rule.replace.push((text("replacement"), " ".to_string()));
            if text("prepend_scheme") != "never" {
                rule.join |= STRIP_LEADING_SPACE;
            }
        }
        _ => {
            return Err(Failure::unimplemented(format!("tokenizer.json: decoder {step}")));
        }
    }
    Ok(())
}

/// The inverse of GPT-2's byte to character table.
fn byte_level_table() -> Vec<Option<u8>> {
    let mut table = vec![None; 512];
    let mut extra = 0u32;
    for byte in 0..=255u8 {
        let visible = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = if visible {
            byte as u32
        } else {
            extra += 1;
            255 + extra
        };
        table[code as usize] = Some(byte);
    }
    debug_assert_eq!(ByteLevel::alphabet().len(), table.iter().flatten().count());
    table
}
