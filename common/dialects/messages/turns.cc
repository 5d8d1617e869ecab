#include "common/dialects/messages/turns.h"

#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/serving/chat_parts.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"
#include "common/serving/request_limits.h"

namespace sluice::messages {
namespace {

// The first block of an agent's system text, which changes by its version and
// would keep a prompt from the prefix cache.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

constexpr std::string_view kDocumentNote =
    "[document left out: this model reads text]";

// Returns string `name` of a part of the body.
StatusOr<std::string> Needed(serving::FieldReader& in, std::string_view name,
                             size_t max_bytes = std::string::npos) {
  auto text = in.String(name);
  if (!text) in.Refuse(name, "Field required");
  if (text && text->size() > max_bytes) {
    in.Refuse(name, "has ", text->size(), " bytes, limit ", max_bytes);
  }
  SLUICE_RETURN_IF_ERROR(in.status());
  return *std::move(text);
}

// Adds a part of a text that is parts joined by newlines.
void AddPart(std::string_view part, std::optional<std::string>& text) {
  if (!text) {
    text.emplace(part);
    return;
  }
  *text += '\n';
  *text += part;
}

// Adds `more` to `text`, a string, behind a newline where both say something.
void AddText(std::string_view more, Json& text) {
  auto& all = text.get_ref<std::string&>();
  if (!all.empty() && !more.empty()) all += '\n';
  all += more;
}

class TurnReader {
 public:
  explicit TurnReader(JsonBudget& budget) : budget_(budget) {}

  Status ReadSystem(const Json& system) {
    SLUICE_ASSIGN_OR_RETURN(const auto text,
                            Text(system, "system", /*without_billing=*/true));
    if (text && !text->empty()) Add("system", *text);
    return OkStatus();
  }
  Status ReadMessage(const Json& message, const std::string& at);
  Turns Take() &&;

 private:
  void Add(std::string_view role, std::string text) {
    out_.messages.push_back(serving::MakeMessage(role, std::move(text)));
  }

  // Calls `read` with each block of `content`, an array, and its place.
  template <typename Read>
  static Status ForEachBlock(const Json& content, const std::string& at,
                             const Read& read);
  // Returns what the model reads of `content`, a text or blocks; nothing: it
  // reads no block.
  StatusOr<std::optional<std::string>> Text(const Json& content,
                                            const std::string& at,
                                            bool without_billing = false);
  // Returns what the model reads of a block that has text or stands for it.
  StatusOr<std::optional<std::string>> BlockText(const Json& block,
                                                 const std::string& at);
  StatusOr<std::string> DocumentText(const Json& block, const std::string& at);
  Status ReadSystemTurn(const Json& message, const Json& content,
                        const std::string& at);
  Status ReadUser(const Json& content, const std::string& at);
  Status ReadResult(const Json& block, const std::string& at);
  Status ReadAssistant(const Json& content, const std::string& at);
  StatusOr<Json> ReadCall(const Json& block, const std::string& at);

