#include <utility>

#include "common/base/json.h"
#include "common/dialects/openai/answer.h"
#include "common/serving/numbers.h"

namespace sluice::openai {
namespace {

class ChatFormat : public ChunkFormat {
 public:
  ChatFormat(const serving::ModelText& text, serving::AnswerInfo info)
      : ChunkFormat(info), text_(text), info_(std::move(info)) {}

  std::vector<serving::EventValue> ChunkValues(
      int index, const serving::Delta& delta, const serving::Usage& usage,
      serving::JsonPieces& pieces) override {
    std::vector<serving::EventValue> events;
    const bool first = is_first(index);
    const bool tells = (info_.logprobs && !delta.logprobs.empty()) ||
                       (info_.return_token_ids && !delta.token_ids.empty());
    std::vector<Part> parts = Parts(delta);
    if (parts.empty() && (first || tells)) {
      parts.push_back({Silence(first), {}});
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      Json message = Json::object();
      if (first && i == 0) {
        message["role"] = "assistant";
        // Clients accumulate content from here; beside calls it is null.
        if (!parts[i].message.contains("content")) {
          message["content"] = nullptr;
        }
      }
      message.update(parts[i].message);
      Json choice = Choice(index, std::move(message), nullptr);
      // The tokens' members, once.
      if (i == 0) choice["logprobs"] = Logprobs(delta, pieces);
      if (info_.return_token_ids) {
        choice["token_ids"] = i == 0 ? Json(delta.token_ids) : Json::array();
      }
      Json chunk = Head("chat.completion.chunk", std::move(choice));
      if (first && i == 0 && index == 0 && info_.return_token_ids) {
        chunk["prompt_token_ids"] = info_.prompts.at(0);
      }
      AddTimings(info_, static_cast<size_t>(index), chunk);
      serving::ChoiceProgress& shown = parts[i].shown;
      if (i == 0) shown.entries = EntriesOf(delta);
      events.push_back(
          {IdAfter(index, shown), WithUsage(std::move(chunk), usage)});
    }
    if (delta.finish) {
      Json last = Choice(index, Json::object(), Finish(delta));
      last["stop_reason"] = StopReasonJson(delta);
      serving::ChoiceProgress end;
      end.ended = true;
      Json chunk = Head("chat.completion.chunk", std::move(last));
      AddTimings(info_, static_cast<size_t>(index), chunk);
      events.push_back(
          {IdAfter(index, end), WithUsage(std::move(chunk), usage)});
    }
    return events;
  }

  Json WholeValue(const std::vector<serving::Delta>& choices,
                  const serving::Usage& usage,
                  serving::JsonPieces& pieces) override {
    Json answer = Head("chat.completion", nullptr);
    answer["choices"] =
        pieces.List(choices.size(), [this, &choices, &pieces](size_t i) {
          const serving::Delta& delta = choices[i];
          Json choice{{"index", i},
                      {"message", Message(delta)},
                      {"logprobs", Logprobs(delta, pieces)},
                      {"finish_reason", Finish(delta)},
                      {"stop_reason", StopReasonJson(delta)}};
          if (info_.return_token_ids) choice["token_ids"] = delta.token_ids;
          if (choices.size() > 1) AddTimings(info_, i, choice);
          return choice;
        });
    answer["usage"] = UsageJson(usage);
    if (choices.size() == 1) AddTimings(info_, 0, answer);
    if (info_.prompt_logprobs) {
      answer["prompt_logprobs"] =
          PromptLogprobsJson(text_, choices.front(), pieces);
    }
    if (info_.return_token_ids) {
      answer["prompt_token_ids"] = info_.prompts.at(0);
    }
    return answer;
  }

 protected:
  Json EmptyChunk() const override {
    return Head("chat.completion.chunk", nullptr);
  }
  bool ShowsTextAlone(int index) const override {
    return !is_first(index) && !info_.logprobs && !info_.return_token_ids &&
           !info_.continuous_usage && info_.timings == nullptr;
  }

 private:
  // What a chunk's `delta` has, beside the role.
  struct Part {
    Json message;
    serving::ChoiceProgress shown;
  };

