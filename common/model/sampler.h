#ifndef SLUICE_COMMON_MODEL_SAMPLER_H_
#define SLUICE_COMMON_MODEL_SAMPLER_H_

#include <cstdint>
#include <span>

#include "common/base/status.h"
#include "common/core/generate_request.h"
#include "common/core/sampling_params.h"
#include "common/model/token_counts.h"

namespace sluice {

// What the drawing of one token depends on beside its logits.
struct SamplingPoint {
  // Index in the sequence of the token drawn, prompt included: the same
  // however the sequence was cut into steps.
  int32_t position = 0;
  // The sequence up to here: history.size() == position. The first
  // num_prompt_tokens of it are the prompt.
  std::span<const TokenId> history;
  int32_t num_prompt_tokens = 0;
  // TokenCounts::Of(history, num_prompt_tokens) where the caller keeps it;
  // null: it is counted where it is needed.
  const TokenCounts* counts = nullptr;
};

// Draws a token from one row of raw logits. A pure function: same arguments,
// same result, on every CPU. In this order:
//   1. each logit_bias is added to its token's logit;
//   2. with fewer than min_tokens sampled, stop_token_ids are excluded;
//   3. repetition_penalty r, for every token of prompt or completion: a
//      logit above 0 is divided by r, others are multiplied by it (Keskar et
//      al., "CTRL", 2019; so do Hugging Face and vLLM);
//   4. frequency_penalty f and presence_penalty p, for every token that was
//      generated, c times: logit - f * c - p (OpenAI's API reference);
//   5. temperature 0 (below 1e-5): the largest logit, ties to the lower id;
//      else z = (logit - max) / temperature, weight = Exp(z);
//   6. top_k: the k largest; 7. top_p: of these the shortest run, largest
//      first, whose share of the weight reaches top_p; 8. min_p: of these,
//      weight >= min_p * the largest weight. Equal logits are ordered by id,
//      lower first;
//   9. the draw: UniformFor(seed, choice, position) * (sum of the weights
//      left), summed in F64, by rising id without top_k and top_p, else
//      largest first; the first token whose running sum is above it.
// 1 to 4 are F32, one rounding per operation, results kept finite; they come
// in the order of vLLM's sampler, 6 to 8 as in vLLM and Hugging Face.
// Logprobs are of the raw distribution: logit - LogSumExp(all logits), before
// all of the above. INTERNAL for logits with a NaN or +inf, or if nothing is
// left to draw from.
StatusOr<TokenResult> Sample(std::span<const float> logits,
                             const SamplingParams& params,
                             const SamplingPoint& point);

// `token` with its logprob and the `num_top` likeliest tokens under the raw
// distribution, most likely first, ties to the lower id. num_top in
// [0, kMaxTopLogprobs]; below 0: the token alone. INTERNAL for logits with a
// NaN or +inf.
StatusOr<TokenResult> DescribeToken(std::span<const float> logits,
                                    TokenId token, int num_top);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_SAMPLER_H_
