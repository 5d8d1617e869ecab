#ifndef SLUICE_COMMON_TEXT_DLLAMA_TOKENIZER_H_
#define SLUICE_COMMON_TEXT_DLLAMA_TOKENIZER_H_

#include <string>

#include "common/base/status.h"
#include "common/text/read_vocabulary.h"

namespace sluice {

// Returns the bytes of a .t, distributed-llama's tokenizer, for the model at
// `model_path` (Tokenizer::Load): its tokens, its default chat template and the
// ids that end an answer. UNIMPLEMENTED names what a .t cannot tell, so that a
// reader would give a text other ids: tokens without a bos that parts them,
// splits that are neither Llama 3's nor Qwen's, added tokens of sentencepiece.
// INVALID_ARGUMENT for damaged files.
StatusOr<std::string> DllamaTokenizerOf(const std::string& model_path,
                                        VocabularyOptions options);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_DLLAMA_TOKENIZER_H_
