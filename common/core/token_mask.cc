#include "common/core/token_mask.h"

namespace sluice {

Status Validate(const TokenMask& mask, int32_t vocab_size) {
  TokenId end = -1;
  for (const TokenRun& run : mask.runs) {
    if (run.begin <= end || run.end <= run.begin || run.end > vocab_size) {
      return InvalidArgument("mask of allowed tokens has run [", run.begin,
                             ", ", run.end, ") behind ", end,
                             ", vocabulary size is ", vocab_size);
    }
    end = run.end;
  }
  const bool all =
      !mask.runs.empty() && mask.runs[0] == TokenRun{0, vocab_size};
  if (mask.excludes ? all : mask.runs.empty()) {
    return InvalidArgument("mask of allowed tokens allows none of ",
                           vocab_size);
  }
  return OkStatus();
}

}  // namespace sluice
