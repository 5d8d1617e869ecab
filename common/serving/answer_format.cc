#include "common/serving/answer_format.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/json.h"

namespace sluice::serving {

std::string_view FinishName(const Delta& delta) {
  if (*delta.finish == FinishReason::kLength) return "length";
  return delta.called ? "tool_calls" : "stop";
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
  EventValue value = std::move(ChunkValues(index, mark, {}, pieces).at(0));
  const std::string chunk = DumpJson(value.json);
  ids_ = ids;
  const size_t at = chunk.rfind(kMark);
  return {chunk.substr(0, at), chunk.substr(at + kMark.size()),
          std::move(value.name)};
}

// Most tokens of a stream have text alone: the rest of a chunk is made once.
Event AnswerFormat::TextChunk(int index, const std::string& text) {
  Around& around = around_[index];
  if (around.before.empty()) around = MakeAround(index);
  ChoiceProgress shown;
  shown.content = text.size();
  return {ids_.After(index, shown),
          around.before + JsonString(text) + around.behind, around.name};
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
    events.push_back({std::move(value.id),
                      pieces.Next(std::numeric_limits<size_t>::max()),
                      std::move(value.name)});
  }
  return events;
}

std::string AnswerFormat::Whole(const std::vector<Delta>& choices,
                                const Usage& usage) {
  JsonPieces pieces;
  pieces.Write(WholeValue(choices, usage, pieces));
  return pieces.Next(std::numeric_limits<size_t>::max());
}

}  // namespace sluice::serving
