#include "common/dialects/openai/reasoning_fields.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "common/base/json.h"
#include "common/serving/thinking.h"

namespace sluice::openai {
namespace {

// Other servers' limits of reasoning, in tokens.
constexpr const char* kBudgets[] = {"reasoning_budget", "thinking_token_budget",
                                    "thinking_budget"};

// A setting that has several names.
template <typename T>
class Setting {
 public:
  explicit Setting(std::string_view what) : what_(what) {}

  // Takes the value of `name`, which is field `field` or a member of it.
  void Take(serving::FieldReader& in, std::string_view field,
            std::string_view name, T value) {
    if (!value_) {
      value_ = std::move(value);
      name_ = name;
    } else if (*value_ != value) {
      in.Refuse(field, Prefix(field, name), "contradicts ", name_,
                ": both say ", what_);
    }
  }
  const std::optional<T>& value() const { return value_; }
  const std::string& name() const { return name_; }

  // Returns what an error about `field` says of a member.
  static std::string Prefix(std::string_view field, std::string_view name) {
    return field == name ? "" : Cat(name, " ");
  }

 private:
  const std::string_view what_;
  std::optional<T> value_;
  std::string name_;
};

struct Thinking {
  Setting<bool> thinks{"whether the model thinks"};
  Setting<std::string> effort{"how much the model thinks"};

