#include "services/gateway/chat_history.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/text/chat_template.h"

namespace sluice::gateway {
namespace {

// Words that no template writes by itself.
constexpr std::string_view kThought = "sluicethought";
constexpr std::string_view kFirst = "sluicefirst";
constexpr std::string_view kSecond = "sluicesecond";

Json Call(std::string_view name) {
  return {{"id", name},
          {"type", "function"},
          {"function", {{"name", name}, {"arguments", Json::object()}}}};
}

Json Tool(std::string_view name) {
  return {
      {"type", "function"},
      {"function",
       {{"name", name},
        {"description", "None."},
        {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}};
}

Json Tools() { return Json::array({Tool("one"), Tool("two")}); }

// A user's question, the assistant's `turn`, and a result for each of its
// calls: its rendering, or nullopt if the template refuses it.
std::optional<std::string> Rendered(const ChatTemplate& chat_template,
                                    const Json& turn,
                                    const Json& tools = Tools()) {
  Json messages = Json::array({{{"role", "user"}, {"content", "Why?"}}, turn});
  for (const Json& call : turn["tool_calls"]) {
    messages.push_back(
        {{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "So."}});
  }
  RenderOptions options;
  options.date = "2025-01-01";
  auto text = chat_template.Render(messages, tools, options);
  if (!text.ok()) return std::nullopt;
  return *std::move(text);
}

Json Turn(Json calls) {
  return {
      {"role", "assistant"}, {"content", ""}, {"tool_calls", std::move(calls)}};
}

bool Shows(const std::optional<std::string>& text, std::string_view word) {
  return text && text->find(word) != std::string::npos;
}

// `message` with its reasoning as the template wants it.
Json WithReasoning(Json message, const HistoryRules& rules) {
  const auto found = message.find("reasoning_content");
  const bool is_right =
      rules.reasoning == "reasoning_content" && !rules.content_or_reasoning;
  if (found == message.end() || is_right) return message;
  Json reasoning = std::move(*found);
  message.erase(found);
  if (rules.reasoning.empty()) return message;
  const bool joined = rules.content_or_reasoning &&
                      message.contains("tool_calls") &&
                      message["content"].is_string() &&
                      !message["content"].get_ref<std::string&>().empty();
  if (joined) {
    reasoning = reasoning.get<std::string>() + "\n\n" +
                message["content"].get<std::string>();
    message["content"] = "";
  }
  message[rules.reasoning] = std::move(reasoning);
  return message;
}

// The index of the call that `result` is of, by its id; none of `calls` has
// it: their number.
size_t CallOf(const Json& calls, const Json& result) {
  const auto own =
      std::find_if(calls.begin(), calls.end(), [&result](const Json& call) {
        return call.contains("id") && result.contains("tool_call_id") &&
               result["tool_call_id"] == call["id"];
      });
  return static_cast<size_t>(own - calls.begin());
}

// The order of the calls, unless a result does not tell whose it is.
void SortByCalls(const Json& calls, std::vector<Json>& results) {
  const bool told = std::all_of(
      results.begin(), results.end(),
      [&](const Json& result) { return CallOf(calls, result) < calls.size(); });
  if (!told) return;
  std::stable_sort(results.begin(), results.end(),
                   [&](const Json& a, const Json& b) {
                     return CallOf(calls, a) < CallOf(calls, b);
                   });
}

// Appends `message`, which has several calls, and the `results` behind it, one
// call at a time.
void AppendOneByOne(const Json& message, std::vector<Json> results, Json& out) {
  const Json& calls = message["tool_calls"];
  for (size_t i = 0; i < calls.size(); ++i) {
    Json part = message;
    part["tool_calls"] = Json::array({calls[i]});
    if (i > 0) {
      for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
        part.erase(name);
      }
      part["content"] = "";
    }
    out.push_back(std::move(part));
    if (results.empty()) continue;
    const auto own = std::find_if(
        results.begin(), results.end(),
        [&](const Json& result) { return CallOf(calls, result) == i; });
    const auto next = own == results.end() ? results.begin() : own;
    out.push_back(std::move(*next));
    results.erase(next);
  }
  for (Json& left : results) out.push_back(std::move(left));
}

}  // namespace

HistoryRules LearnHistoryRules(const ChatTemplate& chat_template) {
  HistoryRules rules;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    Json turn = Turn(Json::array({Call(kFirst)}));
    turn[name] = kThought;
    if (!Shows(Rendered(chat_template, turn), kThought)) continue;
    rules.reasoning = name;
    turn["content"] = "So?";
    rules.content_or_reasoning = !Rendered(chat_template, turn).has_value();
    break;
  }
  const auto one = Rendered(chat_template, Turn(Json::array({Call(kFirst)})));
  const auto two =
      Rendered(chat_template, Turn(Json::array({Call(kFirst), Call(kSecond)})));
  rules.one_call = Shows(one, kFirst) && !Shows(two, kSecond);
  Json bare = Tools();
  bare[0]["function"].erase("description");
  rules.described_tools =
      one.has_value() &&
      !Rendered(chat_template, Turn(Json::array({Call(kFirst)})), bare);
  return rules;
}

Json AdaptHistory(const Json& messages, const HistoryRules& rules) {
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    Json message = WithReasoning(messages[i], rules);
    const bool several =
        message.contains("tool_calls") && message["tool_calls"].size() > 1;
    if (!several) {
      out.push_back(std::move(message));
      continue;
    }
    std::vector<Json> results;
    while (i + 1 < messages.size() && messages[i + 1]["role"] == "tool") {
      results.push_back(messages[++i]);
    }
    SortByCalls(message["tool_calls"], results);
    if (rules.one_call) {
      AppendOneByOne(message, std::move(results), out);
      continue;
    }
    out.push_back(std::move(message));
    for (Json& result : results) out.push_back(std::move(result));
  }
  return out;
}

Json AdaptTools(const Json& tools, const HistoryRules& rules) {
  Json out = tools;
  if (!rules.described_tools) return out;
  for (Json& tool : out) {
    Json& function = tool["function"];
    if (!function.contains("description")) function["description"] = "";
  }
  return out;
}

}  // namespace sluice::gateway
