#include "common/dialects/openai/known_fields.h"

#include <algorithm>
#include <string>

#include "common/base/json.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"

namespace sluice::openai {
namespace {

// The bytes of an unknown field's name in an error.
constexpr size_t kMaxShownName = 64;

// The values with which a field that is not built changes nothing.
struct Neutral {
  std::string_view words;   // for people
  std::string_view values;  // a JSON array
};
constexpr Neutral kZero{"0", "[0]"};
constexpr Neutral kOne{"1", "[1]"};
constexpr Neutral kFalse{"false", "[false]"};
constexpr Neutral kTrue{"true", "[true]"};
constexpr Neutral kEmpty{"empty", R"(["", [], {}])"};
// Of what other servers read as a text, a list, an object or a flag.
constexpr Neutral kNothing{"false or empty", R"([false, "", [], {}])"};
constexpr Neutral kOff{"0 or -1", "[0, -1]"};
constexpr Neutral kZeroOrOne{"0 or 1", "[0, 1]"};
constexpr Neutral kTextOutput{R"(["text"])", R"([["text"]])"};
constexpr Neutral kLeft{R"("left")", R"(["left"])"};
constexpr Neutral kApart{R"("auto")", R"(["auto", "deepseek"])"};
constexpr Neutral kNever{"null", "[]"};

struct UnbuiltField {
  std::string_view name;
  const Neutral& neutral;
  bool chat = true;
  bool completions = true;
  std::string_view successor = {};  // the field that has the meaning here
};

constexpr KnownField kBuiltFields[] = {
    {"model"},
    {"messages", true, false},
    {"prompt", false, true},
    {"max_tokens"},
    {"max_completion_tokens"},
    {"max_output_tokens"},
    {"max_new_tokens"},
    {"n_predict"},
    {"temperature"},
    {"top_p"},
    {"top_k"},
    {"min_p"},
    {"seed"},
    {"frequency_penalty"},
    {"presence_penalty"},
    {"repetition_penalty"},
    {"repeat_penalty"},
    {"repeat_last_n"},
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
    {"logprob_token_ids"},
    {"prompt_logprobs"},
    {"truncate_prompt_tokens"},
    {"echo"},
    {"stream"},
    {"stream_options"},
    {"sse_ping_interval"},
    {"timings_per_token"},
    {"return_token_ids"},
    {"return_tokens_as_token_ids"},
    {"add_special_tokens"},
    {"add_generation_prompt", true, false},
    {"continue_final_message", true, false},
    {"chat_template_kwargs", true, false},
    {"reasoning_effort", true, false},
    {"enable_thinking", true, false},
    {"think", true, false},
    {"thinking", true, false},
    {"reasoning", true, false},
    {"include_reasoning", true, false},
    {"reasoning_budget"},
    {"thinking_token_budget"},
    {"thinking_budget"},
    {"tools", true, false},
    {"tool_choice", true, false},
    {"functions", true, false},
    {"function_call", true, false},
    {"parallel_tool_calls", true, false},
    {"response_format"},
    {"structured_outputs"},
    {"guided_json"},
    {"guided_regex"},
    {"guided_choice"},
    {"guided_grammar"},
    {"guided_json_object"},
    {"grammar"},
    {"json_schema"},
    {"regex"},
    {"ebnf"},
    {"structural_tag"},
    {"allowed_token_ids"},
    {"bad_words"},
    {"priority"},
    {"cache_salt"},
    {"request_id"},
};

// Fields without effect, for any value.
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
    {"length_penalty", kOne},
    {"use_beam_search", kFalse},
    // Other servers obey these.
    {"guided_whitespace_pattern", kNever},
    {"grammar_lazy", kFalse},
    {"grammar_triggers", kEmpty},
    {"stop_regex", kEmpty},
    {"truncation_side", kLeft},
    {"repetition_detection", kEmpty},
    {"samplers", kEmpty},
    {"typical_p", kOne},
    {"mirostat", kZero},
    {"dry_multiplier", kZero},
    {"xtc_probability", kZero},
    {"dynatemp_range", kZero},
    {"separate_reasoning", kTrue, true, false},
    {"reasoning_format", kApart, true, false},
    {"top_n_sigma", kOff},
    {"min_keep", kZeroOrOne},
    {"n_keep", kOff},
    {"t_max_predict_ms", kOff},
    {"n_probs", kZero, true, true, "logprobs"},
    {"post_sampling_probs", kFalse},
    {"parse_tool_calls", kTrue, true, false},
    // Pictures, adapters and other models' parts.
    {"images", kNothing},
    {"lora", kNothing},
    {"lora_path", kNothing},
    {"adapter_id", kNothing},
    {"mm_processor_kwargs", kNothing},
    {"prompt_embeds", kNothing},
    {"input_embeds", kNothing},
    {"input_ids", kNothing},
    // Code and state of other servers.
    {"custom_logit_processor", kNothing},
    {"custom_params", kNothing},
    {"logits_processors", kNothing},
    {"return_hidden_states", kNothing},
    {"vllm_xargs", kNothing},
    {"kv_transfer_params", kNothing},
    {"session_params", kNothing},
    {"context", kNothing},
    // Other servers' names and forms of what is built here.
    {"format", kNothing, true, true, "response_format"},
    {"options", kNothing, true, true, "each of them as a field"},
    {"system", kNothing, true, true, "a message of role system"},
    {"instructions", kNothing, true, true, "a message of role system"},
    {"template", kNothing},
    {"raw", kFalse},
    {"stop_sequences", kNothing, true, true, "stop"},
    {"random_seed", kNever, true, true, "seed"},
    {"min_new_tokens", kZero, true, true, "min_tokens"},
    {"num_predict", kNever, true, true, "max_tokens"},
    {"no_stop_trim", kFalse, true, true, "include_stop_str_in_output"},
    {"do_sample", kTrue, true, true, "temperature"},
    {"num_beams", kOne},
    {"no_repeat_ngram_size", kZero},
    {"top_a", kZero},
    {"tfs_z", kOne},
    {"return_logprob", kFalse, true, true, "logprobs"},
    {"top_logprobs_num", kZero, true, true, "top_logprobs"},
    {"enable_search", kFalse},
    {"safe_prompt", kFalse},
    {"suffix", kEmpty, false, true},
    {"modalities", kTextOutput, true, false},
    {"audio", kNever, true, false},
    {"web_search_options", kNever, true, false},
    {"chat_template", kNever, true, false},
    {"documents", kEmpty, true, false},
};

bool IsNeutral(const Json& value, const Neutral& neutral) {
  const Json values = *ParseJson(neutral.values);
  return std::find(values.begin(), values.end(), value) != values.end();
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
    all.push_back({field.name, field.chat, field.completions,
                   FieldUse::kUnbuilt, field.neutral.values});
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
    return serving::WithCode(
        serving::FieldError(name, "field ", index,
                            " of the body is not known here"),
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
      return serving::WithCode(
          serving::FieldError(field.name, "not supported; give ",
                              field.successor, " instead"),
          "unsupported_parameter");
    }
    return serving::WithCode(
        serving::FieldError(field.name, "not supported yet; leave it out, or ",
                            field.neutral.words, "; got ",
                            serving::Describe(*found)),
        "unsupported_parameter");
  }
  return OkStatus();
}

}  // namespace sluice::openai
