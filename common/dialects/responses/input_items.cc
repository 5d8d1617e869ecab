#include "common/dialects/responses/input_items.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "common/base/cat.h"
#include "common/base/log_limit.h"
#include "common/dialects/responses/tool_fields.h"
#include "common/serving/chat_parts.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"
#include "common/serving/request_limits.h"

namespace sluice::responses {
namespace {

constexpr std::string_view kFileNote =
    "[file left out: this model reads text of messages]";
constexpr std::string_view kSoundNote =
    "[sound left out: this model reads text]";

// A part of a content: the member with its text, or what stands for it.
struct PartKind {
  std::string_view type;
  const char* member;  // null: `note`
  std::string_view note = {};
};
constexpr PartKind kParts[] = {{"input_text", "text"},
                               {"output_text", "text"},
                               {"text", "text"},
                               {"summary_text", "text"},
                               {"reasoning_text", "text"},
                               {"refusal", "refusal"},
                               {"input_image", nullptr, serving::kImageNote},
                               {"input_file", nullptr, kFileNote},
                               {"input_audio", nullptr, kSoundNote}};

template <typename... Parts>
Status ItemError(const std::string& where, const Parts&... parts) {
  return serving::FieldError("input", where, parts...);
}

void LogLeftOut(std::string_view what) {
  static auto* const limit = new LogLimit(10, std::chrono::seconds(60));
  limit->Write(LogLevel::kInfo, "responses: ", what, " is left out");
}

// Returns the text of a part; empty, after a log line, for an unknown type.
StatusOr<std::string> PartText(const Json& part, const std::string& where) {
  if (part.is_string()) return part.get<std::string>();
  if (!part.is_object()) {
    return ItemError(where, " must be an object, got ",
                     serving::Describe(part));
  }
  serving::FieldReader in(part);
  const std::string type = in.String("type").value_or("");
  const auto kind =
      std::find_if(std::begin(kParts), std::end(kParts),
                   [&](const PartKind& one) { return one.type == type; });
  if (kind == std::end(kParts)) {
    if (type.empty()) return ItemError(where, ".type must be a string");
    LogLeftOut("a part of an unknown type");
    return std::string();
  }
  if (kind->member == nullptr) return std::string(kind->note);
  const auto text = in.String(kind->member);
  if (!text) return ItemError(where, ".", kind->member, " must be a string");
  return *text;
}

// Returns the text of a content: a string, or an array of parts.
StatusOr<std::string> TextOf(const Json* content, const std::string& where) {
  if (content == nullptr) return std::string();
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    return ItemError(where, " must be a string or an array of parts, got ",
                     serving::Describe(*content));
  }
  if (content->size() > serving::kMaxContentParts) {
    return ItemError(where, " has ", content->size(), " parts, limit ",
                     serving::kMaxContentParts);
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const std::string piece,
                            PartText((*content)[i], Cat(where, "[", i, "]")));
    if (!text.empty() && !piece.empty()) text += '\n';
    text += piece;
  }
  return text;
}

// Puts the items of a chat together to its messages.
class History {
 public:
  explicit History(JsonBudget& budget) : budget_(budget) {}

  Status Add(const Json& item, const std::string& where) {
    if (!item.is_object()) {
      return ItemError(where, " must be an object, got ",
                       serving::Describe(item));
    }
    serving::FieldReader in(item);
    const std::string type =
        in.String("type").value_or(in.Find("role") ? "message" : "");
    if (type == "message") return AddMessage(in, where);
    if (type == "reasoning") return AddReasoning(in, where);
    if (type == "function_call") return AddCall(in, where, false);
    if (type == "custom_tool_call") return AddCall(in, where, true);
    if (type == "function_call_output" || type == "custom_tool_call_output") {
      return AddOutput(in, where);
    }
    if (type == "item_reference") {
      return serving::WithCode(
          ItemError(where, ".type \"item_reference\": this server keeps no ",
                    "responses (its --response-store): give the item itself"),
          "unsupported_content");
    }
    if (type.empty()) return ItemError(where, ".type must be a string");
    LogLeftOut("an item of an unknown type");
    return OkStatus();
  }

  // What the system says before the first turn is one message: templates take
  // one.
  void AddSystem(const std::string& text) {
    const bool is_first =
        messages_.size() == 1 && messages_.front()["role"] == "system";
    if (is_first) {
      Append("content", text, messages_.front());
    } else {
      messages_.push_back(serving::MakeMessage("system", text));
    }
  }

  void AddUser(std::string text) {
    messages_.push_back(serving::MakeMessage("user", std::move(text)));
  }

  Json Take() && { return std::move(messages_); }

 private:
  Status AddMessage(serving::FieldReader& in, const std::string& where) {
    const std::string role = in.String("role").value_or("");
    const Json* content = in.Find("content");
    SLUICE_ASSIGN_OR_RETURN(std::string text,
                            TextOf(content, Cat(where, ".content")));
    if (role == "assistant") {
      // What an assistant says behind its calls is a turn of its own.
      Append("content", text, Turn(/*before_calls=*/true));
    } else if (role == "system" || role == "developer") {
      AddSystem(text);
    } else if (role == "user") {
      if (content == nullptr) return ItemError(where, ".content is missing");
      AddUser(std::move(text));
    } else {
      return ItemError(where,
                       ".role must be user, assistant, system or developer");
    }
    return OkStatus();
  }

