#include "common/core/sampling_params.h"

#include <cmath>

namespace sluice {
namespace {

Status CheckRange(const char* name, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value <= high) return OkStatus();
  return InvalidArgument(name, " must be between ", low, " and ", high,
                         ", got ", value);
}

}  // namespace

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
  return OkStatus();
}

}  // namespace sluice
