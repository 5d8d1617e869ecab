#ifndef SLUICE_COMMON_SERVING_NUMBERS_H_
#define SLUICE_COMMON_SERVING_NUMBERS_H_

#include <cstddef>
#include <span>
#include <string>

#include "common/base/json_fwd.h"
#include "common/core/generate_request.h"
#include "common/serving/model_text.h"

namespace sluice::serving {

// The most bytes that the shortest text of a float has, beside a comma.
inline constexpr size_t kMaxFloatBytes = 16;

// Returns the double whose shortest text is the shortest text of `logprob`, at
// least -9999, since JSON has no infinity.
double LogprobNumber(float logprob);

// Returns {"token", "logprob", "bytes"}: `name`, and the token's bytes.
Json LogprobEntry(const ModelText& text, std::string name,
                  const TokenLogprob& token);

// Returns the entries of the tokens that have a logprob, under their texts,
// each with "top_logprobs".
Json LogprobEntries(const ModelText& text, std::span<const TokenResult> tokens);

// Returns "[0.5,..]": each value, which is finite, with the fewest digits that
// give it again.
std::string FloatList(std::span<const float> values);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_NUMBERS_H_
