#ifndef SLUICE_COMMON_TEXT_READ_VOCABULARY_H_
#define SLUICE_COMMON_TEXT_READ_VOCABULARY_H_

#include <optional>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/text/text_source.h"
#include "common/text/vocabulary_spec.h"

namespace sluice {

// What a tokenizer's files leave to the model's config.
struct VocabularyOptions {
  int vocab_size = 0;  // the embedding's rows; ids without a token are filled
  std::optional<TokenId> bos;          // of a tokenizer that names none
  std::vector<TokenId> eos_ids;        // beside the tokenizer's own
  bool reads_splits = true;            // of a byte-level vocabulary
  std::string_view format = "a GGUF";  // that has the keys
};

// A tokenizer as formats of keys tell it. A value.
struct ReadVocabulary {
  VocabularySpec spec;
  std::optional<TokenId> pad;
  std::vector<TokenId> eos_ids;  // the tokenizer's first
};

// Returns the vocabulary of a tokenizer.json: a byte-level BPE or one of
// sentencepiece. UNIMPLEMENTED names a part that no key tells: another model, a
// normalizer, tokens around a text. INVALID_ARGUMENT for damaged files and more
// tokens than vocab_size.
StatusOr<ReadVocabulary> ReadVocabularyOf(const TextSource& source,
                                          const VocabularyOptions& options);

// Returns a score per token that makes the merges' order: the first merge has
// the highest.
std::vector<double> ScoresOf(const VocabularySpec& spec);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_READ_VOCABULARY_H_
