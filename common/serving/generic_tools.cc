#include "common/serving/generic_tools.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/text/output/markup_tags.h"

namespace sluice::serving {
namespace {

std::string TextOf(const Json& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_string()
             ? content->get<std::string>()
             : "";
}

// What the model is told of the tools.
std::string Instructions(const Json& tools) {
  std::string text =
      "You can call functions. Each line within <tools></tools> describes "
      "one:\n<tools>\n";
  for (const Json& tool : tools) text += Cat(DumpJson(tool["function"]), "\n");
  text +=
      "</tools>\n\nTo call a function, answer with its name and its arguments "
      "as JSON within <tool_call></tool_call>:\n<tool_call>\n{\"name\": "
      "\"function name\", \"arguments\": {\"argument name\": value}}\n"
      "</tool_call>";
  return text;
}

// Returns an assistant's message with its calls in its content.
Json WithCallsAsText(Json message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end()) return message;
  std::string text = TextOf(message);
  for (const Json& call : *calls) {
    const Json& function = call["function"];
    text += Cat(text.empty() ? "" : "\n",
                "<tool_call>\n{\"name\": ", DumpJson(function["name"]),
                ", \"arguments\": ", DumpJson(function["arguments"]),
                "}\n</tool_call>");
  }
  message.erase("tool_calls");
  message["content"] = std::move(text);
  return message;
}

void Append(const std::string& text, Json& message) {
  const std::string before = TextOf(message);
  message["content"] = before.empty() ? text : Cat(before, "\n\n", text);
}

// Takes the system message from the front, or makes one.
Json TakeSystem(Json& messages) {
  const bool is_there =
      !messages.empty() && messages.front()["role"] == "system";
  if (!is_there) return {{"role", "system"}, {"content", ""}};
  Json system = std::move(messages.front());
  messages.erase(0);
  return system;
}

}  // namespace

StatusOr<StandIns> MarksOfCalls(const Json& messages) {
  const bool has_calls = std::any_of(
      messages.begin(), messages.end(),
      [](const Json& message) { return message.contains("tool_calls"); });
  if (!has_calls) return StandIns();
  SLUICE_ASSIGN_OR_RETURN(std::string word, WordNotIn(DumpJson(messages)));
  const CallMarkup& markup = MarkupOf(ToolFormat::kPhi);
  return StandIns{std::move(word),
                  {std::string(markup.open), std::string(markup.close)}};
}

Json WithToolsInSystem(Json messages, const Json& tools,
                       const StandIns& marks) {
  Json out = Json::array();
  if (!tools.is_null()) {
    Json functions = Json::array();
    for (const Json& tool : tools) functions.push_back(tool["function"]);
    Json system = TakeSystem(messages);
    system["tools"] = DumpJson(functions);
    out.push_back(std::move(system));
  }
  for (Json& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls != message.end()) {
      Json list = Json::array();
      for (const Json& call : *calls) {
        const Json& function = call["function"];
        list.push_back(
            {{"name", function["name"]}, {"arguments", function["arguments"]}});
      }
      message["content"] =
          Cat(TextOf(message), marks.For(0), DumpJson(list), marks.For(1));
      message.erase("tool_calls");
    }
    out.push_back(std::move(message));
  }
  return out;
}

Json WithToolsAsText(Json messages, const Json& tools) {
  Json out = Json::array();
  if (!tools.is_null()) {
    Json system = TakeSystem(messages);
    Append(Instructions(tools), system);
    out.push_back(std::move(system));
  }
  bool in_results = false;  // the latest message has results
  for (Json& message : messages) {
    const bool is_result = message["role"] == "tool";
    const std::string text =
        is_result
            ? Cat("<tool_response>\n", TextOf(message), "\n</tool_response>")
            : TextOf(message);
    if (in_results && (is_result || message["role"] == "user")) {
      Append(text, out.back());
    } else if (is_result) {
      out.push_back({{"role", "user"}, {"content", text}});
    } else {
      out.push_back(WithCallsAsText(std::move(message)));
    }
    in_results = is_result;
  }
  return out;
}

}  // namespace sluice::serving
