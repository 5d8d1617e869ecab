#include "common/dialects/ollama/answer.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include "common/base/json.h"
#include "common/http/event_framing.h"
#include "common/serving/answer_timings.h"
#include "common/serving/block_format.h"
#include "common/serving/chat_parts.h"
#include "common/serving/numbers.h"

namespace sluice::ollama {
namespace {

using Kind = serving::AnswerBlock::Kind;

std::string Now() { return TimeText(std::chrono::system_clock::now()); }

Json Head(std::string_view model) {
  return {{"model", std::string(model)}, {"created_at", Now()}};
}

// Puts the answer's part into a line, or a whole.
void AddMessage(AnswerForm form, std::string content, std::string thinking,
                Json calls, Json& line) {
  const bool is_chat = form == AnswerForm::kChat;
  Json message = Json::object();
  if (is_chat) message["role"] = "assistant";
  message[is_chat ? "content" : "response"] = std::move(content);
  if (!thinking.empty()) message["thinking"] = std::move(thinking);
  if (!calls.is_null()) message["tool_calls"] = std::move(calls);
  if (is_chat) {
    line["message"] = std::move(message);
  } else {
    line.update(message);
  }
}

int64_t Nanos(Duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

// A call comes whole. Arguments that are no object are under "arguments".
Json CallJson(const serving::AnswerBlock& block) {
  JsonBudget budget;
  const Json text = block.text;
  auto arguments = serving::ArgumentsToShow(&text, budget);
  return {{"id", block.id},
          {"function",
           {{"index", block.call},
            {"name", block.name},
            {"arguments",
             arguments.ok() ? *std::move(arguments) : Json::object()}}}};
}

class LineFormat : public serving::BlockFormat {
 public:
  LineFormat(const serving::ModelText& text, serving::AnswerInfo info,
             AnswerForm form, TimePoint arrival)
      : BlockFormat(info),
        text_(text),
        info_(std::move(info)),
        form_(form),
        arrival_(arrival) {}

  const http::EventFraming& framing() const override {
    return http::kJsonLines;
  }

 protected:
  Steps Opening(const serving::Usage&) override { return {}; }
  Step Silence() override { return {}; }
  Steps Opened(const serving::AnswerBlock&) override { return {}; }

  Step Piece(const serving::AnswerBlock& block, std::string_view piece,
             std::span<const TokenResult> logprobs) override {
    if (block.kind == Kind::kCall) return {};
    std::string text(piece);
    const bool is_text = block.kind == Kind::kText;
    Json line = Head(info_.model);
    AddMessage(form_, is_text ? text : "", is_text ? "" : text, nullptr, line);
    line["done"] = false;
    if (info_.logprobs && is_text) line["logprobs"] = Logprobs(logprobs);
    return {"", std::move(line)};
  }

  // A call that the answer's end cut is no call.
  Steps Closed(const serving::AnswerBlock& block) override {
    if (block.kind != Kind::kCall || block.is_cut) return {};
    Json line = Head(info_.model);
    AddMessage(form_, "", "", Json::array({CallJson(block)}), line);
    line["done"] = false;
    Steps steps;
    steps.push_back({"", std::move(line)});
    return steps;
  }

  Steps Closing(const std::vector<serving::AnswerBlock>&,
                const serving::AnswerEnd& end,
                const serving::Usage& usage) override {
    Json line = Head(info_.model);
    AddMessage(form_, "", "", nullptr, line);
    AddEnd(end, usage, line);
    Steps steps;
    steps.push_back({"", std::move(line)});
    return steps;
  }

  Steps Failing(const http::ApiError& error,
                const std::vector<serving::AnswerBlock>&) override {
    Steps steps;
    steps.push_back({"", {{"error", error.message}}});
    return steps;
  }

  Json WholeAnswer(const std::vector<serving::AnswerBlock>& blocks,
                   const serving::AnswerEnd& end,
                   const serving::Usage& usage) override {
    std::string content;
    std::string thinking;
    Json calls;
    Json logprobs = Json::array();
    for (const serving::AnswerBlock& block : blocks) {
      if (block.kind == Kind::kCall) {
        if (!block.is_cut) calls.push_back(CallJson(block));
        continue;
      }
      (block.kind == Kind::kText ? content : thinking) += block.text;
      for (Json& entry : Logprobs(block.logprobs)) {
        logprobs.push_back(std::move(entry));
      }
    }
    Json answer = Head(info_.model);
    AddMessage(form_, std::move(content), std::move(thinking), std::move(calls),
               answer);
    AddEnd(end, usage, answer);
    if (info_.logprobs) answer["logprobs"] = std::move(logprobs);
    return answer;
  }

 private:
  // Clients divide by the two times of tokens: these are never 0.
  void AddEnd(const serving::AnswerEnd& end, const serving::Usage& usage,
              Json& line) const {
    const serving::ChoiceTimings times = info_.timings->Of(0);
    const auto positive = [](Duration time) {
      return std::max<int64_t>(Nanos(time), 1);
    };
    line["done"] = true;
    line["done_reason"] =
        end.reason == FinishReason::kLength ? "length" : "stop";
    line["total_duration"] = Nanos(Clock::now() - arrival_);
    line["load_duration"] = times.start ? Nanos(*times.start - arrival_) : 0;
    line["prompt_eval_count"] = usage.prompt_tokens;
    line["prompt_eval_duration"] = positive(times.prompt_time());
    line["eval_count"] = usage.completion_tokens;
    line["eval_duration"] = positive(times.completion_time());
  }

  Json Logprobs(std::span<const TokenResult> tokens) const {
    Json list = serving::LogprobEntries(text_, tokens);
    for (Json& entry : list) {
      if (entry["top_logprobs"].empty()) entry.erase("top_logprobs");
    }
    return list;
  }

  const serving::ModelText& text_;
  const serving::AnswerInfo info_;
  const AnswerForm form_;
  const TimePoint arrival_;
};

}  // namespace

std::unique_ptr<serving::AnswerFormat> MakeFormat(
    const serving::ModelText& text, serving::AnswerInfo info, AnswerForm form,
    TimePoint arrival) {
  return std::make_unique<LineFormat>(text, std::move(info), form, arrival);
}

Json EmptyAnswer(AnswerForm form, std::string_view model,
                 std::string_view reason) {
  Json answer = Head(model);
  AddMessage(form, "", "", nullptr, answer);
  answer["done"] = true;
  answer["done_reason"] = std::string(reason);
  return answer;
}

std::string TimeText(std::chrono::system_clock::time_point time) {
  const auto nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(
                         time.time_since_epoch())
                         .count();
  const std::time_t seconds = nanos / 1'000'000'000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  const size_t size =
      std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  char fraction[16];
  std::snprintf(fraction, sizeof(fraction), ".%09dZ",
                static_cast<int>(nanos % 1'000'000'000));
  return std::string(text, size) + fraction;
}

http::HttpResponse ErrorAnswer(const http::ApiError& error,
                               const http::HttpRequest& request) {
  http::HttpResponse response = http::PlainError(error, request);
  response.body = DumpJson({{"error", error.message}});
  return response;
}

std::string StreamError(const http::ApiError& error, const http::HttpRequest&) {
  return DumpJson({{"error", error.message}}) + "\n";
}

}  // namespace sluice::ollama
