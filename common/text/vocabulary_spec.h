#ifndef SLUICE_COMMON_TEXT_VOCABULARY_SPEC_H_
#define SLUICE_COMMON_TEXT_VOCABULARY_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"

namespace sluice {

// Kinds of tokens, numbered as sentencepiece and GGUF number them.
enum class TokenKind : int8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // special: true
  kUserDefined = 4,  // cut out of the text, but special: false
  kUnused = 5,
  kByte = 6,  // "<0x0A>"
};

// Stands for a space in sentencepiece's vocabularies: U+2581.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

using Merge = std::pair<std::string, std::string>;

// A BPE vocabulary from a format other than tokenizer.json. A value.
struct VocabularySpec {
  std::vector<std::string> tokens;  // by id
  std::vector<TokenKind> kinds;     // of `tokens`
  std::vector<Merge> merges;        // the first one first
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> unk;
  bool add_bos = false;  // in Encode with add_special_tokens
  bool add_eos = false;

  // Byte-level (GPT-2): tokens are spelled in its byte alphabet, each pattern
  // in turn splits the text. Else sentencepiece: spaces are U+2581, unknown
  // characters become byte tokens.
  bool byte_level = false;
  std::vector<std::string> patterns;
  bool ignore_merges = false;  // keeps a piece that is a token whole
  bool nfc = false;            // composes characters first; byte-level only

  // Sentencepiece only.
  bool add_space_prefix = true;
  bool collapse_spaces = false;
  bool space_is_suffix = false;  // the added space is at the end of a text
  // User-defined tokens are found in the normalized text; what they spell is
  // not normalized. Else they are cut out first, and the texts between them
  // are normalized each by itself, as llama.cpp does.
  bool keeps_user_defined = false;
  std::string charsmap;  // a compiled normalizer; empty: none
};

// Returns the text of a tokenizer.json for `spec`. INVALID_ARGUMENT for a token
// that is not UTF-8 or an id out of range.
StatusOr<std::string> ToTokenizerJson(const VocabularySpec& spec);

// Returns the merges of a sentencepiece BPE's scores: every cut of a normal
// token in two, by falling score.
std::vector<Merge> MergesFromScores(const std::vector<std::string>& tokens,
                                    const std::vector<TokenKind>& kinds,
                                    const std::vector<float>& scores);

// How `tokenizer.ggml.pre` of a GGUF splits text.
struct PreTokenizerRule {
  std::vector<std::string> patterns;
  bool ignore_merges = false;
  bool add_bos = false;  // for files that do not say
};
// Returns the rule. UNIMPLEMENTED names `pre` and the known ones.
StatusOr<PreTokenizerRule> PreTokenizerByName(std::string_view pre);
std::vector<std::string> PreTokenizerNames();
// Returns the name that llama.cpp's converter gives a byte-level pre-tokenizer
// of these patterns. UNIMPLEMENTED names patterns without a name.
StatusOr<std::string> PreTokenizerNameOf(
    const std::vector<std::string>& patterns, bool ignore_merges, bool has_bos);

// Returns `bytes` in GPT-2's byte alphabet (space is U+0120).
std::string ByteLevelText(std::string_view bytes);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_VOCABULARY_SPEC_H_
