#include "common/dialects/openai/answer.h"

#include <utility>

#include "common/base/json.h"
#include "common/serving/answer_timings.h"
#include "common/serving/numbers.h"

namespace sluice::openai {

namespace {

constexpr char kDone[] = "[DONE]";

}  // namespace

std::vector<serving::Event> ChunkFormat::End(const serving::Usage& usage) {
  std::vector<serving::Event> events;
  if (tells_usage_) {
    Json chunk = EmptyChunk();
    chunk["usage"] = UsageJson(usage);
    events.push_back({IdAfterUsage(), DumpJson(chunk)});
  }
  events.push_back({"", kDone});
  return events;
}

std::vector<serving::Event> ChunkFormat::Fail(const http::ApiError& error) {
  return {{"", http::ErrorJson(error)}, {"", kDone}};
}

Json UsageJson(const serving::Usage& usage) {
  Json json{
      {"prompt_tokens", usage.prompt_tokens},
      {"completion_tokens", usage.completion_tokens},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
      {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
  if (usage.reasoning_tokens) {
    json["completion_tokens_details"] = {
        {"reasoning_tokens", *usage.reasoning_tokens}};
  }
  return json;
}

Json FinishJson(const serving::Delta& delta) {
  if (!delta.finish) return nullptr;
  return std::string(serving::FinishName(delta));
}

Json StopReasonJson(const serving::Delta& delta) {
  if (!delta.stop_reason) return nullptr;
  return std::visit([](const auto& reason) { return Json(reason); },
                    *delta.stop_reason);
}

void AddTimings(const serving::AnswerInfo& info, size_t choice, Json& json) {
  if (info.timings == nullptr) return;
  json["timings"] = serving::TimingsJson(info.timings->Of(choice));
}

Json PromptLogprobsJson(const serving::ModelText& text,
                        const serving::Delta& delta,
                        serving::JsonPieces& pieces) {
  return pieces.List(delta.num_prompt() + 1, [&text, &delta](size_t index) {
    if (index == 0) return Json(nullptr);
    const TokenResult& token = delta.prompt_at(index - 1);
    Json entry = Json::object();
    const auto add = [&](const TokenLogprob& one) {
      const double logprob = serving::LogprobNumber(one.logprob);
      entry[Cat(one.token)] = {{"logprob", logprob},
                               {"rank", one.rank + 1},
                               {"decoded_token", text.TokenText(one.token)}};
    };
    if (token.logprob) add(*token.logprob);
    for (const TokenLogprob& top : token.top_logprobs) add(top);
    return entry;
  });
}

Json AnswerHead(const serving::AnswerInfo& info, const char* object) {
  return {{"id", info.id},
          {"object", object},
          {"created", info.created},
          {"model", info.model},
          {"system_fingerprint", info.fingerprint.empty()
                                     ? Json(nullptr)
                                     : Json(Cat("fp_", info.fingerprint))},
          {"choices", Json::array()}};
}

std::string TokenName(const serving::ModelText& text,
                      const serving::AnswerInfo& info, TokenId token) {
  return info.tokens_as_token_ids ? Cat("token_id:", token)
                                  : text.TokenText(token);
}

}  // namespace sluice::openai
