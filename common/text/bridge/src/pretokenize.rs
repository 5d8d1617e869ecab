//! The pre-tokenizer of a tokenizer.json with our splitter in place of every
//! regular expression.

use crate::failure::{Failure, Result};
use crate::split::{Splitter, GPT2};
use tokenizers::pattern::Invert;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{PreTokenizedString, PreTokenizer, SplitDelimiterBehavior};

enum Step {
    Split {
        splitter: Splitter,
        behavior: SplitDelimiterBehavior,
        invert: bool,
    },
    ByteLevel {
        add_prefix_space: bool,
        splitter: Option<Splitter>,
        mapping: ByteLevel,
    },
    /// Linear as it stands.
    Other(PreTokenizerWrapper),
}

pub struct PreTokenize {
    steps: Vec<Step>,
}

impl PreTokenize {
    pub fn new(from: Option<&PreTokenizerWrapper>) -> Result<Self> {
        let mut steps = Vec::new();
        if let Some(wrapper) = from {
            push(wrapper, &mut steps, 0)?;
        }
        Ok(Self { steps })
    }

    /// Takes linear time on every text.
    pub fn is_linear(&self) -> bool {
        self.steps.iter().all(|step| match step {
            Step::Split { splitter, .. } => splitter.is_known(),
            Step::ByteLevel { splitter, .. } => splitter.as_ref().map_or(true, Splitter::is_known),
            Step::Other(_) => true,
        })
    }

    /// A text may be cut between an ASCII letter and the space behind it: the
    /// pieces of the two parts are the whole's.
    pub fn parts_words(&self) -> bool {
        let mut splits = false;
        let all = self.steps.iter().all(|step| match step {
            Step::Split { splitter, behavior, invert } => {
                splits |= splitter.has_tail();
                let isolates = *behavior == SplitDelimiterBehavior::Isolated;
                splitter.parts_words() && isolates && !invert
            }
            Step::ByteLevel { add_prefix_space, splitter, .. } => {
                splits |= splitter.is_some();
                !add_prefix_space && splitter.as_ref().map_or(true, Splitter::parts_words)
            }
            Step::Other(other) => matches!(other, PreTokenizerWrapper::Digits(_)),
        });
        all && splits
    }

    /// Every byte of a text ends up in some piece.
    pub fn keeps_all(&self) -> bool {
        self.steps.iter().all(|step| match step {
            Step::Split { behavior, .. } => *behavior != SplitDelimiterBehavior::Removed,
            Step::ByteLevel { .. } => true,
            Step::Other(other) => {
                matches!(other, PreTokenizerWrapper::Metaspace(_) | PreTokenizerWrapper::Digits(_))
            }
        })
    }

    pub fn run(&self, text: &mut PreTokenizedString) -> Result<()> {
        for step in &self.steps {
            run_step(step, text)?;
        }
        Ok(())
    }
}

fn push(wrapper: &PreTokenizerWrapper, steps: &mut Vec<Step>, depth: usize) -> Result<()> {
    if depth > 16 {
        return Err(Failure::invalid("pre_tokenizer: nested more than 16 deep"));
    }
    match wrapper {
        PreTokenizerWrapper::Sequence(sequence) => {
            for part in sequence.as_ref() {
                push(part, steps, depth + 1)?;
            }
        }
        PreTokenizerWrapper::Split(split) => steps.push(Step::Split {
            splitter: match &split.pattern {
                SplitPattern::String(text) => Splitter::literal(text)?,
                SplitPattern::Regex(pattern) => Splitter::new(pattern)?,
            },
            behavior: split.behavior,
            invert: split.invert,
        }),
        PreTokenizerWrapper::ByteLevel(level) => steps.push(Step::ByteLevel {
            add_prefix_space: level.add_prefix_space,
            splitter: if level.use_regex { Some(Splitter::new(GPT2)?) } else { None },
            mapping: ByteLevel::new(false, level.trim_offsets, false),
        }),
        other => steps.push(Step::Other(other.clone())),
    }
    Ok(())
}

fn run_step(step: &Step, text: &mut PreTokenizedString) -> Result<()> {
    match step {
        Step::Split { splitter, behavior, invert } => text.split(|_, piece| {
            if *invert {
                piece.split(Invert(splitter), *behavior)
            } else {
                piece.split(splitter, *behavior)
            }
        })?,
        Step::ByteLevel { add_prefix_space, splitter, mapping } => {
            text.split(|_, mut piece| {
                if *add_prefix_space && !piece.get().starts_with(' ') {
                    piece.prepend(" ");
                }
                match splitter {
                    Some(splitter) => piece.split(splitter, SplitDelimiterBehavior::Isolated),
                    None => Ok(vec![piece]),
                }
            })?;
            mapping.pre_tokenize(text)?;
        }
        Step::Other(wrapper) => wrapper.pre_tokenize(text)?,
    }
    Ok(())
}
