#include "common/dialects/responses/tool_fields.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "common/base/cat.h"
#include "common/base/log_limit.h"
#include "common/grammar/lark_regex.h"
#include "common/serving/chat_parts.h"
#include "common/serving/request_limits.h"
#include "common/serving/tool_fields.h"

namespace sluice::responses {
namespace {

constexpr std::string_view kJoint = "__";
static_assert(2 * serving::kMaxToolNameBytes + kJoint.size() <=
              kMaxJoinedNameBytes);

// What a custom tool's input keeps to.
struct InputFormat {
  std::string syntax;      // "lark", "regex"; empty: any text
  std::string definition;  // as the client wrote it
  std::string pattern;     // of ECMA-262; empty: the input is not held
};

// Returns an expression that a custom tool's input keeps to. UNIMPLEMENTED if
// none can hold it.
StatusOr<std::string> PatternOf(const std::string& syntax,
                                const std::string& text) {
  if (syntax == "lark") return RegexOfLark(text);
  if (HasLookaround(text)) return Unimplemented("it has a look-around");
  return Cat("^(?:", text, ")$");
}

void LogFree(std::string_view why) {
  static auto* const limit = new LogLimit(1, std::chrono::hours(1));
  limit->Write(LogLevel::kWarning, "responses: a custom tool's input is not ",
               "held to its grammar: ", why);
}

// The schema of a custom tool's arguments.
Json CustomParameters(const std::string& pattern) {
  Json input{{"type", "string"}};
  if (!pattern.empty()) input["pattern"] = pattern;
  Json properties = MakeObject(1);
  AppendMember(properties, std::string(kCustomInput), std::move(input));
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", Json::array({std::string(kCustomInput)})},
          {"additionalProperties", false}};
}

class ToolReader {
 public:
  explicit ToolReader(serving::FieldReader& in) : in_(in) {}

  Tools Read() && {
    out_.shown = Json::array();
    const Json* tools = in_.Find("tools");
    if (tools != nullptr) ReadList(*tools);
    ReadChoice();
    if (in_.Find("parallel_tool_calls") != nullptr) {
      const bool parallel = in_.Bool("parallel_tool_calls").value_or(true);
      out_.fields.parallel = out_.fields.parallel && parallel;
    }
    return std::move(out_);
  }

 private:
  void ReadList(const Json& tools) {
    if (!tools.is_array()) {
      in_.Refuse("tools", "must be an array, got ", serving::Describe(tools));
      return;
    }
    for (size_t i = 0; i < tools.size(); ++i) {
      const size_t before = out_.fields.strict.size();
      ReadTool(tools[i], Cat("tools[", i, "]"));
      if (!in_.status().ok()) return;
      const auto& strict = out_.fields.strict;
      const auto begin = strict.begin() + static_cast<long>(before);
      out_.of_body.strict.emplace_back(std::find(begin, strict.end(), true) !=
                                       strict.end());
    }
  }

  void ReadTool(const Json& tool, const std::string& place) {
    const std::string type = TypeOf(tool);
    if (type.empty()) {
      in_.Refuse("tools", place, " must be an object with a type, got ",
                 serving::Describe(tool));
    } else if (type == "namespace") {
      ReadNamespace(tool, place);
    } else if (type == "function" || type == "custom") {
      Json shown = ReadCallable(tool, type, "", "", place);
      if (in_.status().ok()) out_.shown.push_back(std::move(shown));
    }
  }

  static std::string TypeOf(const Json& object) {
    return object.is_object()
               ? serving::FieldReader(object).String("type").value_or("")
               : "";
  }

  void ReadNamespace(const Json& tool, const std::string& place) {
    serving::FieldReader part(tool);
    const std::string name = part.String("name").value_or("");
    const std::string description = part.String("description").value_or("");
    const Json* tools = part.Find("tools");
    if (!part.status().ok()) {
      in_.Refuse("tools", place, ".", Message(part.status()));
      return;
    }
    if (!serving::IsToolName(name) || tools == nullptr || !tools->is_array()) {
      in_.Refuse("tools", place, " must have a name, 1 to ",
                 serving::kMaxToolNameBytes,
                 " of A-Z a-z 0-9 _ . : / -, and an array of tools");
      return;
    }
    Json shown = Json::array();
    for (size_t i = 0; i < tools->size(); ++i) {
      const Json& inner = (*tools)[i];
      const std::string type = TypeOf(inner);
      if (type != "function" && type != "custom") continue;
      shown.push_back(ReadCallable(inner, type, name,
                                   shown.empty() ? description : "",
                                   Cat(place, ".tools[", i, "]")));
      if (!in_.status().ok()) return;
    }
    out_.shown.push_back({{"type", "namespace"},
                          {"name", name},
                          {"description", description},
                          {"tools", std::move(shown)}});
  }

  // Adds a function or a custom tool, and returns it as answers have it.
  // `about`: what is said of its namespace.
  Json ReadCallable(const Json& tool, const std::string& type,
                    const std::string& name_space, const std::string& about,
                    const std::string& place) {
    serving::FieldReader part(tool);
    serving::FunctionFields read = serving::ReadFunction(part, "parameters");
    if (!part.status().ok()) {
      in_.Refuse("tools", place, ".", Message(part.status()));
      return nullptr;
    }
    const ToolName named{read.name, name_space, type == "custom"};
    const std::string joined = JoinedName(name_space, named.name);
    if (!out_.names.emplace(joined, named).second) {
      in_.Refuse("tools", place, " has the name of another tool: ", joined);
      return nullptr;
    }
    if (out_.fields.strict.size() == serving::kMaxTools) {
      in_.Refuse("tools", "has more than ", serving::kMaxTools, " tools");
      return nullptr;
    }
    const std::string told =
        Paragraphs(about, read.description.is_null()
                              ? ""
                              : read.description.get_ref<const std::string&>());
    if (named.is_custom) return AddCustom(tool, joined, told, place);
    Json shown{{"type", "function"},
               {"name", named.name},
               {"description", std::move(read.description)},
               {"parameters", read.parameters},
               {"strict", read.strict.value_or(false)}};
    Add(joined, told, std::move(read.parameters), read.strict, "");
    return shown;
  }

