#include "common/dialects/openai/chat_fields.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/json.h"
#include "common/dialects/openai/reasoning_fields.h"
#include "common/serving/request_limits.h"
#include "common/serving/thinking.h"

namespace sluice::openai {
namespace {

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

bool IsOwnName(std::string_view name) {
  return std::find(std::begin(kOwnNames), std::end(kOwnNames), name) !=
         std::end(kOwnNames);
}

bool Fits(const Json& value, ArgumentType type) {
  if (type == ArgumentType::kBool) return value.is_boolean();
  return value.is_string() &&
         serving::IsWord(value.get_ref<const std::string&>());
}

// Reads one member of chat_template_kwargs.
void ReadArgument(serving::FieldReader& in, const std::string& name,
                  const Json& value, Json& out) {
  if (IsOwnName(name)) {
    in.Refuse("chat_template_kwargs", "\"", name,
              "\" is the server's own variable, which a request's fields set");
    return;
  }
  const auto found = std::find_if(
      std::begin(kArguments), std::end(kArguments),
      [&](const Argument& argument) { return argument.name == name; });
  if (found != std::end(kArguments) && !Fits(value, found->type)) {
    in.Refuse(
        "chat_template_kwargs", name, " must be ",
        found->type == ArgumentType::kBool
            ? std::string("true or false")
            : Cat("1 to ", serving::kMaxWordBytes, " letters, digits or - _"),
        ", got ", serving::Describe(value));
    return;
  }
  if (name != "reasoning_effort" || !out.contains(name)) {
    AppendMember(out, name, value);  // keys of an object differ
  } else if (out[name] != value) {
    in.Refuse("chat_template_kwargs", name, " contradicts the field ", name);
  }
}

}  // namespace

RenderOptions ReadTemplateFields(serving::FieldReader& in) {
  RenderOptions out;
  const std::optional<bool> opens = in.Bool("add_generation_prompt");
  const std::optional<bool> goes_on = in.Bool("continue_final_message");
  out.add_special_tokens = in.Bool("add_special_tokens").value_or(false);
  if (const auto effort = in.String("reasoning_effort")) {
    out.kwargs["reasoning_effort"] = *effort;
  }
  if (const Json* arguments = in.Find("chat_template_kwargs")) {
    if (!arguments->is_object()) {
      in.Refuse("chat_template_kwargs", "must be an object, got ",
                serving::Describe(*arguments));
      return out;
    }
    for (const auto& [name, value] : arguments->items()) {
      if (!value.is_null()) ReadArgument(in, name, value, out.kwargs);
    }
  }
  ReadThinking(in, out.kwargs);
  out.continue_final_message = goes_on.value_or(false);
  if (out.continue_final_message && opens.value_or(false)) {
    in.Refuse("continue_final_message",
              "cannot go with add_generation_prompt: true");
  }
  out.add_generation_prompt = opens.value_or(!out.continue_final_message);
  return out;
}

std::vector<std::string> ReadArgumentNames(serving::FieldReader& in) {
  std::vector<std::string> names;
  const Json* arguments = in.Find("chat_template_kwargs");
  if (arguments == nullptr || !arguments->is_object()) return names;
  for (const auto& [name, value] : arguments->items()) {
    if (!value.is_null()) names.push_back(name);
  }
  return names;
}

}  // namespace sluice::openai
