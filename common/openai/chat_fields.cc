#include "common/openai/chat_fields.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/json.h"

namespace sluice::openai {
namespace {

// Templates compare or print short words, which hold no special token.
constexpr size_t kMaxWordBytes = 32;

enum class ArgumentType { kBool, kWord };

struct Argument {
  std::string_view name;
  ArgumentType type;
};

// Variables that templates of well-known models read.
constexpr Argument kArguments[] = {
    {"enable_thinking", ArgumentType::kBool},    // Qwen3, GLM
    {"thinking", ArgumentType::kBool},           // DeepSeek, Granite
    {"clear_thinking", ArgumentType::kBool},     // GLM
    {"preserve_thinking", ArgumentType::kBool},  // Qwen3
    {"reasoning_effort", ArgumentType::kWord},   // gpt-oss
    {"date_string", ArgumentType::kWord},        // Llama 3
    {"model_identity", ArgumentType::kWord},     // gpt-oss
};

bool IsWord(const Json& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  const auto plain = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z') || c == ' ' || c == '-' || c == '_';
  };
  return !text.empty() && text.size() <= kMaxWordBytes &&
         std::all_of(text.begin(), text.end(), plain);
}

std::string Names() {
  std::string names = "add_generation_prompt, continue_final_message";
  for (const Argument& argument : kArguments) {
    names += Cat(", ", argument.name);
  }
  return names;
}

// Reads one member of chat_template_kwargs that has no field of its own.
void ReadArgument(FieldReader& in, const std::string& name, const Json& value,
                  Json& out) {
  const auto found = std::find_if(
      std::begin(kArguments), std::end(kArguments),
      [&](const Argument& argument) { return argument.name == name; });
  if (found == std::end(kArguments)) {
    in.Refuse("chat_template_kwargs", "\"", name.substr(0, 64),
              "\" is not allowed; allowed are ", Names());
    return;
  }
  const bool fits =
      found->type == ArgumentType::kBool ? value.is_boolean() : IsWord(value);
  if (!fits) {
    in.Refuse("chat_template_kwargs", name, " must be ",
              found->type == ArgumentType::kBool
                  ? std::string("true or false")
                  : Cat("1 to ", kMaxWordBytes, " letters, digits or - _"),
              ", got ", Describe(value));
    return;
  }
  out[name] = value;
}

// Turns thinking off by the template's own variable, unless the client set that
// variable.
void ObeyNoEffort(Json& arguments) {
  const auto effort = arguments.find("reasoning_effort");
  if (effort == arguments.end() || *effort != "none") return;
  for (const char* name : {"enable_thinking", "thinking"}) {
    if (!arguments.contains(name)) arguments[name] = false;
  }
}

}  // namespace

RenderOptions ReadTemplateFields(FieldReader& in) {
  RenderOptions out;
  std::optional<bool> opens = in.Bool("add_generation_prompt");
  std::optional<bool> goes_on = in.Bool("continue_final_message");
  out.add_special_tokens = in.Bool("add_special_tokens").value_or(false);
  if (const auto effort = in.String("reasoning_effort")) {
    if (!IsWord(*effort)) {
      in.Refuse("reasoning_effort", "must be a word like \"low\"");
    }
    out.kwargs["reasoning_effort"] = *effort;
  }
  if (const Json* arguments = in.Find("chat_template_kwargs")) {
    if (!arguments->is_object()) {
      in.Refuse("chat_template_kwargs", "must be an object, got ",
                Describe(*arguments));
      return out;
    }
    FieldReader sub(*arguments, "chat_template_kwargs.");
    if (const auto value = sub.Bool("add_generation_prompt")) opens = value;
    if (const auto value = sub.Bool("continue_final_message")) goes_on = value;
    if (!sub.status().ok()) {
      in.Refuse("chat_template_kwargs", Message(sub.status()));
    }
    for (const auto& [name, value] : arguments->items()) {
      if (name == "add_generation_prompt") continue;
      if (name == "continue_final_message" || value.is_null()) continue;
      ReadArgument(in, name, value, out.kwargs);
    }
  }
  ObeyNoEffort(out.kwargs);
  out.continue_final_message = goes_on.value_or(false);
  if (out.continue_final_message && opens.value_or(false)) {
    in.Refuse("continue_final_message",
              "cannot go with add_generation_prompt: true");
  }
  out.add_generation_prompt = opens.value_or(!out.continue_final_message);
  return out;
}

}  // namespace sluice::openai
