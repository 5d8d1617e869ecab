#include "common/core/sampling_params.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

Status CheckRange(const char* name, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value <= high) return OkStatus();
  return InvalidArgument(name, " must be between ", low, " and ", high,
                         ", got ", value);
}

Status CheckLogitBias(const std::vector<LogitBias>& biases, int vocab_size) {
  if (biases.size() > kMaxLogitBiases) {
    return InvalidArgument("logit_bias has ", biases.size(), " entries, limit ",
                           kMaxLogitBiases);
  }
  TokenId before = -1;
  for (const LogitBias& entry : biases) {
    if (entry.token < 0 || entry.token >= vocab_size) {
      return InvalidArgument("logit_bias names token ", entry.token,
                             ", vocabulary size is ", vocab_size);
    }
    if (entry.token <= before) {
      return InvalidArgument("logit_bias names token ", entry.token, " after ",
                             before, ", tokens must rise");
    }
    before = entry.token;
    SLUICE_RETURN_IF_ERROR(
        CheckRange("logit_bias", entry.bias, -kMaxLogitBias, kMaxLogitBias));
  }
  return OkStatus();
}

Status CheckLogprobTokenIds(const SamplingParams& params, int vocab_size) {
  const std::vector<TokenId>& ids = params.logprob_token_ids;
  if (ids.size() > kMaxLogprobTokenIds) {
    return InvalidArgument("logprob_token_ids has ", ids.size(),
                           " entries, limit ", kMaxLogprobTokenIds);
  }
  if (!ids.empty() && params.logprobs < 0) {
    return InvalidArgument("logprob_token_ids has ", ids.size(),
                           " entries, and no logprobs are asked for");
  }
  for (auto id = ids.begin(); id != ids.end(); ++id) {
    if (*id < 0 || *id >= vocab_size) {
      return InvalidArgument("logprob_token_ids contains ", *id,
                             ", vocabulary size is ", vocab_size);
    }
    if (std::find(ids.begin(), id, *id) != id) {
      return InvalidArgument("logprob_token_ids contains ", *id, " twice");
    }
  }
  return OkStatus();
}

Status CheckPenalties(const SamplingParams& params) {
  SLUICE_RETURN_IF_ERROR(CheckRange("frequency_penalty",
                                    params.frequency_penalty, -kMaxPenalty,
                                    kMaxPenalty));
  SLUICE_RETURN_IF_ERROR(CheckRange("presence_penalty", params.presence_penalty,
                                    -kMaxPenalty, kMaxPenalty));
  return CheckRange("repetition_penalty", params.repetition_penalty,
                    kMinRepetitionPenalty, kMaxRepetitionPenalty);
}

}  // namespace

int32_t MostTopLogprobs(const SamplingParams& params) {
  const auto asked = static_cast<int32_t>(params.logprob_token_ids.size());
  return params.logprobs >= 0 && asked > 0 ? asked : params.logprobs;
}

bool NeedsTokenCounts(const SamplingParams& params) {
  return params.frequency_penalty != 0 || params.presence_penalty != 0 ||
         params.repetition_penalty != 1;
}

Status Validate(const SamplingParams& params, int vocab_size) {
  SLUICE_RETURN_IF_ERROR(CheckRange("temperature", params.temperature, 0, 2));
  SLUICE_RETURN_IF_ERROR(CheckRange("top_p", params.top_p, 0, 1));
  if (params.top_p == 0) {
    return InvalidArgument("top_p must be above 0, got 0");
  }
  SLUICE_RETURN_IF_ERROR(CheckRange("min_p", params.min_p, 0, 1));
  if (params.top_k < 0) {
    return InvalidArgument("top_k must be 0 (off) or positive, got ",
                           params.top_k);
  }
  SLUICE_RETURN_IF_ERROR(
      CheckRange("logprobs", params.logprobs, -1, kMaxTopLogprobs));
  SLUICE_RETURN_IF_ERROR(CheckRange("prompt_logprobs", params.prompt_logprobs,
                                    -1, kMaxTopLogprobs));
  SLUICE_RETURN_IF_ERROR(CheckLogprobTokenIds(params, vocab_size));
  const bool wants_logits = params.return_logits || params.prompt_logprobs >= 0;
  if (wants_logits && params.hidden != HiddenWanted::kNone) {
    return InvalidArgument(
        "a result is of logits or of hidden states, both are asked for");
  }
  if (params.min_tokens < 0) {
    return InvalidArgument("min_tokens must not be negative, got ",
                           params.min_tokens);
  }
  if (params.stop_token_ids.size() > kMaxStopTokenIds) {
    return InvalidArgument("stop_token_ids has ", params.stop_token_ids.size(),
                           " entries, limit ", kMaxStopTokenIds);
  }
  for (TokenId id : params.stop_token_ids) {
    if (id < 0 || id >= vocab_size) {
      return InvalidArgument("stop_token_ids contains ", id,
                             ", vocabulary size is ", vocab_size);
    }
  }
  SLUICE_RETURN_IF_ERROR(CheckPenalties(params));
  return CheckLogitBias(params.logit_bias, vocab_size);
}

}  // namespace sluice