  Status AddReasoning(serving::FieldReader& in, const std::string& where) {
    SLUICE_ASSIGN_OR_RETURN(std::string text,
                            TextOf(in.Find("content"), Cat(where, ".content")));
    if (text.empty()) {
      SLUICE_ASSIGN_OR_RETURN(
          text, TextOf(in.Find("summary"), Cat(where, ".summary")));
    }
    if (text.empty()) return OkStatus();  // encrypted by another server
    Append("reasoning_content", text, Turn(/*before_calls=*/true));
    return OkStatus();
  }

  Status AddCall(serving::FieldReader& in, const std::string& where,
                 bool is_custom) {
    const auto name = in.String("name");
    const std::string joined =
        JoinedName(in.String("namespace").value_or(""), name.value_or(""));
    SLUICE_ASSIGN_OR_RETURN(std::string id, CallId(in, where));
    if (!name || name->empty() || joined.size() > kMaxJoinedNameBytes) {
      return ItemError(where, ".name must be a string of 1 to ",
                       kMaxJoinedNameBytes, " bytes, with its namespace");
    }
    Json arguments;
    if (is_custom) {
      const auto input = in.String("input");
      if (!input) return ItemError(where, ".input must be a string");
      arguments = MakeObject(1);
      AppendMember(arguments, std::string(kCustomInput), *input);
    } else {
      const Json* given = in.Find("arguments");
      if (given != nullptr && !given->is_string() && !given->is_object()) {
        return ItemError(where, ".arguments must be JSON text, got ",
                         serving::Describe(*given));
      }
      auto shown = serving::ArgumentsToShow(given, budget_);
      if (!shown.ok()) {
        return ItemError(where, ".arguments: ", Message(shown.status()));
      }
      arguments = *std::move(shown);
    }
    Json& turn = Turn(/*before_calls=*/false);
    if (!turn.contains("tool_calls")) {
      AppendMember(turn, "tool_calls", Json::array());
    }
    Json& calls = turn["tool_calls"];
    if (calls.size() == serving::kMaxToolCalls) {
      return ItemError(where, " is call ", calls.size() + 1,
                       " of its turn, limit ", serving::kMaxToolCalls);
    }
    calls.push_back(
        serving::MakeCall(joined, std::move(arguments), std::move(id)));
    return OkStatus();
  }

  Status AddOutput(serving::FieldReader& in, const std::string& where) {
    SLUICE_ASSIGN_OR_RETURN(std::string id, CallId(in, where));
    SLUICE_ASSIGN_OR_RETURN(std::string text,
                            TextOf(in.Find("output"), Cat(where, ".output")));
    Json message = serving::MakeMessage("tool", std::move(text));
    if (!id.empty()) AppendMember(message, "tool_call_id", std::move(id));
    messages_.push_back(std::move(message));
    return OkStatus();
  }

  static StatusOr<std::string> CallId(serving::FieldReader& in,
                                      const std::string& where) {
    std::string id = in.String("call_id").value_or("");
    if (!in.status().ok()) return ItemError(where, ".", Message(in.status()));
    if (id.size() > serving::kMaxNameBytes) {
      return ItemError(where, ".call_id has ", id.size(), " bytes, limit ",
                       serving::kMaxNameBytes);
    }
    return id;
  }

  // Returns the assistant's turn that goes on, or a new one. `before_calls`:
  // one that has no calls.
  Json& Turn(bool before_calls) {
    const bool goes_on =
        !messages_.empty() && messages_.back()["role"] == "assistant" &&
        !(before_calls && messages_.back().contains("tool_calls"));
    if (!goes_on) messages_.push_back(serving::MakeMessage("assistant", ""));
    return messages_.back();
  }

  static void Append(const char* name, const std::string& text, Json& message) {
    if (!message.contains(name)) {
      AppendMember(message, name, text);
      return;
    }
    auto& all = message[name].get_ref<std::string&>();
    if (!all.empty() && !text.empty()) all += "\n\n";
    all += text;
  }

  JsonBudget& budget_;
  Json messages_ = Json::array();
};

}  // namespace

StatusOr<Json> MessagesOf(const Json& before, const Json& input,
                          const std::string& instructions, JsonBudget& budget) {
  if (!input.is_string() && !input.is_array()) {
    return serving::FieldError("input",
                               "must be a string or an array of items, got ",
                               serving::Describe(input));
  }
  const size_t count = before.size() + (input.is_array() ? input.size() : 1);
  if (count > serving::kMaxMessages) {
    return serving::FieldError("input", "has ", count,
                               " items, with those of the responses before, ",
                               "limit ", serving::kMaxMessages);
  }
  History history(budget);
  if (!instructions.empty()) history.AddSystem(instructions);
  for (size_t i = 0; i < before.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(
        history.Add(before[i], Cat("before input: [", i, "]")));
  }
  if (input.is_string()) {
    history.AddUser(input.get<std::string>());
  } else {
    for (size_t i = 0; i < input.size(); ++i) {
      SLUICE_RETURN_IF_ERROR(history.Add(input[i], Cat("input[", i, "]")));
    }
  }
  Json messages = std::move(history).Take();
  // Probes send no item.
  if (messages.empty()) messages.push_back(serving::MakeMessage("user", ""));
  return messages;
}

}  // namespace sluice::responses