  Json AddCustom(const Json& tool, const std::string& joined,
                 const std::string& description, const std::string& place) {
    const InputFormat format = ReadFormat(tool, place);
    std::string told = description;
    if (!format.syntax.empty()) {
      const std::string what =
          format.syntax == "lark" ? "Lark grammar" : "regular expression";
      told = Paragraphs(description, Cat("The input must keep to this ", what,
                                         ":\n", format.definition));
    }
    // Without a pattern, too: what the model gives beside the text is lost.
    Add(joined, told, CustomParameters(""), true,
        format.pattern.empty() ? ""
                               : DumpJson(CustomParameters(format.pattern)));
    return tool;
  }

  // {"type": "text"}, or {"type": "grammar", "syntax", "definition"}.
  InputFormat ReadFormat(const Json& tool, const std::string& place) {
    InputFormat out;
    const Json* format = serving::FieldReader(tool).Find("format");
    if (format == nullptr || TypeOf(*format) == "text") return out;
    serving::FieldReader part(*format);
    const bool is_grammar = TypeOf(*format) == "grammar";
    const auto syntax = is_grammar ? part.String("syntax") : std::nullopt;
    const auto text = is_grammar ? part.String("definition") : std::nullopt;
    if (!syntax || !text || text->empty() ||
        (*syntax != "lark" && *syntax != "regex")) {
      in_.Refuse("tools", place,
                 ".format must be {\"type\": \"text\"} or {\"type\": ",
                 "\"grammar\", \"syntax\": \"lark\" or \"regex\", ",
                 "\"definition\": a string}");
      return out;
    }
    auto pattern = PatternOf(*syntax, *text);
    if (pattern.ok()) {
      out.pattern = *std::move(pattern);
    } else if (pattern.status().code() == StatusCode::kUnimplemented) {
      // The model is told of the grammar, and may keep to it.
      LogFree(Message(pattern.status()));
    } else {
      in_.Refuse("tools", place,
                 ".format.definition: ", Message(pattern.status()));
      return out;
    }
    out.syntax = *syntax;
    out.definition = *text;
    return out;
  }

  void Add(const std::string& name, const std::string& description,
           Json parameters, std::optional<bool> strict, std::string held) {
    Json& tools = out_.fields.tools;
    if (tools.is_null()) tools = Json::array();
    tools.push_back(serving::MakeTool(
        name, description.empty() ? Json() : Json(description),
        std::move(parameters)));
    out_.fields.strict.push_back(strict);
    out_.fields.held.push_back(std::move(held));
  }

  static std::string Paragraphs(const std::string& a, const std::string& b) {
    return Cat(a, a.empty() || b.empty() ? "" : "\n\n", b);
  }

  void ReadChoice() {
    serving::ToolFields& fields = out_.fields;
    const Json* choice = serving::ReadChoiceWord(in_, fields);
    if (choice == nullptr) return;
    if (TypeOf(*choice) == "allowed_tools") {
      ReadAllowed(*choice);
    } else if (TypeOf(*choice).empty()) {
      in_.Refuse("tool_choice", "must have a type");
    } else {
      fields.choice = serving::ToolChoice::kRequired;
      fields.parallel = false;  // OpenAI's answer is one call
      Allow(*choice, "");
    }
  }

  // {"type": "allowed_tools", "mode", "tools"}.
  void ReadAllowed(const Json& choice) {
    serving::FieldReader part(choice, "tool_choice.");
    const Json* tools = serving::ReadAllowedTools(part, "auto", out_.fields);
    in_.Keep(part.status());
    for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
      Allow((*tools)[i], Cat("tools[", i, "] "));
    }
  }

  // Adds the tool that `named` names: {"type", "name", ["namespace"]}.
  void Allow(const Json& named, const std::string& place) {
    const std::string type = TypeOf(named);
    if (type != "function" && type != "custom") {
      in_.Refuse("tool_choice", place,
                 "must name a function or a custom tool: ",
                 "hosted tools are not built");
      return;
    }
    serving::FieldReader part(named);
    const std::string name = part.String("name").value_or("");
    const auto name_space = part.String("namespace");
    bool is_found = false;
    for (const auto& [joined, tool] : out_.names) {
      if (tool.is_custom != (type == "custom") ||
          (tool.name != name && joined != name) ||
          (name_space && tool.name_space != *name_space)) {
        continue;
      }
      is_found = true;
      serving::Allow(joined, out_.fields);
    }
    if (is_found) return;
    in_.Refuse("tool_choice", place, "names a tool that is not in tools",
               serving::IsToolName(name) ? Cat(": ", name) : "");
  }

  serving::FieldReader& in_;
  Tools out_;
};

}  // namespace

std::string JoinedName(std::string_view name_space, std::string_view name) {
  return name_space.empty() ? std::string(name) : Cat(name_space, kJoint, name);
}

Tools ReadTools(serving::FieldReader& in) { return ToolReader(in).Read(); }

}  // namespace sluice::responses