  JsonBudget& budget_;
  Turns out_;
};

template <typename Read>
Status TurnReader::ForEachBlock(const Json& content, const std::string& at,
                                const Read& read) {
  if (!content.is_array()) {
    return serving::FieldError(at,
                               "must be a string or an array of blocks, got ",
                               serving::Describe(content));
  }
  if (content.size() > serving::kMaxContentParts) {
    return serving::FieldError(at, "has ", content.size(), " blocks, limit ",
                               serving::kMaxContentParts);
  }
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string place = Cat(at, "[", i, "]");
    if (!content[i].is_object()) {
      return serving::FieldError(place, "must be an object, got ",
                                 serving::Describe(content[i]));
    }
    serving::FieldReader block(content[i], Cat(place, "."));
    SLUICE_ASSIGN_OR_RETURN(const std::string type, Needed(block, "type"));
    SLUICE_RETURN_IF_ERROR(read(type, content[i], place));
  }
  return OkStatus();
}

StatusOr<std::optional<std::string>> TurnReader::Text(const Json& content,
                                                      const std::string& at,
                                                      bool without_billing) {
  std::optional<std::string> text;
  if (content.is_string()) {
    text = content.get<std::string>();
    return text;
  }
  bool is_first = true;
  const auto add = [&](const std::string&, const Json& block,
                       const std::string& place) -> Status {
    SLUICE_ASSIGN_OR_RETURN(const auto part, BlockText(block, place));
    const bool billing = std::exchange(is_first, false) && without_billing &&
                         part && part->starts_with(kBillingHeader);
    if (part && !billing) AddPart(*part, text);
    return OkStatus();
  };
  SLUICE_RETURN_IF_ERROR(ForEachBlock(content, at, add));
  return text;
}

StatusOr<std::optional<std::string>> TurnReader::BlockText(
    const Json& block, const std::string& at) {
  serving::FieldReader in(block, Cat(at, "."));
  const std::string type = in.String("type").value_or("");
  std::optional<std::string> text;
  if (type == "text") {
    SLUICE_ASSIGN_OR_RETURN(text, Needed(in, "text"));
  } else if (type == "image") {
    text = std::string(serving::kImageNote);
  } else if (type == "document" || type == "search_result") {
    SLUICE_ASSIGN_OR_RETURN(text, DocumentText(block, at));
  } else if (type == "tool_reference") {
    SLUICE_ASSIGN_OR_RETURN(const std::string name, Needed(in, "tool_name"));
    out_.named_tools.insert(name);
    text = Cat("[tool ", name.substr(0, serving::kMaxToolNameBytes), "]");
  }
  return text;
}

// A document has its content in `source`, a search result beside it.
StatusOr<std::string> TurnReader::DocumentText(const Json& block,
                                               const std::string& at) {
  serving::FieldReader in(block, Cat(at, "."));
  std::optional<std::string> text;
  for (const char* name : {"title", "context"}) {
    if (const auto part = in.String(name)) AddPart(*part, text);
  }
  SLUICE_RETURN_IF_ERROR(in.status());
  const Json* source = in.Find("source");
  const Json* content = in.Find("content");
  std::string place = Cat(at, ".content");
  if (source != nullptr && source->is_object()) {
    serving::FieldReader of_source(*source, Cat(at, ".source."));
    const std::string type = of_source.String("type").value_or("");
    const char* const member = type == "text" ? "data" : "content";
    content = of_source.Find(member);
    place = Cat(at, ".source.", member);
    if (type != "text" && type != "content") content = nullptr;
  }
  std::optional<std::string> body;
  if (content != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(body, Text(*content, place));
  }
  AddPart(body ? std::string_view(*body) : kDocumentNote, text);
  return *std::move(text);
}

Status TurnReader::ReadMessage(const Json& message, const std::string& at) {
  if (!message.is_object()) {
    return serving::FieldError(at, "must be an object, got ",
                               serving::Describe(message));
  }
  serving::FieldReader in(message, Cat(at, "."));
  SLUICE_ASSIGN_OR_RETURN(const std::string role, Needed(in, "role"));
  const Json* content = in.Find("content");
  if (content == nullptr) in.Refuse("content", "Field required");
  SLUICE_RETURN_IF_ERROR(in.status());
  const std::string place = Cat(at, ".content");
  if (role == "assistant") return ReadAssistant(*content, place);
  if (role == "system") return ReadSystemTurn(message, *content, at);
  if (role == "user" || role == "ctx" || role == "msg") {
    return ReadUser(*content, place);
  }
  return serving::FieldError(Cat(at, ".role"),
                             "must be \"user\", \"assistant\" or \"system\"");
}

Status TurnReader::ReadSystemTurn(const Json& message, const Json& content,
                                  const std::string& at) {
  const auto config = message.find("output_config");
  if (config != message.end()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string effort,
                            ReadEffort(*config, Cat(at, ".output_config")));
    if (!effort.empty()) out_.effort = effort;
  }
  SLUICE_ASSIGN_OR_RETURN(const auto text, Text(content, Cat(at, ".content")));
  if (text) Add("system", *text);
  return OkStatus();
}

// Results of calls come before what the user says beside them.
Status TurnReader::ReadUser(const Json& content, const std::string& at) {
  std::optional<std::string> said;
  bool has_results = false;
  const auto read = [&](const std::string& type, const Json& block,
                        const std::string& place) -> Status {
    if (type == "tool_result") {
      has_results = true;
      return ReadResult(block, place);
    }
    SLUICE_ASSIGN_OR_RETURN(const auto part, BlockText(block, place));
    if (part) AddPart(*part, said);
    return OkStatus();
  };
  if (content.is_string()) {
    said = content.get<std::string>();
  } else {
    SLUICE_RETURN_IF_ERROR(ForEachBlock(content, at, read));
  }
  if (!said && has_results) return OkStatus();
  // Turns of the user in a row are one.
  if (!out_.messages.empty() && out_.messages.back()["role"] == "user") {
    auto& last = out_.messages.back()["content"].get_ref<std::string&>();
    last += '\n';
    last += said.value_or("");
    return OkStatus();
  }
  Add("user", said.value_or(""));
  return OkStatus();
}

Status TurnReader::ReadResult(const Json& block, const std::string& at) {
  serving::FieldReader in(block, Cat(at, "."));
  SLUICE_ASSIGN_OR_RETURN(std::string id,
                          Needed(in, "tool_use_id", serving::kMaxNameBytes));
  const bool is_error = in.Bool("is_error").value_or(false);
  const Json* content = in.Find("content");
  SLUICE_RETURN_IF_ERROR(in.status());
  std::optional<std::string> text;
  if (content != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(text, Text(*content, Cat(at, ".content")));
  }
  Json message = serving::MakeMessage(
      "tool", Cat(is_error ? "Error: " : "", text.value_or("")));
  AppendMember(message, "tool_call_id", std::move(id));
  out_.messages.push_back(std::move(message));
  return OkStatus();
}