  // An effort of "none" is a switch, too.
  void TakeEffort(serving::FieldReader& in, std::string_view field,
                  std::string_view name, const std::string& word) {
    if (!serving::IsWord(word)) {
      in.Refuse(field, Setting<bool>::Prefix(field, name),
                "must be a word like \"low\"");
      return;
    }
    effort.Take(in, field, name, word);
    if (word == "none") thinks.Take(in, field, name, false);
  }
};

// Returns `name`'s object; null: absent, or an error.
const Json* FindObject(serving::FieldReader& in, const char* name) {
  const Json* value = in.Find(name);
  if (value == nullptr || value->is_object()) return value;
  in.Refuse(name, "must be an object, got ", serving::Describe(*value));
  return nullptr;
}

// A boolean, or an effort, as Ollama.
void ReadThink(serving::FieldReader& in, Thinking& out) {
  const Json* value = in.Find("think");
  if (value == nullptr) return;
  if (value->is_boolean()) {
    out.thinks.Take(in, "think", "think", value->get<bool>());
  } else if (value->is_string()) {
    out.TakeEffort(in, "think", "think", value->get<std::string>());
  } else {
    in.Refuse("think", "must be true, false or a word like \"low\", got ",
              serving::Describe(*value));
  }
}

// {"type": "enabled"}, as GLM's and DeepSeek's own servers.
void ReadThinkingType(serving::FieldReader& in, Thinking& out,
                      Json& arguments) {
  const Json* value = in.Find("thinking");
  if (value != nullptr && value->is_boolean()) {
    out.thinks.Take(in, "thinking", "thinking", value->get<bool>());
    return;
  }
  const Json* object = FindObject(in, "thinking");
  if (object == nullptr) return;
  serving::FieldReader part(*object);
  const std::string type = part.String("type").value_or("");
  if (type == "enabled" || type == "disabled") {
    out.thinks.Take(in, "thinking", "thinking.type", type == "enabled");
  } else if (type != "auto" && type != "adaptive") {
    in.Refuse("thinking",
              "type must be \"enabled\", \"disabled\", \"auto\" or ",
              "\"adaptive\"");
  }
  const auto clear = part.Bool("clear_thinking");
  if (!part.status().ok()) in.Refuse("thinking", Message(part.status()));
  if (clear && !arguments.contains("clear_thinking")) {
    arguments["clear_thinking"] = *clear;
  } else if (clear && arguments["clear_thinking"] != *clear) {
    in.Refuse("thinking", "clear_thinking contradicts ",
              "chat_template_kwargs.clear_thinking");
  }
  for (const auto& [name, member] : object->items()) {
    if (name == "type" || name == "clear_thinking" || member.is_null())
      continue;
    in.Refuse("thinking", "\"", name.substr(0, 64), "\" is not supported; ",
              "supported are type and clear_thinking");
  }
}

// {"effort", "enabled", "exclude"}, as OpenRouter and OpenAI's Responses.
void ReadReasoning(serving::FieldReader& in, Thinking& out) {
  const Json* object = FindObject(in, "reasoning");
  if (object == nullptr) return;
  serving::FieldReader part(*object);
  if (const auto effort = part.String("effort")) {
    out.TakeEffort(in, "reasoning", "reasoning.effort", *effort);
  }
  if (const auto enabled = part.Bool("enabled")) {
    out.thinks.Take(in, "reasoning", "reasoning.enabled", *enabled);
  }
  if (const auto limit = part.Int("max_tokens", 0, 0)) {
    out.thinks.Take(in, "reasoning", "reasoning.max_tokens", false);
  }
  if (!part.status().ok()) in.Refuse("reasoning", Message(part.status()));
  static constexpr std::string_view kMembers[] = {
      "effort",     "enabled", "exclude",
      "max_tokens", "summary", "generate_summary"};
  for (const auto& [name, member] : object->items()) {
    const bool known = std::find(std::begin(kMembers), std::end(kMembers),
                                 std::string_view(name)) != std::end(kMembers);
    if (known || member.is_null()) continue;
    in.Refuse("reasoning", "\"", name.substr(0, 64), "\" is not supported; ",
              "supported are effort, enabled, exclude and max_tokens: 0");
  }
}

void ReadBudgets(serving::FieldReader& in, Thinking& out) {
  for (const char* name : kBudgets) {
    const auto tokens = in.Int(name, -1, serving::kMaxInt32);
    if (!tokens || *tokens == -1) continue;
    if (*tokens > 0) continue;  // see ReadThinkingBudget
    out.thinks.Take(in, name, name, false);
  }
}

// Compares the client's own variables with the fields.
void CompareArguments(serving::FieldReader& in, const Json& arguments,
                      Thinking& out) {
  const bool by_effort = out.thinks.value() && out.effort.value() == "none" &&
                         out.thinks.name() == out.effort.name();
  // An effort of "none" leaves the client's own switches as they are.
  if (!out.thinks.value() || by_effort) return;
  for (const char* name : serving::kThinkingSwitches) {
    const auto found = arguments.find(name);
    if (found == arguments.end() || !found->is_boolean()) continue;
    out.thinks.Take(in, "chat_template_kwargs",
                    Cat("chat_template_kwargs.", name), found->get<bool>());
  }
}

}  // namespace

void ReadThinking(serving::FieldReader& in, Json& arguments) {
  constexpr const char* kEffort = "reasoning_effort";
  Thinking read;
  if (const auto effort = arguments.find(kEffort); effort != arguments.end()) {
    const bool of_field = in.Find(kEffort) != nullptr;
    read.TakeEffort(
        in, of_field ? kEffort : "chat_template_kwargs",
        of_field ? kEffort : "chat_template_kwargs.reasoning_effort",
        effort->get<std::string>());
  }
  if (const auto thinks = in.Bool("enable_thinking")) {
    read.thinks.Take(in, "enable_thinking", "enable_thinking", *thinks);
  }
  ReadThink(in, read);
  ReadThinkingType(in, read, arguments);
  ReadReasoning(in, read);
  ReadBudgets(in, read);
  CompareArguments(in, arguments, read);
  if (!in.status().ok()) return;
  const std::optional<bool>& thinks = read.thinks.value();
  const std::optional<std::string>& effort = read.effort.value();
  if (thinks == false && effort && *effort != "none") {
    const std::string field(
        read.effort.name().substr(0, read.effort.name().find('.')));
    in.Refuse(field, Setting<bool>::Prefix(field, read.effort.name()),
              "contradicts ", read.thinks.name(), ", by which the model does ",
              "not think");
    return;
  }
  serving::SetThinking(thinks, effort, arguments);
}

void ReadThinkingBudget(serving::FieldReader& in,
                        serving::GenerationFields& out) {
  Setting<int64_t> budget("how many tokens the model thinks for");
  for (const char* name : kBudgets) {
    const auto tokens = in.Int(name, -1, serving::kMaxInt32);
    if (!tokens || *tokens == -1) continue;
    budget.Take(in, name, name, *tokens);
    if (out.thinking_budget_field.empty()) out.thinking_budget_field = name;
  }
  if (budget.value().value_or(0) > 0) out.thinking_budget = budget.value();
}

bool ReadHidesReasoning(serving::FieldReader& in) {
  Setting<bool> shown("whether the answer has the reasoning");
  if (const auto include = in.Bool("include_reasoning")) {
    shown.Take(in, "include_reasoning", "include_reasoning", *include);
  }
  const Json* reasoning = FindObject(in, "reasoning");
  if (reasoning != nullptr) {
    serving::FieldReader part(*reasoning);
    if (const auto exclude = part.Bool("exclude")) {
      shown.Take(in, "reasoning", "reasoning.exclude", !*exclude);
    }
    if (!part.status().ok()) in.Refuse("reasoning", Message(part.status()));
  }
  return shown.value() == false;
}

void RefuseBudgets(serving::FieldReader& in) {
  for (const char* name : kBudgets) {
    const auto tokens = in.Int(name, -1, serving::kMaxInt32);
    if (!tokens || *tokens == -1) continue;
    in.Refuse(name, "must be -1, no limit: completions have no reasoning that ",
              "is told apart, got ", *tokens);
  }
}

}  // namespace sluice::openai