  // A whole message. Its content is null, not empty, beside reasoning or calls.
  Json Message(const serving::Delta& delta) const {
    const bool only_others = delta.text.empty() &&
                             (!delta.reasoning.empty() || !delta.calls.empty());
    Json message{{"role", "assistant"},
                 {"content", only_others ? Json(nullptr) : Json(delta.text)},
                 {"refusal", nullptr}};
    if (!delta.reasoning.empty()) {
      message.update(Reasoning(delta));
    }
    for (const serving::CallDelta& call : delta.calls) {
      if (info_.as_functions) {
        message["function_call"] = {{"name", call.name},
                                    {"arguments", call.arguments}};
        break;  // the request allows one call
      }
      message["tool_calls"].push_back(
          {{"id", call.id},
           {"type", "function"},
           {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    return message;
  }

  // Under both names: each client reads one.
  static Json Reasoning(const serving::Delta& delta) {
    return {{"reasoning_content", delta.reasoning},
            {"reasoning", delta.reasoning}};
  }

  // Returns the members of a chunk's `delta`, one kind each.
  std::vector<Part> Parts(const serving::Delta& delta) const {
    std::vector<Part> parts;
    if (!delta.reasoning.empty()) {
      parts.push_back({Reasoning(delta), {}});
      parts.back().shown.reasoning = delta.reasoning.size();
    }
    if (!delta.text.empty()) {
      parts.push_back({{{"content", delta.text}}, {}});
      parts.back().shown.content = delta.text.size();
    }
    for (const serving::CallDelta& call : delta.calls) {
      parts.push_back({CallPiece(call), {}});
      parts.back().shown.calls = call.name.empty() ? 0 : 1;
      parts.back().shown.arguments = call.arguments.size();
    }
    return parts;
  }

  Json CallPiece(const serving::CallDelta& call) const {
    Json function = Json::object();
    if (!call.name.empty()) function["name"] = call.name;
    function["arguments"] = call.arguments;
    if (info_.as_functions) return {{"function_call", std::move(function)}};
    Json piece{{"index", call.index}};
    if (!call.name.empty()) {
      piece["id"] = call.id;
      piece["type"] = "function";
    }
    piece["function"] = std::move(function);
    return {{"tool_calls", Json::array({std::move(piece)})}};
  }

  // Returns the finish reason; null before the finish.
  Json Finish(const serving::Delta& delta) const {
    Json finish = FinishJson(delta);
    if (info_.as_functions && finish == "tool_calls") return "function_call";
    return finish;
  }

  // Returns a chunk without text: the first one, or one with logprobs.
  Json Silence(bool first) const {
    if (info_.is_parsed && !first) return Json::object();
    return {{"content", ""}};
  }

  static Json Choice(int index, Json delta, Json finish) {
    return {{"index", index},
            {"delta", std::move(delta)},
            {"logprobs", nullptr},
            {"finish_reason", std::move(finish)}};
  }

  Json Head(const char* object, Json choice) const {
    Json head = AnswerHead(info_, object);
    if (!choice.is_null()) head["choices"].push_back(std::move(choice));
    return head;
  }

  Json WithUsage(Json chunk, const serving::Usage& usage) const {
    if (info_.include_usage) {
      chunk["usage"] =
          info_.continuous_usage ? UsageJson(usage) : Json(nullptr);
    }
    return chunk;
  }

  Json Entry(const TokenLogprob& token) const {
    return serving::LogprobEntry(text_, TokenName(text_, info_, token.token),
                                 token);
  }

  Json Logprobs(const serving::Delta& delta,
                serving::JsonPieces& pieces) const {
    if (!info_.logprobs) return nullptr;
    std::vector<const TokenResult*> told;
    for (const TokenResult& token : delta.logprobs) {
      if (token.logprob) told.push_back(&token);
    }
    const size_t size = told.size();
    Json content = pieces.List(size, [this, told = std::move(told)](size_t i) {
      const TokenResult& token = *told[i];
      Json entry = Entry(*token.logprob);
      entry["top_logprobs"] = Json::array();
      for (const TokenLogprob& top : token.top_logprobs) {
        entry["top_logprobs"].push_back(Entry(top));
      }
      return entry;
    });
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }

  const serving::ModelText& text_;
  const serving::AnswerInfo info_;
};

}  // namespace

std::unique_ptr<serving::AnswerFormat> MakeChatFormat(
    const serving::ModelText& text, serving::AnswerInfo info) {
  return std::make_unique<ChatFormat>(text, std::move(info));
}

}  // namespace sluice::openai
