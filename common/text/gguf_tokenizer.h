#ifndef SLUICE_COMMON_TEXT_GGUF_TOKENIZER_H_
#define SLUICE_COMMON_TEXT_GGUF_TOKENIZER_H_

#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/weights/gguf_file.h"

namespace sluice {

// What a tokenizer's files leave to the model's config.
struct GgufTokenizerOptions {
  int vocab_size = 0;  // the embedding's rows; ids without a token are filled
  std::optional<TokenId> bos;    // of a tokenizer that names none
  std::vector<TokenId> eos_ids;  // beside the tokenizer's own
  // llama.cpp's name of the pre-tokenizer; empty: found by its patterns.
  std::string pre;
};

// Returns the keys "tokenizer.*" of a GGUF for the model at `model_path`
// (Tokenizer::Load): a byte-level BPE ("gpt2") or one of sentencepiece
// ("llama"), with its chat templates. UNIMPLEMENTED names a part that the keys
// cannot tell: another model, a normalizer, tokens around a text, patterns
// without a name. INVALID_ARGUMENT for damaged files and more tokens than
// vocab_size.
StatusOr<weights::GgufMetadata> GgufTokenizerOf(
    const std::string& model_path, const GgufTokenizerOptions& options);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_GGUF_TOKENIZER_H_
