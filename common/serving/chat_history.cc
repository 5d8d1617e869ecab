#include "common/serving/chat_history.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/serving/stable_hash.h"
#include "common/text/chat_template.h"

namespace sluice::serving {
namespace {

// Words that no template has.
constexpr std::string_view kThought = "sluicethought";
constexpr std::string_view kFirst = "sluicefirst";
constexpr std::string_view kSecond = "sluicesecond";

// An id that every template takes.
constexpr size_t kShortId = 9;

Json Call(std::string_view name) {
  return {{"id", name.substr(0, kShortId)},
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

// Renders a user's question, the assistant's `turn` and a result for each of
// its calls; nullopt if the template refuses them.
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

bool IsNine(std::string_view id) {
  return id.size() == kShortId && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                  (c >= 'a' && c <= 'z');
         });
}

// Returns nine letters and digits for `id`, the same ones each time.
std::string NineOf(const std::string& id) {
  if (IsNine(id)) return id;
  StableHash hash;
  hash.Add(id);
  uint64_t left = hash.value();
  std::string nine;
  for (size_t i = 0; i < kShortId; ++i, left /= 36) {
    nine += "0123456789abcdefghijklmnopqrstuvwxyz"[left % 36];
  }
  return nine;
}

// Gives the calls of `messages`, and their results, ids of the form. Of calls
// of one message that share an id each result has the next one's; further
// results have the last one's.
void RewriteIds(Json& messages, IdForm form) {
  if (form == IdForm::kAny) return;
  std::unordered_map<std::string, std::deque<std::string>> given;
  size_t count = 0;
  for (Json& message : messages) {
    if (message.contains("tool_calls") && message["tool_calls"].is_array()) {
      std::unordered_set<std::string> of_message;
      for (Json& call : message["tool_calls"]) {
        const std::string id = call.contains("id") && call["id"].is_string()
                                   ? call["id"].get<std::string>()
                                   : Cat("call", count);
        if (of_message.insert(id).second) given[id].clear();
        given[id].push_back(
            form == IdForm::kNine
                ? NineOf(id)
                : Cat("functions.", call["function"]["name"].get<std::string>(),
                      ":", count));
        call["id"] = given[id].back();
        ++count;
      }
    }
    const auto of = message.find("tool_call_id");
    if (of == message.end() || !of->is_string()) continue;
    const auto found = given.find(of->get<std::string>());
    if (found != given.end()) {
      *of = found->second.front();
      if (found->second.size() > 1) found->second.pop_front();
    } else if (form == IdForm::kNine) {
      *of = NineOf(of->get<std::string>());
    }
  }
}

// True if tools are shown where they stand in a system message, and only there.
bool ShowsToolsOfSystem(const ChatTemplate& chat_template) {
  const Json messages =
      Json::array({{{"role", "system"}, {"content", "."}, {"tools", kThought}},
                   {{"role", "user"}, {"content", "Why?"}}});
  RenderOptions options;
  options.date = "2025-01-01";
  const auto of_system = chat_template.Render(messages, nullptr, options);
  if (!of_system.ok() || !Shows(*of_system, kThought)) return false;
  const auto of_chat = chat_template.Render(
      Json::array({messages[1]}), Json::array({Tool(kThought)}), options);
  return !of_chat.ok() || !Shows(*of_chat, kThought);
}

// True if a system message within a chat is refused or not shown, where the
// chat without it is rendered.
bool TakesSystemFirst(const ChatTemplate& chat_template) {
  const Json user = {{"role", "user"}, {"content", "Why?"}};
  const Json assistant = {{"role", "assistant"}, {"content", "So."}};
  const Json system = {{"role", "system"}, {"content", kThought}};
  RenderOptions options;
  options.date = "2025-01-01";
  const auto without = chat_template.Render(
      Json::array({user, assistant, user}), nullptr, options);
  const auto with = chat_template.Render(
      Json::array({user, assistant, system, user}), nullptr, options);
  return without.ok() && !(with.ok() && Shows(*with, kThought));
}

// Appends the text of `message` to that of `to`.
void Join(const Json& message, Json& to) {
  auto& text = to["content"].get_ref<std::string&>();
  text += '\n';
  text += message["content"].get_ref<const std::string&>();
}

// True if two messages of the user in a row are refused or not both shown,
// where either alone is rendered.
bool TakesOneUser(const ChatTemplate& chat_template) {
  const Json first = {{"role", "user"}, {"content", kFirst}};
  const Json second = {{"role", "user"}, {"content", kSecond}};
  RenderOptions options;
  options.date = "2025-01-01";
  const auto alone =
      chat_template.Render(Json::array({first}), nullptr, options);
  const auto both =
      chat_template.Render(Json::array({first, second}), nullptr, options);
  if (!alone.ok() || !Shows(*alone, kFirst)) return false;
  return !both.ok() || !Shows(*both, kFirst) || !Shows(*both, kSecond);
}

// The assistant's message that says as good as nothing: Mistral's templates
// refuse an empty one.
Json Reply() { return {{"role", "assistant"}, {"content", " "}}; }

// True if the user's message behind a call's result is refused, where it is
// rendered behind a reply.
bool TakesReplyToResult(const ChatTemplate& chat_template) {
  const Json user = {{"role", "user"}, {"content", "Why?"}};
  const Json call = Turn(Json::array({Call(kFirst)}));
  const Json result = {{"role", "tool"},
                       {"tool_call_id", call["tool_calls"][0]["id"]},
                       {"content", "So."}};
  RenderOptions options;
  options.date = "2025-01-01";
  const auto renders = [&](const Json& messages) {
    return chat_template.Render(messages, Tools(), options).ok();
  };
  return !renders(Json::array({user, call, result, user})) &&
         renders(Json::array({user, call, result, Reply(), user}));
}

// Returns `messages` with the turns that the template takes: with one system
// message at most, the first; with what the user says in a row as one, and
// behind a reply to a call's result.
Json WithTurns(Json messages, const HistoryRules& rules) {
  Json out = Json::array();
  bool was_system = false;  // the message before, within the chat
  for (Json& message : messages) {
    const bool is_system =
        rules.system_first && message["role"] == "system" && !out.empty();
    if (is_system && out.back()["role"] != "system") message["role"] = "user";
    const bool in_row = !out.empty() && out.back()["role"] == message["role"];
    const bool joins =
        in_row && (is_system || was_system ||
                   (rules.one_user && message["role"] == "user"));
    was_system = is_system;
    if (joins) {
      Join(message, out.back());
      continue;
    }
    const bool replies = rules.reply_to_result && !out.empty() &&
                         out.back()["role"] == "tool" &&
                         message["role"] == "user";
    if (replies) out.push_back(Reply());
    out.push_back(std::move(message));
  }
  return out;
}

// Returns `message` with its reasoning in the template's form.
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
    auto& text = reasoning.get_ref<std::string&>();
    text += "\n\n";
    text += message["content"].get_ref<std::string&>();
    message["content"] = "";
  }
  message[rules.reasoning] = std::move(reasoning);
  return message;
}

