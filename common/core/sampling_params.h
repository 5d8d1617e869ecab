#ifndef SLUICE_COMMON_CORE_SAMPLING_PARAMS_H_
#define SLUICE_COMMON_CORE_SAMPLING_PARAMS_H_

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"

namespace sluice {

// Limits of every request, for any model.
inline constexpr int kMaxTopLogprobs = 20;
inline constexpr int kMaxLogprobTokenIds = 128;
inline constexpr int kMaxStopTokenIds = 256;  // a client's and the model's
inline constexpr int kMaxLogitBiases = 1024;
inline constexpr float kMaxLogitBias = 100.0f;
inline constexpr float kMaxPenalty = 2.0f;
inline constexpr float kMinRepetitionPenalty = 0.01f;
inline constexpr float kMaxRepetitionPenalty = 100.0f;

// Added to the logit of one token.
struct LogitBias {
  TokenId token = 0;
  float bias = 0.0f;  // [-kMaxLogitBias, kMaxLogitBias]
  bool operator==(const LogitBias&) const = default;
};

// Which of a prompt's tokens the result has hidden states of.
enum class HiddenWanted { kNone, kLast, kAll };

// The parameters of the draw. A value: the sampler is a pure function of
// (logits, SamplingParams, position, token history).
struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy
  float top_p = 1.0f;        // (0, 1]
  int32_t top_k = 0;         // 0: off
  float min_p = 0.0f;        // [0, 1]
  uint64_t seed = 0;         // resolved: the gateway draws an absent one
  uint32_t choice = 0;       // index among the n choices of a request

  // Number of top logprobs per sampled token; -1: none, 0: the token's own.
  int32_t logprobs = -1;
  // Tokens, none twice, whose logprobs a sampled token has in the place of the
  // top ones; none: the top ones. Needs logprobs of at least 0.
  std::vector<TokenId> logprob_token_ids;
  // The same as `logprobs` for the prompt's tokens (echo); -1: none. Excludes
  // prefix hits.
  int32_t prompt_logprobs = -1;
  // The result also carries the raw logits rows [.., V] of all positions with
  // logits, for debugging.
  bool return_logits = false;
  // The result carries hidden states behind the last norm, rows [.., H], in
  // place of logits, for embeddings. With kAll, excludes prefix hits.
  HiddenWanted hidden = HiddenWanted::kNone;

  // stop_token_ids have probability zero until min_tokens are sampled.
  int32_t min_tokens = 0;
  std::vector<TokenId> stop_token_ids;

  // Changes of the logits before the draw; sampling/sampler.h has the formulas.
  float frequency_penalty = 0.0f;     // [-kMaxPenalty, kMaxPenalty]; 0: off
  float presence_penalty = 0.0f;      // the same
  float repetition_penalty = 1.0f;    // [kMin.., kMaxRepetitionPenalty]; 1: off
  std::vector<LogitBias> logit_bias;  // tokens rise, none twice

  bool operator==(const SamplingParams&) const = default;
};

// Whether results carry raw rows, which take their time to copy.
inline bool WantsRawRows(const SamplingParams& params) {
  return params.return_logits || params.hidden != HiddenWanted::kNone;
}

// Returns the most entries of a sampled token's TokenResult::top_logprobs; -1:
// it has no logprobs at all.
int32_t MostTopLogprobs(const SamplingParams& params);

// Whether the draw depends on earlier tokens.
bool NeedsTokenCounts(const SamplingParams& params);

// INVALID_ARGUMENT names the field, its limit and its value.
Status Validate(const SamplingParams& params, int vocab_size);

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_SAMPLING_PARAMS_H_
