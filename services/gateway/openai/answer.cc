#include "services/gateway/openai/answer.h"

#include <algorithm>
#include <charconv>

#include "common/base/json.h"

namespace sluice::gateway {

Json UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json FinishJson(const std::optional<FinishReason>& finish) {
  if (!finish) return nullptr;
  return *finish == FinishReason::kLength ? "length" : "stop";
}

double LogprobNumber(float logprob) {
  if (!(logprob >= -9999.0f)) return -9999.0;
  char text[48];
  const auto end = std::to_chars(text, text + sizeof(text), logprob).ptr;
  double number = 0;
  std::from_chars(text, end, number);
  return number;
}

std::string TokenName(const ModelText& text, const AnswerInfo& info,
                      TokenId token) {
  return info.tokens_as_token_ids ? Cat("token_id:", token)
                                  : text.TokenText(token);
}

}  // namespace sluice::gateway
