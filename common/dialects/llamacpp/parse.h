#ifndef SLUICE_COMMON_DIALECTS_LLAMACPP_PARSE_H_
#define SLUICE_COMMON_DIALECTS_LLAMACPP_PARSE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/serving/infill.h"
#include "common/serving/model_text.h"
#include "common/serving/request.h"

namespace sluice::llamacpp {

inline constexpr size_t kMaxPrompts = 128;         // of one request
inline constexpr size_t kMaxPromptParts = 4096;    // of one prompt
inline constexpr size_t kMaxExtraFiles = 1024;     // of an infill
inline constexpr size_t kMaxResponseFields = 128;  // and their bytes, each
inline constexpr size_t kMaxBiasTextBytes = 1024;  // of one entry

inline constexpr serving::FieldNames kNames = {.prompt = "prompt",
                                               .truncate_prompt = "n_ctx",
                                               .max_tokens = "n_predict",
                                               .n = "n_cmpl",
                                               .echo = "prompt",
                                               .logprobs = "n_probs",
                                               .top_logprobs = "n_probs",
                                               .prompt_logprobs = "n_probs",
                                               .allowed_tools = "tools",
                                               .continues_message = "prompt"};

// A prompt: texts and tokens, in their order; at least one part.
using PromptParts = std::vector<serving::Prompt>;

struct CompletionBody {
  serving::GenerationFields fields{kNames};
  std::vector<PromptParts> prompts;  // of /completion
  serving::InfillParts infill;       // of /infill
  bool is_list = false;              // so is the answer
  bool return_tokens = false;
  bool timings_per_token = false;
  // The members of the answer that the client wants; none: all of them.
  std::vector<std::string> response_fields;
};

// Parses a body. INVALID_ARGUMENT, with the field as param, for malformed JSON,
// wrong types, values out of range, and known fields that are not built, unless
// their value changes nothing. Unknown fields are ignored, or refused if
// `strict`; null counts as absent. `text` makes tokens of the texts in
// logit_bias; `vocab_size` bounds ids.
StatusOr<CompletionBody> ParseCompletion(std::string_view body,
                                         const serving::ModelText& text,
                                         int vocab_size, bool strict = false);
StatusOr<CompletionBody> ParseInfill(std::string_view body,
                                     const serving::ModelText& text,
                                     int vocab_size, bool strict = false);

}  // namespace sluice::llamacpp

#endif  // SLUICE_COMMON_DIALECTS_LLAMACPP_PARSE_H_
