#ifndef SLUICE_COMMON_DIALECTS_LLAMACPP_INFILL_H_
#define SLUICE_COMMON_DIALECTS_LLAMACPP_INFILL_H_

#include <optional>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/dialects/llamacpp/parse.h"
#include "common/serving/model_text.h"
#include "common/serving/served_model.h"

namespace sluice::llamacpp {

// The tokens by which a model fills in the middle.
struct InfillTokens {
  TokenId prefix = 0;
  TokenId suffix = 0;
  TokenId middle = 0;
  std::optional<TokenId> repository;
  std::optional<TokenId> file;
  // What ends an infill beside the model's end tokens.
  std::vector<TokenId> ends;
};

// Finds the tokens by the keys of the model's file, else by the names that
// known models have. INVALID_ARGUMENT for a model without a token for prefix,
// suffix or middle.
StatusOr<InfillTokens> FindInfillTokens(const serving::ServedModel& model);

// Returns the prompt, in the order of llama.cpp: the other files (each behind
// its name, if the model has tokens for that), the prefix, the suffix, and the
// beginning of the answer. No text becomes a special token.
StatusOr<std::vector<TokenId>> EncodeInfill(const serving::ModelText& text,
                                            const InfillTokens& tokens,
                                            const InfillParts& parts);

}  // namespace sluice::llamacpp

#endif  // SLUICE_COMMON_DIALECTS_LLAMACPP_INFILL_H_