// Returns `results` by their call, then the results left over. A result without
// a matching id goes to the next call without a result.
std::vector<std::vector<Json>> ByCall(const Json& calls,
                                      std::vector<Json> results) {
  struct SameId {
    std::vector<size_t> calls;
    size_t num_results = 0;
  };
  std::unordered_map<std::string, SameId> by_id;
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto id = calls[i].find("id");
    if (id == calls[i].end() || !id->is_string()) continue;
    by_id[id->get<std::string>()].calls.push_back(i);
  }
  std::vector<std::vector<Json>> groups(calls.size() + 1);
  std::vector<Json> untold;
  for (Json& result : results) {
    const auto id = result.find("tool_call_id");
    const bool tells = id != result.end() && id->is_string();
    const auto found = tells ? by_id.find(id->get<std::string>()) : by_id.end();
    if (found == by_id.end()) {
      untold.push_back(std::move(result));
      continue;
    }
    SameId& same = found->second;
    const size_t nth = std::min(same.num_results++, same.calls.size() - 1);
    groups[same.calls[nth]].push_back(std::move(result));
  }
  size_t call = 0;
  for (Json& result : untold) {
    while (call < calls.size() && !groups[call].empty()) ++call;
    groups[call].push_back(std::move(result));
  }
  return groups;
}

void AppendAll(std::vector<Json>& results, Json& out) {
  for (Json& result : results) out.push_back(std::move(result));
}

// Appends a message with several calls as one message per call, each followed
// by its group of `results`. The first one keeps all other members of the
// message; the others have a role and a call.
void AppendOneByOne(Json message, std::vector<std::vector<Json>> results,
                    Json& out) {
  Json calls = std::move(message["tool_calls"]);
  const Json role = message["role"];
  for (size_t i = 0; i < calls.size(); ++i) {
    Json part =
        i == 0 ? std::move(message) : Json{{"role", role}, {"content", ""}};
    part["tool_calls"] = Json::array();
    part["tool_calls"].push_back(std::move(calls[i]));
    out.push_back(std::move(part));
    AppendAll(results[i], out);
  }
  AppendAll(results.back(), out);
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
  rules.tools_in_system = ShowsToolsOfSystem(chat_template);
  rules.system_first = TakesSystemFirst(chat_template);
  rules.one_user = TakesOneUser(chat_template);
  rules.reply_to_result = TakesReplyToResult(chat_template);
  Json long_id = Turn(Json::array({Call(kFirst)}));
  long_id["tool_calls"][0]["id"] = "call_sluice_0";
  if (one.has_value() && !Rendered(chat_template, long_id)) {
    rules.ids = IdForm::kNine;
  }
  Json bare = Tools();
  bare[0]["function"].erase("description");
  rules.described_tools =
      one.has_value() &&
      !Rendered(chat_template, Turn(Json::array({Call(kFirst)})), bare);
  return rules;
}

Json AdaptHistory(Json messages, const HistoryRules& rules) {
  if (rules.system_first || rules.one_user || rules.reply_to_result) {
    messages = WithTurns(std::move(messages), rules);
  }
  RewriteIds(messages, rules.ids);
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    Json message = WithReasoning(std::move(messages[i]), rules);
    const bool several =
        message.contains("tool_calls") && message["tool_calls"].size() > 1;
    if (!several) {
      out.push_back(std::move(message));
      continue;
    }
    std::vector<Json> results;
    while (i + 1 < messages.size() && messages[i + 1]["role"] == "tool") {
      results.push_back(std::move(messages[++i]));
    }
    auto by_call = ByCall(message["tool_calls"], std::move(results));
    if (rules.one_call) {
      AppendOneByOne(std::move(message), std::move(by_call), out);
      continue;
    }
    out.push_back(std::move(message));
    for (std::vector<Json>& group : by_call) AppendAll(group, out);
  }
  return out;
}

Json AdaptTools(Json tools, const HistoryRules& rules) {
  if (!rules.described_tools) return tools;
  for (Json& tool : tools) {
    Json& function = tool["function"];
    if (!function.contains("description")) function["description"] = "";
  }
  return tools;
}

}  // namespace sluice::serving
