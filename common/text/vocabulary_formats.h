#ifndef SLUICE_COMMON_TEXT_VOCABULARY_FORMATS_H_
#define SLUICE_COMMON_TEXT_VOCABULARY_FORMATS_H_

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/text/text_source.h"

namespace sluice {

// One function per vocabulary format: untrusted input to a TextSource without
// `file`. INVALID_ARGUMENT for malformed input, UNIMPLEMENTED for a kind that
// is not built.

// Base64 tokens and ranks, one per line. The number of ranks tells the family
// (special tokens, pattern): Llama 3, o200k of gpt-oss, Kimi K2, GPT-2.
StatusOr<TextSource> FromTiktoken(std::string_view text);
bool LooksLikeTiktoken(std::string_view text);

// Mistral's tekken.json: special tokens, ranks and the pattern.
StatusOr<TextSource> FromTekken(std::string_view text);

// A sentencepiece ModelProto of the BPE kind.
StatusOr<TextSource> FromSentencePiece(std::string_view bytes);

// GPT-2's vocab.json and merges.txt; the class of tokenizer_config.json tells
// how texts are split. UNIMPLEMENTED for a class that is not known.
StatusOr<TextSource> FromVocabJson(std::string_view vocab,
                                   std::string_view merges,
                                   std::string_view tokenizer_class);

// A tokenizer of distributed-llama (a .t file): sentencepiece's BPE, or a
// byte-level one. ChatTemplateOfDllama gives its template, empty without one.
StatusOr<TextSource> FromDllama(std::string_view bytes);
StatusOr<std::string> ChatTemplateOfDllama(std::string_view bytes);

// A .t's tokens before bos tell how a text is split.
inline constexpr TokenId kLlama3Tokens = 128000;
inline constexpr TokenId kQwenTokens = 151643;

// The metadata of the GGUF file at `path`: vocabularies "gpt2", "gemma4" and
// "llama".
StatusOr<TextSource> FromGguf(const std::string& path);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_VOCABULARY_FORMATS_H_
