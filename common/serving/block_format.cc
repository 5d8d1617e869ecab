#include "common/serving/block_format.h"

#include <algorithm>
#include <utility>

#include "common/base/json.h"
#include "common/serving/error.h"

namespace sluice::serving {
namespace {

using Kind = AnswerBlock::Kind;

// The count of a block's bytes.
uint64_t ChoiceProgress::*CountOf(Kind kind) {
  switch (kind) {
    case Kind::kReasoning:
      return &ChoiceProgress::reasoning;
    case Kind::kText:
      return &ChoiceProgress::content;
    case Kind::kCall:
      break;
  }
  return &ChoiceProgress::arguments;
}

void Add(const ChoiceProgress& more, ChoiceProgress& sum) {
  sum.content += more.content;
  sum.reasoning += more.reasoning;
  sum.calls += more.calls;
  sum.arguments += more.arguments;
  sum.entries += more.entries;
}

// Returns the call with index `call`.
const CallDelta& FindCall(const Delta& delta, int call) {
  return *std::find_if(
      delta.calls.begin(), delta.calls.end(),
      [call](const CallDelta& one) { return one.index == call; });
}

// Hands out the bytes of a delta's runs in their order.
class RunReader {
 public:
  explicit RunReader(const Delta& delta) : delta_(delta) {}

  std::string_view Next(const DeltaRun& run) {
    switch (run.kind) {
      case Kind::kReasoning:
        return Cut(delta_.reasoning, reasoning_, run.bytes);
      case Kind::kText:
        return Cut(delta_.text, text_, run.bytes);
      case Kind::kCall:
        break;
    }
    if (std::exchange(call_, run.call) != run.call) arguments_ = 0;
    return Cut(FindCall(delta_, run.call).arguments, arguments_, run.bytes);
  }

 private:
  static std::string_view Cut(std::string_view text, size_t& at, size_t bytes) {
    const std::string_view piece = text.substr(at, bytes);
    at += bytes;
    return piece;
  }

