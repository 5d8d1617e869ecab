#include "common/openai/answer.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "common/base/json.h"

namespace sluice::openai {

Json UsageJson(const Usage& usage) {
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

std::string_view FinishName(const Delta& delta) {
  if (*delta.finish == FinishReason::kLength) return "length";
  return delta.called ? "tool_calls" : "stop";
}

Json FinishJson(const Delta& delta) {
  if (!delta.finish) return nullptr;
  return std::string(FinishName(delta));
}

Json StopReasonJson(const Delta& delta) {
  if (!delta.stop_reason) return nullptr;
  return std::visit([](const auto& reason) { return Json(reason); },
                    *delta.stop_reason);
}

double LogprobNumber(float logprob) {
  if (!(logprob >= -9999.0f)) return -9999.0;
  char text[48];
  const auto end = std::to_chars(text, text + sizeof(text), logprob).ptr;
  double number = 0;
  std::from_chars(text, end, number);
  return number;
}

namespace {

// Returns DumpJson's bytes; plain text needs no Json value.
std::string JsonString(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= ' ' && c < '\x7F' && c != '"' && c != '\\';
  });
  return plain ? '"' + text + '"' : DumpJson(Json(text));
}

}  // namespace

// Most tokens of a stream have text alone: the rest of a chunk is made once.
std::string AnswerFormat::TextChunk(int index, const std::string& text) {
  constexpr std::string_view kMark = "\"\\u0001\"";
  Around& around = around_[index];
  if (around.before.empty()) {
    Delta mark;
    mark.text = "\x01";
    JsonPieces pieces;
    const std::string chunk =
        DumpJson(ChunkValues(index, mark, {}, pieces).at(0));
    const size_t at = chunk.rfind(kMark);
    around.before = chunk.substr(0, at);
    around.behind = chunk.substr(at + kMark.size());
  }
  return around.before + JsonString(text) + around.behind;
}

std::vector<std::string> AnswerFormat::Chunks(int index, const Delta& delta,
                                              const Usage& usage) {
  if (delta.has_text_alone() && ShowsTextAlone(index)) {
    return {TextChunk(index, delta.text)};
  }
  JsonPieces pieces;
  std::vector<std::string> chunks;
  for (const Json& value : ChunkValues(index, delta, usage, pieces)) {
    pieces.Write(value);
    chunks.push_back(pieces.Next(std::numeric_limits<size_t>::max()));
  }
  return chunks;
}

std::string AnswerFormat::Whole(const std::vector<Delta>& choices,
                                const Usage& usage) {
  JsonPieces pieces;
  pieces.Write(WholeValue(choices, usage, pieces));
  return pieces.Next(std::numeric_limits<size_t>::max());
}

Json PromptLogprobsJson(const ModelText& text, const Delta& delta,
                        JsonPieces& pieces) {
  return pieces.List(delta.num_prompt() + 1, [&text, &delta](size_t index) {
    if (index == 0) return Json(nullptr);
    const TokenResult& token = delta.prompt_at(index - 1);
    Json entry = Json::object();
    const auto add = [&](const TokenLogprob& one) {
      entry[Cat(one.token)] = {{"logprob", LogprobNumber(one.logprob)},
                               {"rank", one.rank + 1},
                               {"decoded_token", text.TokenText(one.token)}};
    };
    if (token.logprob) add(*token.logprob);
    for (const TokenLogprob& top : token.top_logprobs) add(top);
    return entry;
  });
}

Json AnswerHead(const AnswerInfo& info, const char* object) {
  return {{"id", info.id},
          {"object", object},
          {"created", info.created},
          {"model", info.model},
          {"system_fingerprint",
           info.fingerprint.empty() ? Json(nullptr) : Json(info.fingerprint)},
          {"choices", Json::array()}};
}

std::string TokenName(const ModelText& text, const AnswerInfo& info,
                      TokenId token) {
  return info.tokens_as_token_ids ? Cat("token_id:", token)
                                  : text.TokenText(token);
}

}  // namespace sluice::openai
