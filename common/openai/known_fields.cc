#include "common/openai/known_fields.h"

#include <algorithm>
#include <string>

#include "common/base/json.h"
#include "common/openai/error.h"
#include "common/openai/fields.h"

namespace sluice::openai {
namespace {

// Bytes of an unknown field's name that an error shows.
constexpr size_t kMaxShownName = 64;

// When a known field that is not built changes nothing.
enum class Neutral {
  kZero,
  kOne,
  kMinusOne,
  kFalse,
  kTrue,
  kEmpty,       // "", [] or {}
  kNoTools,     // "none" or "auto"
  kPlainText,   // {"type": "text"}
  kTextOutput,  // ["text"]
  kLeft,        // "left"
  kApart,       // "auto" or "deepseek"
  kEnabled,     // {"type": "enabled"}
  kNever,       // only null
};

struct UnbuiltField {
  std::string_view name;
  Neutral neutral;
  bool chat = true;
  bool completions = true;
  std::string_view successor = {};  // OpenAI's own, of a deprecated field
};

constexpr KnownField kBuiltFields[] = {
    {"model"},
    {"messages", true, false},
    {"prompt", false, true},
    {"max_tokens"},
    {"max_completion_tokens", true, false},
    {"temperature"},
    {"top_p"},
    {"top_k"},
    {"min_p"},
    {"seed"},
    {"frequency_penalty"},
    {"presence_penalty"},
    {"repetition_penalty"},
    {"repeat_penalty"},
    {"logit_bias"},
    {"n"},
    {"best_of"},
    {"stop"},
    {"stop_token_ids"},
    {"ignore_eos"},
    {"min_tokens"},
    {"include_stop_str_in_output"},
    {"skip_special_tokens"},
    {"spaces_between_special_tokens"},
    {"logprobs"},
    {"top_logprobs", true, false},
    {"prompt_logprobs"},
    {"truncate_prompt_tokens"},
    {"echo"},
    {"stream"},
    {"stream_options"},
    {"sse_ping_interval"},
    {"return_token_ids"},
    {"return_tokens_as_token_ids"},
    {"add_special_tokens"},
    {"add_generation_prompt", true, false},
    {"continue_final_message", true, false},
    {"chat_template_kwargs", true, false},
    {"reasoning_effort", true, false},
    {"tools", true, false},
    {"tool_choice", true, false},
    {"parallel_tool_calls", true, false},
    {"cache_salt"},
    {"request_id"},
};

// Of no effect here, whatever their value.
constexpr KnownField kIgnoredFields[] = {
    {"user"},
    {"metadata"},
    {"store"},
    {"service_tier"},
    {"safety_identifier"},
    {"prompt_cache_key"},
    {"prompt_cache_retention"},
    {"prediction", true, false},
    {"verbosity", true, false},
};

constexpr UnbuiltField kUnbuiltFields[] = {
    {"length_penalty", Neutral::kOne},
    {"allowed_token_ids", Neutral::kEmpty},
    {"bad_words", Neutral::kEmpty},
    {"use_beam_search", Neutral::kFalse},
    {"priority", Neutral::kZero},
    {"response_format", Neutral::kPlainText},
    {"guided_json", Neutral::kNever},
    {"guided_regex", Neutral::kNever},
    {"guided_choice", Neutral::kNever},
    {"guided_grammar", Neutral::kNever},
    {"structured_outputs", Neutral::kNever},
    // What other servers obey and we would not.
    {"grammar", Neutral::kEmpty},
    {"json_schema", Neutral::kEmpty},
    {"regex", Neutral::kEmpty},
    {"ebnf", Neutral::kEmpty},
    {"stop_regex", Neutral::kEmpty},
    {"logprob_token_ids", Neutral::kEmpty},
    {"truncation_side", Neutral::kLeft},
    {"repetition_detection", Neutral::kEmpty},
    {"samplers", Neutral::kEmpty},
    {"typical_p", Neutral::kOne},
    {"mirostat", Neutral::kZero},
    {"dry_multiplier", Neutral::kZero},
    {"xtc_probability", Neutral::kZero},
    {"dynatemp_range", Neutral::kZero},
    {"thinking_token_budget", Neutral::kMinusOne},
    {"reasoning_budget", Neutral::kMinusOne},
    {"thinking", Neutral::kEnabled, true, false},
    {"include_reasoning", Neutral::kTrue, true, false},
    {"separate_reasoning", Neutral::kTrue, true, false},
    {"reasoning_format", Neutral::kApart, true, false},
    {"suffix", Neutral::kEmpty, false, true},
    {"functions", Neutral::kEmpty, true, false, "tools"},
    {"function_call", Neutral::kNoTools, true, false, "tool_choice"},
    {"modalities", Neutral::kTextOutput, true, false},
    {"audio", Neutral::kNever, true, false},
    {"web_search_options", Neutral::kNever, true, false},
    {"chat_template", Neutral::kNever, true, false},
    {"documents", Neutral::kEmpty, true, false},
};

bool IsNeutral(const Json& value, Neutral neutral) {
  switch (neutral) {
    case Neutral::kZero:
      return value.is_number() && value == 0;
    case Neutral::kOne:
      return value.is_number() && value == 1;
    case Neutral::kMinusOne:
      return value.is_number() && value == -1;
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
    case Neutral::kLeft:
      return value == "left";
    case Neutral::kApart:
      return value == "auto" || value == "deepseek";
    case Neutral::kEnabled:
      return value.is_object() && value.contains("type") &&
             value["type"] == "enabled";
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
    case Neutral::kMinusOne:
      return "-1";
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
    case Neutral::kLeft:
      return "\"left\"";
    case Neutral::kApart:
      return "\"auto\"";
    case Neutral::kEnabled:
      return "{\"type\": \"enabled\"}";
    case Neutral::kNever:
      return "null";
  }
  return "";
}

// What was asked for in words, where the value's type says too little.
std::string Asked(const UnbuiltField& field, const Json& value) {
  if (field.neutral != Neutral::kPlainText || !value.is_object()) {
    return Describe(value);
  }
  static constexpr std::string_view kTypes[] = {"json_object", "json_schema",
                                                "structural_tag", "grammar"};
  const auto type = value.find("type");
  for (const std::string_view known : kTypes) {
    if (type != value.end() && *type == known) {
      return Cat("type \"", known, "\"");
    }
  }
  return "another type";
}

}  // namespace

std::vector<KnownField> KnownFields() {
  std::vector<KnownField> all;
  for (KnownField field : kBuiltFields) all.push_back(field);
  for (KnownField field : kIgnoredFields) {
    field.use = FieldUse::kIgnored;
    all.push_back(field);
  }
  for (const UnbuiltField& field : kUnbuiltFields) {
    all.push_back(
        {field.name, field.chat, field.completions, FieldUse::kUnbuilt});
  }
  return all;
}

Status RefuseUnknownFields(const Json& object, bool chat) {
  const std::vector<KnownField> known = KnownFields();
  size_t index = 0;
  for (const auto& item : object.items()) {
    const bool found =
        std::any_of(known.begin(), known.end(), [&](const KnownField& field) {
          return field.name == item.key() &&
                 (chat ? field.chat : field.completions);
        });
    ++index;
    if (found) continue;
    const std::string name = item.key().substr(0, kMaxShownName);
    return WithCode(
        FieldError(name, "field ", index, " of the body is not known here"),
        "unknown_parameter");
  }
  return OkStatus();
}

Status RefuseUnbuiltFields(const Json& object, bool chat) {
  for (const UnbuiltField& field : kUnbuiltFields) {
    if (chat ? !field.chat : !field.completions) continue;
    const auto found = object.find(std::string(field.name));
    if (found == object.end() || found->is_null()) continue;
    if (IsNeutral(*found, field.neutral)) continue;
    if (!field.successor.empty()) {
      return WithCode(
          FieldError(field.name, "deprecated and not supported; give ",
                     field.successor, " instead"),
          "unsupported_parameter");
    }
    return WithCode(
        FieldError(field.name, "not supported yet; leave it out, or ",
                   Allowed(field.neutral), "; got ", Asked(field, *found)),
        "unsupported_parameter");
  }
  return OkStatus();
}

}  // namespace sluice::openai
