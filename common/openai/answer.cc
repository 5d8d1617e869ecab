#include "common/openai/answer.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

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

StreamProgress ProgressOf(const AnswerInfo& info) {
  StreamProgress progress = info.told;
  progress.choices.resize(info.num_choices);
  return progress;
}

}  // namespace

AnswerFormat::AnswerFormat(const AnswerInfo& info)
    : ids_(info.event_head, ProgressOf(info), info.include_usage),
      tells_entries_(info.logprobs || info.return_token_ids) {}

AnswerFormat::Around AnswerFormat::MakeAround(int index) {
  constexpr std::string_view kMark = "\"\\u0001\"";
  Delta mark;
  mark.text = "\x01";
  JsonPieces pieces;
  const EventIds ids = ids_;  // the mark is no event
  const std::string chunk =
      DumpJson(ChunkValues(index, mark, {}, pieces).at(0).json);
  ids_ = ids;
  const size_t at = chunk.rfind(kMark);
  return {chunk.substr(0, at), chunk.substr(at + kMark.size())};
}

// Most tokens of a stream have text alone: the rest of a chunk is made once.
Event AnswerFormat::TextChunk(int index, const std::string& text) {
  Around& around = around_[index];
  if (around.before.empty()) around = MakeAround(index);
  ChoiceProgress shown;
  shown.content = text.size();
  return {ids_.After(index, shown),
          around.before + JsonString(text) + around.behind};
}

std::vector<Event> AnswerFormat::Chunks(int index, const Delta& delta,
                                        const Usage& usage) {
  std::vector<Event> events;
  if (delta.has_text_alone() && ShowsTextAlone(index)) {
    events.push_back(TextChunk(index, delta.text));
    return events;
  }
  JsonPieces pieces;
  for (EventValue& value : ChunkValues(index, delta, usage, pieces)) {
    pieces.Write(value.json);
    events.push_back(
        {std::move(value.id), pieces.Next(std::numeric_limits<size_t>::max())});
  }
  return events;
}

Event AnswerFormat::UsageChunk(const Usage& usage) {
  Json chunk = EmptyChunk();
  chunk["usage"] = UsageJson(usage);
  return {ids_.AfterUsage(), DumpJson(chunk)};
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