  const Delta& delta_;
  size_t text_ = 0;
  size_t reasoning_ = 0;
  size_t arguments_ = 0;  // of call_
  int call_ = -1;
};

}  // namespace

BlockFormat::BlockFormat(const AnswerInfo& info) : AnswerFormat(info) {
  if (!info.told.choices.empty()) told_ = info.told.choices.front();
}

std::vector<Event> BlockFormat::Begin(const Usage& usage) {
  if (told_.ended) return {};
  std::vector<EventValue> values;
  AddMarks(Opening(usage), {}, values);
  std::vector<Event> events;
  for (const EventValue& value : values) {
    events.push_back({value.id, DumpJson(value.json), value.name});
  }
  return events;
}

std::vector<Event> BlockFormat::Ping() {
  Step step = Silence();
  if (step.json.is_null()) return {};
  SetNumber(progress(0).events, step.json);
  ChoiceProgress shown;
  shown.events = 1;
  return {{IdAfter(0, shown), DumpJson(step.json), std::move(step.name)}};
}

std::vector<EventValue> BlockFormat::ChunkValues(int, const Delta& delta,
                                                 const Usage&, JsonPieces&) {
  std::vector<EventValue> events;
  Take(delta, &events);
  return events;
}

std::vector<Event> BlockFormat::End(const Usage& usage) {
  if (told_.ended) return {};
  Steps steps = Closing(blocks_, end_, usage);
  if (told_.marks >= steps.size()) {
    return Fail(
        ToApiError(EventIdError("names a place beyond the end of the answer")));
  }
  std::vector<EventValue> values;
  Steps last;
  last.push_back(std::move(steps.back()));
  steps.pop_back();
  AddMarks(std::move(steps), {}, values);
  ChoiceProgress shown;
  shown.ended = true;
  AddMarks(std::move(last), shown, values);
  std::vector<Event> events;
  for (const EventValue& value : values) {
    events.push_back({value.id, DumpJson(value.json), value.name});
  }
  return events;
}

std::vector<Event> BlockFormat::Fail(const http::ApiError& error) {
  if (is_open_) blocks_.back().is_cut = true;
  std::vector<Event> events;
  uint64_t number = progress(0).events;
  for (Step& step : Failing(error, blocks_)) {
    SetNumber(number++, step.json);
    events.push_back({"", DumpJson(step.json), std::move(step.name)});
  }
  return events;
}

Json BlockFormat::WholeValue(const std::vector<Delta>& choices,
                             const Usage& usage, JsonPieces&) {
  Take(choices.front(), nullptr);
  return WholeAnswer(blocks_, end_, usage);
}

void BlockFormat::Take(const Delta& delta, std::vector<EventValue>* out) {
  if (told_.ended) out = nullptr;
  RunReader reader(delta);
  untold_logprobs_.insert(untold_logprobs_.end(), delta.logprobs.begin(),
                          delta.logprobs.end());
  auto next = untold_logprobs_.begin();
  for (const DeltaRun& run : delta.runs) {
    TurnTo(run, delta, out);
    const auto left = static_cast<size_t>(untold_logprobs_.end() - next);
    const auto end =
        next + static_cast<std::ptrdiff_t>(std::min(run.tokens, left));
    const std::string_view piece = reader.Next(run);
    // The log probabilities of reasoning and calls are not shown.
    if (run.kind == Kind::kText) {
      Grow(piece, {next, end}, out);
    } else if (!piece.empty()) {
      Grow(piece, {}, out);
    }
    next = end;
  }
  untold_logprobs_.erase(untold_logprobs_.begin(), next);
  if (!delta.finish) return;
  end_ = {*delta.finish, delta.called, delta.stop_reason};
  if (is_open_) {
    // A call may be complete where the limit is, and cut by a stop token.
    blocks_.back().is_cut = blocks_.back().kind == Kind::kCall
                                ? !delta.called
                                : *delta.finish != FinishReason::kStop;
  }
  CloseBlock(out);
}

void BlockFormat::TurnTo(const DeltaRun& run, const Delta& delta,
                         std::vector<EventValue>* out) {
  if (is_open_ && blocks_.back().kind == run.kind &&
      blocks_.back().call == run.call) {
    return;
  }
  CloseBlock(out);
  AnswerBlock block;
  block.kind = run.kind;
  block.index = static_cast<int>(blocks_.size());
  ChoiceProgress shown;
  if (run.kind == Kind::kCall) {
    const CallDelta& call = FindCall(delta, run.call);
    block.call = run.call;
    block.id = call.id;
    block.name = call.name;
    shown.calls = 1;
    told_call_ = told_.calls > 1    ? Told::kAll
                 : told_.calls == 1 ? Told::kPart
                                    : Told::kNothing;
    if (told_.calls > 0) --told_.calls;
  }
  blocks_.push_back(std::move(block));
  is_open_ = true;
  if (out != nullptr) AddMarks(Opened(blocks_.back()), shown, *out);
}

void BlockFormat::Grow(std::string_view piece,
                       std::span<const TokenResult> logprobs,
                       std::vector<EventValue>* out) {
  AnswerBlock& block = blocks_.back();
  block.text += piece;
  if (out == nullptr) {
    block.logprobs.insert(block.logprobs.end(), logprobs.begin(),
                          logprobs.end());
    return;
  }
  const auto told_logprobs =
      static_cast<size_t>(std::min<uint64_t>(told_.entries, logprobs.size()));
  told_.entries -= told_logprobs;
  logprobs = logprobs.subspan(told_logprobs);
  const size_t told = TakeTold(piece.size());
  if (told == piece.size()) return;
  piece.remove_prefix(told);
  ChoiceProgress shown;
  shown.*CountOf(block.kind) = piece.size();
  shown.entries = logprobs.size();
  Step step = Piece(block, piece, logprobs);
  if (step.json.is_null()) {
    Add(shown, unsent_);
    return;
  }
  AddEvent(std::move(step), shown, *out);
}

size_t BlockFormat::TakeTold(size_t bytes) {
  const Kind kind = blocks_.back().kind;
  if (kind == Kind::kCall && told_call_ != Told::kPart) {
    return told_call_ == Told::kAll ? bytes : 0;
  }
  uint64_t& left = told_.*CountOf(kind);
  const auto told = static_cast<size_t>(std::min<uint64_t>(left, bytes));
  left -= told;
  return told;
}

void BlockFormat::CloseBlock(std::vector<EventValue>* out) {
  if (!std::exchange(is_open_, false)) return;
  if (out != nullptr) AddMarks(Closed(blocks_.back()), {}, *out);
}

void BlockFormat::AddMarks(Steps steps, ChoiceProgress shown,
                           std::vector<EventValue>& out) {
  for (Step& step : steps) {
    const ChoiceProgress first = std::exchange(shown, {});
    if (told_.marks > 0) {
      --told_.marks;
      continue;
    }
    ChoiceProgress all = first;
    all.marks = 1;
    AddEvent(std::move(step), all, out);
  }
}

void BlockFormat::AddEvent(Step step, const ChoiceProgress& shown,
                           std::vector<EventValue>& out) {
  ChoiceProgress all = shown;
  // A call begins anew with no argument.
  if (shown.calls > 0) unsent_.arguments = 0;
  Add(std::exchange(unsent_, {}), all);
  SetNumber(progress(0).events, step.json);
  all.events = 1;
  out.push_back({IdAfter(0, all), std::move(step.json), std::move(step.name)});
}

}  // namespace sluice::serving