Status TurnReader::ReadAssistant(const Json& content, const std::string& at) {
  std::optional<std::string> said;
  std::optional<std::string> thought;
  Json calls = Json::array();
  const auto read = [&](const std::string& type, const Json& block,
                        const std::string& place) -> Status {
    serving::FieldReader in(block, Cat(place, "."));
    if (type == "thinking") {
      std::string text = in.String("thinking").value_or("");
      const std::string signature = in.String("signature").value_or("");
      SLUICE_RETURN_IF_ERROR(in.status());
      if (text.empty() && signature.starts_with(kSignature)) {
        text = signature.substr(kSignature.size());
      }
      if (!text.empty()) AddPart(text, thought);
    } else if (type == "tool_use") {
      SLUICE_ASSIGN_OR_RETURN(Json call, ReadCall(block, place));
      calls.push_back(std::move(call));
    } else {
      SLUICE_ASSIGN_OR_RETURN(const auto part, BlockText(block, place));
      if (part) AddPart(*part, said);
    }
    return OkStatus();
  };
  if (content.is_string()) {
    said = content.get<std::string>();
  } else {
    SLUICE_RETURN_IF_ERROR(ForEachBlock(content, at, read));
  }
  if (calls.size() > serving::kMaxToolCalls) {
    return serving::FieldError(at, "has ", calls.size(),
                               " tool_use blocks, limit ",
                               serving::kMaxToolCalls);
  }
  // Turns of the assistant in a row are one, unless calls end the first.
  const bool goes_on = !out_.messages.empty() &&
                       out_.messages.back()["role"] == "assistant" &&
                       !out_.messages.back().contains("tool_calls");
  if (!goes_on) out_.messages.push_back(serving::MakeMessage("assistant", ""));
  Json& message = out_.messages.back();
  AddText(said.value_or(""), message["content"]);
  if (thought) {
    if (!message.contains("reasoning_content")) {
      AppendMember(message, "reasoning_content", "");
    }
    AddText(*thought, message["reasoning_content"]);
  }
  if (!calls.empty()) AppendMember(message, "tool_calls", std::move(calls));
  return OkStatus();
}

StatusOr<Json> TurnReader::ReadCall(const Json& block, const std::string& at) {
  serving::FieldReader in(block, Cat(at, "."));
  SLUICE_ASSIGN_OR_RETURN(std::string name,
                          Needed(in, "name", serving::kMaxNameBytes));
  SLUICE_ASSIGN_OR_RETURN(std::string id,
                          Needed(in, "id", serving::kMaxNameBytes));
  if (name.empty()) in.Refuse("name", "must not be empty");
  const Json* input = in.Find("input");
  if (input != nullptr && !input->is_object() && !input->is_string()) {
    in.Refuse("input", "must be an object, got ", serving::Describe(*input));
  }
  SLUICE_RETURN_IF_ERROR(in.status());
  auto arguments = serving::ArgumentsToShow(input, budget_);
  if (!arguments.ok()) {
    return serving::FieldError(Cat(at, ".input"), Message(arguments.status()));
  }
  out_.named_tools.insert(name);
  return serving::MakeCall(std::move(name), *std::move(arguments),
                           std::move(id));
}

Turns TurnReader::Take() && {
  Json& messages = out_.messages;
  const bool is_prefill = !messages.empty() &&
                          messages.back()["role"] == "assistant" &&
                          !messages.back().contains("tool_calls");
  if (is_prefill) {
    // An empty one says nothing to go on with.
    out_.continues = messages.back()["content"] != "";
    if (!out_.continues) messages.erase(messages.size() - 1);
  }
  return std::move(out_);
}

}  // namespace

StatusOr<Turns> ReadTurns(const Json* system, const Json& messages,
                          JsonBudget& budget) {
  if (!messages.is_array() || messages.empty()) {
    return serving::FieldError("messages",
                               "must be an array of at least one message, got ",
                               serving::Describe(messages));
  }
  if (messages.size() > serving::kMaxMessages) {
    return serving::FieldError("messages", "has ", messages.size(),
                               " messages, limit ", serving::kMaxMessages);
  }
  TurnReader reader(budget);
  if (system != nullptr) SLUICE_RETURN_IF_ERROR(reader.ReadSystem(*system));
  for (size_t i = 0; i < messages.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(
        reader.ReadMessage(messages[i], Cat("messages[", i, "]")));
  }
  Turns turns = std::move(reader).Take();
  if (turns.messages.empty()) {
    return serving::FieldError("messages", "has nothing to answer");
  }
  return turns;
}

StatusOr<std::string> ReadEffort(const Json& config, const std::string& field) {
  // Templates know the first three.
  static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"low", "low"},
      {"medium", "medium"},
      {"high", "high"},
      {"xhigh", "high"},
      {"max", "high"}};
  if (config.is_null()) return std::string();
  if (!config.is_object()) {
    return serving::FieldError(field, "must be an object, got ",
                               serving::Describe(config));
  }
  serving::FieldReader in(config, Cat(field, "."));
  const auto effort = in.String("effort");
  SLUICE_RETURN_IF_ERROR(in.status());
  if (!effort) return std::string();
  for (const auto& [name, word] : kWords) {
    if (name == *effort) return std::string(word);
  }
  in.Refuse("effort", "must be low, medium, high, xhigh or max");
  return in.status();
}

}  // namespace sluice::messages
