#include <string_view>

#include "common/base/json.h"
#include "services/gateway/openai/error.h"
#include "services/gateway/openai/fields.h"
#include "services/gateway/openai/parse.h"

namespace sluice::gateway {
namespace {

// When a known field that is not built changes nothing.
enum class Neutral {
  kZero,
  kOne,
  kFalse,
  kTrue,
  kEmpty,       // "", [] or {}
  kNoTools,     // "none" or "auto"
  kPlainText,   // {"type": "text"}
  kTextOutput,  // ["text"]
  kNever,       // only null
};

struct UnbuiltField {
  std::string_view name;
  Neutral neutral;
  bool chat = true;
  bool completions = true;
};

constexpr UnbuiltField kUnbuiltFields[] = {
    {"n", Neutral::kOne},
    {"best_of", Neutral::kOne},
    {"frequency_penalty", Neutral::kZero},
    {"presence_penalty", Neutral::kZero},
    {"repetition_penalty", Neutral::kOne},
    {"length_penalty", Neutral::kOne},
    {"logit_bias", Neutral::kEmpty},
    {"allowed_token_ids", Neutral::kEmpty},
    {"bad_words", Neutral::kEmpty},
    {"use_beam_search", Neutral::kFalse},
    {"prompt_logprobs", Neutral::kNever},
    {"truncate_prompt_tokens", Neutral::kNever},
    {"skip_special_tokens", Neutral::kTrue},
    {"spaces_between_special_tokens", Neutral::kTrue},
    {"include_stop_str_in_output", Neutral::kFalse},
    {"response_format", Neutral::kPlainText},
    {"guided_json", Neutral::kNever},
    {"guided_regex", Neutral::kNever},
    {"guided_choice", Neutral::kNever},
    {"guided_grammar", Neutral::kNever},
    {"structured_outputs", Neutral::kNever},
    {"suffix", Neutral::kEmpty, false, true},
    {"tools", Neutral::kEmpty, true, false},
    {"tool_choice", Neutral::kNoTools, true, false},
    {"functions", Neutral::kEmpty, true, false},
    {"function_call", Neutral::kNoTools, true, false},
    {"modalities", Neutral::kTextOutput, true, false},
    {"audio", Neutral::kNever, true, false},
    {"web_search_options", Neutral::kNever, true, false},
    {"chat_template", Neutral::kNever, true, false},
    {"chat_template_kwargs", Neutral::kEmpty, true, false},
    {"documents", Neutral::kEmpty, true, false},
    {"continue_final_message", Neutral::kFalse, true, false},
    {"add_special_tokens", Neutral::kFalse, true, false},
    {"echo", Neutral::kFalse, true, false},
};

bool IsNeutral(const Json& value, Neutral neutral) {
  switch (neutral) {
    case Neutral::kZero:
      return value.is_number() && value == 0;
    case Neutral::kOne:
      return value.is_number() && value == 1;
    case Neutral::kFalse:
      return value == false;
    case Neutral::kTrue:
      return value == true;
    case Neutral::kEmpty:
      return value.is_string() ? value == "" : value.empty();
    case Neutral::kNoTools:
      return value == "none" || value == "auto";
    case Neutral::kPlainText:
      return value.is_object() && value.contains("type") &&
             value["type"] == "text";
    case Neutral::kTextOutput:
      return value == Json::array({"text"});
    case Neutral::kNever:
      return false;
  }
  return false;
}

std::string_view Allowed(Neutral neutral) {
  switch (neutral) {
    case Neutral::kZero:
      return "0";
    case Neutral::kOne:
      return "1";
    case Neutral::kFalse:
      return "false";
    case Neutral::kTrue:
      return "true";
    case Neutral::kEmpty:
      return "empty";
    case Neutral::kNoTools:
      return "\"none\" or \"auto\"";
    case Neutral::kPlainText:
      return "{\"type\": \"text\"}";
    case Neutral::kTextOutput:
      return "[\"text\"]";
    case Neutral::kNever:
      return "null";
  }
  return "";
}

}  // namespace

Status RefuseUnbuiltFields(const Json& object, bool chat) {
  for (const UnbuiltField& field : kUnbuiltFields) {
    if (chat ? !field.chat : !field.completions) continue;
    const auto found = object.find(std::string(field.name));
    if (found == object.end() || found->is_null()) continue;
    if (IsNeutral(*found, field.neutral)) continue;
    return WithCode(
        FieldError(field.name, "not supported yet; leave it out, or ",
                   Allowed(field.neutral), "; got ", Describe(*found)),
        "unsupported_parameter");
  }
  return OkStatus();
}

}  // namespace sluice::gateway
