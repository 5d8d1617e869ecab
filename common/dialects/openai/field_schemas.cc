#include "common/dialects/openai/field_schemas.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/json.h"
#include "common/core/sampling_params.h"
#include "common/dialects/openai/chat_fields.h"
#include "common/dialects/openai/known_fields.h"
#include "common/dialects/openai/parse.h"
#include "common/serving/fields.h"

namespace sluice::openai {
namespace {

// Fields by name, in no order.
using Schemas = Json;

Json FromText(std::string_view text) { return *ParseJson(text); }

Json WithDefault(Json schema, Json value) {
  schema["default"] = std::move(value);
  return schema;
}
Json Flag(bool otherwise) {
  return {{"type", "boolean"}, {"default", otherwise}};
}
Json FlagOrNull() {
  return {{"type", {"boolean", "null"}}, {"default", false}};
}
template <typename Number>
Json Range(const char* type, Number low, Number high) {
  return {{"type", type}, {"minimum", low}, {"maximum", high}};
}
Json Integers(int64_t low, int64_t high) { return Range("integer", low, high); }
Json Numbers(double low, double high) { return Range("number", low, high); }
Json Text(size_t least, size_t most) {
  return {{"type", "string"}, {"minLength", least}, {"maxLength", most}};
}
Json AnyText(size_t least) {
  return {{"type", "string"}, {"minLength", least}};
}
Json Ids(size_t most) {
  return {{"type", "array"},
          {"items", {{"type", "integer"}, {"minimum", 0}}},
          {"maxItems", most}};
}
// -1, which counts as absent, and from `low` on.
Json TokenLimit(int64_t low) {
  Json schema = Integers(-1, serving::kMaxInt32);
  if (low > 0) schema["not"] = {{"const", 0}};
  return schema;
}

void AddSampling(Schemas& out) {
  out["temperature"] = WithDefault(Numbers(0, 2), 1);
  out["top_p"] = WithDefault(Numbers(0, 1), 1);
  out["top_k"] = WithDefault(Integers(-1, serving::kMaxInt32), 0);
  out["min_p"] = WithDefault(Numbers(0, 1), 0);
  out["seed"] = Integers(INT64_MIN, INT64_MAX);
  out["seed"]["format"] = "int64";
  const Json penalty = WithDefault(Numbers(-kMaxPenalty, kMaxPenalty), 0);
  out["frequency_penalty"] = penalty;
  out["presence_penalty"] = penalty;
  constexpr double kLeast = 0.01;  // the float would be 0.009999999776
  static_assert(static_cast<float>(kLeast) == kMinRepetitionPenalty);
  out["repetition_penalty"] =
      WithDefault(Numbers(kLeast, kMaxRepetitionPenalty), 1);
  out["repeat_penalty"] = out["repetition_penalty"];
  out["repeat_last_n"] = WithDefault(Integers(-1, serving::kMaxInt32), -1);
  out["logit_bias"] = {
      {"type", "object"},
      {"propertyNames", {{"pattern", "^(0|[1-9][0-9]*)$"}}},
      {"additionalProperties", Numbers(-kMaxLogitBias, kMaxLogitBias)},
      {"maxProperties", kMaxLogitBiases},
      {"default", Json::object()}};
}

void AddGenerated(const FieldSchemaOptions& options, Schemas& out) {
  out["model"] = {{"type", "string"}};
  out["n"] = WithDefault(Integers(1, serving::kMaxChoices), 1);
  out["best_of"] = Integers(1, serving::kMaxChoices);
  out["max_tokens"] = options.chat ? WithDefault(TokenLimit(1), -1)
                                   : WithDefault(TokenLimit(0), 16);
  for (const char* name :
       {"max_completion_tokens", "max_output_tokens", "max_new_tokens"}) {
    out[name] = WithDefault(TokenLimit(options.chat ? 1 : 0), -1);
  }
  out["n_predict"] = TokenLimit(options.chat ? 1 : 0);
  out["min_tokens"] = WithDefault(Integers(0, serving::kMaxInt32), 0);
  out["truncate_prompt_tokens"] = TokenLimit(1);
  out["add_special_tokens"] = Flag(!options.chat);
  out["echo"] = Flag(false);
  out["ignore_eos"] = Flag(false);
  out["priority"] =
      WithDefault(Integers(-serving::kMaxInt32, serving::kMaxInt32), 0);
  out["cache_salt"] = WithDefault(Text(0, serving::kMaxCacheSaltBytes), "");
  out["request_id"] = {{"type", "string"},
                       {"pattern", "^[A-Za-z0-9._:-]{0,128}$"}};
}

void AddShown(const FieldSchemaOptions& options, Schemas& out) {
  const Json stop = Text(1, serving::kMaxStopBytes);
  out["stop"] = {
      {"anyOf",
       {stop,
        {{"type", "array"}, {"items", stop}, {"maxItems", options.max_stops}}}},
      {"default", Json::array()}};
  out["stop_token_ids"] =
      WithDefault(Ids(serving::kMaxClientStopTokenIds), Json::array());
  out["allowed_token_ids"] =
      WithDefault(Ids(serving::kMaxAllowedTokenIds), Json::array());
  out["bad_words"] = {{"anyOf",
                       {stop,
                        {{"type", "array"},
                         {"items", stop},
                         {"maxItems", serving::kMaxBadWords}}}},
                      {"default", Json::array()}};
  out["include_stop_str_in_output"] = Flag(false);
  out["skip_special_tokens"] = Flag(true);
  out["spaces_between_special_tokens"] = Flag(false);
  const Json top = Integers(0, kMaxTopLogprobs);
  out["logprobs"] = options.chat ? Flag(false) : top;
  out["top_logprobs"] = WithDefault(top, 0);
  out["logprob_token_ids"] =
      WithDefault(Ids(kMaxLogprobTokenIds), Json::array());
  out["prompt_logprobs"] = top;
  out["timings_per_token"] = Flag(false);
  out["return_token_ids"] = Flag(false);
  out["return_tokens_as_token_ids"] = Flag(false);
  out["stream"] = Flag(false);
  out["stream_options"] = {{"type", "object"},
                           {"properties",
                            {{"include_usage", FlagOrNull()},
                             {"continuous_usage_stats", FlagOrNull()}}}};
  out["sse_ping_interval"] = Integers(-1, serving::kMaxPingSeconds);
}

void AddPrompts(Schemas& out) {
  out["messages"] = {{"type", "array"},
                     {"items", {{"$ref", "#/components/schemas/ChatMessage"}}},
                     {"minItems", 1},
                     {"maxItems", serving::kMaxMessages}};
  Json ids = Ids(serving::kMaxInt32);
  ids.erase("maxItems");
  ids["minItems"] = 1;
  const Json several = {{"type", "array"},
                        {"items", {{"anyOf", {{{"type", "string"}}, ids}}}},
                        {"minItems", 1},
                        {"maxItems", kMaxPrompts}};
  out["prompt"] = {{"anyOf", {{{"type", "string"}}, ids, several}}};
}

// The members of chat_template_kwargs; others may have any value.
Json ArgumentSchemas(const Json& word) {
  Json arguments = Json::object();
  for (const char* flag :
       {"enable_thinking", "thinking", "clear_thinking", "preserve_thinking"}) {
    arguments[flag] = FlagOrNull();
    arguments[flag].erase("default");  // the template's
  }
  for (const char* text :
       {"reasoning_effort", "date_string", "model_identity"}) {
    arguments[text] = word;
    arguments[text]["type"] = {"string", "null"};
  }
  for (const std::string_view name : kOwnNames) {
    arguments[std::string(name)] = {{"type", "null"}};
  }
  return arguments;
}

void AddThinking(const FieldSchemaOptions& options, const Json& word,
                 Schemas& out) {
  const Json flag = {{"type", "boolean"}};
  const Json flag_or_null = {{"type", {"boolean", "null"}}};
  Json effort = word;
  effort["type"] = {"string", "null"};
  out["reasoning_effort"] = word;
  out["enable_thinking"] = flag;
  out["think"] = {{"anyOf", {flag, word}}};
  out["thinking"] = {
      {"anyOf",
       {flag,
        {{"type", "object"},
         {"properties",
          {{"type",
            {{"type", "string"},
             {"enum", {"enabled", "disabled", "auto", "adaptive"}}}},
           {"clear_thinking", flag_or_null}}},
         {"required", Json::array({"type"})},
         {"additionalProperties", {{"type", "null"}}}}}}};
  out["reasoning"] = {{"type", "object"},
                      {"properties",
                       {{"effort", effort},
                        {"enabled", flag_or_null},
                        {"exclude", flag_or_null},
                        {"max_tokens", {{"enum", {0, nullptr}}}},
                        {"summary", Json::object()},
                        {"generate_summary", Json::object()}}},
                      {"additionalProperties", {{"type", "null"}}}};
  out["include_reasoning"] = Flag(true);
  for (const char* name :
       {"reasoning_budget", "thinking_token_budget", "thinking_budget"}) {
    out[name] =
        WithDefault(Integers(-1, options.chat ? serving::kMaxInt32 : -1), -1);
  }
}

void AddTemplateAndTools(const FieldSchemaOptions& options, Schemas& out) {
  const Json word = {{"type", "string"}, {"pattern", "^[A-Za-z0-9 _-]{1,32}$"}};
  out["add_generation_prompt"] = Flag(true);
  out["continue_final_message"] = Flag(false);
  AddThinking(options, word, out);
  out["chat_template_kwargs"] = {{"type", "object"},
                                 {"properties", ArgumentSchemas(word)}};
  out["tools"] = {{"type", "array"},
                  {"items", {{"$ref", "#/components/schemas/Tool"}}},
                  {"maxItems", serving::kMaxTools}};
  out["tool_choice"] = {
      {"anyOf",
       {{{"type", "string"}, {"enum", {"auto", "none", "required"}}},
        {{"type", "object"}}}},
      {"default", "auto"}};
  out["parallel_tool_calls"] = Flag(true);
  out["functions"] = {{"type", "array"},
                      {"items", {{"type", "object"}}},
                      {"maxItems", serving::kMaxTools}};
  out["function_call"] = {
      {"anyOf",
       {{{"type", "string"}, {"enum", {"auto", "none"}}},
        {{"type", "object"}, {"required", Json::array({"name"})}}}},
      {"default", "auto"}};
}

void AddGrammars(Schemas& out) {
  const Json schema = {{"type", {"object", "boolean"}}};
  const auto or_text = [](const Json& other, size_t least) {
    return Json{{"anyOf", {other, AnyText(least)}}};
  };
  const Json object = {{"type", "object"}};
  const Json choice = {
      {"type", "array"}, {"items", {{"type", "string"}}}, {"minItems", 1}};
  out["response_format"] = {
      {"type", "object"},
      {"properties",
       {{"type",
         {{"type", "string"},
          {"enum", {"text", "json_object", "json_schema", "structural_tag"}}}},
        {"json_schema", Json::object()},
        {"schema", Json::object()}}},
      {"required", Json::array({"type"})}};
  out["structured_outputs"] = {
      {"type", "object"},
      {"properties",
       {{"json", {{"type", {"object", "boolean", "string", "null"}}}},
        {"regex", {{"type", {"string", "null"}}}},
        {"choice", {{"type", {"array", "null"}}}},
        {"grammar", {{"type", {"string", "null"}}}},
        {"json_object", {{"type", {"boolean", "null"}}}},
        {"structural_tag", {{"type", {"object", "string", "null"}}}}}}};
  out["guided_json"] = or_text(schema, 1);
  out["guided_regex"] = AnyText(1);
  out["guided_choice"] = choice;
  out["guided_grammar"] = AnyText(1);
  out["guided_json_object"] = {{"type", "boolean"}};
  // An empty text counts as absent in these.
  out["grammar"] = AnyText(0);
  out["json_schema"] = or_text(schema, 0);
  out["regex"] = AnyText(0);
  out["ebnf"] = AnyText(0);
  out["structural_tag"] = or_text(object, 0);
}

// The values that change nothing.
Json NeutralValues(const KnownField& field) {
  const Json values = FromText(field.neutral);
  Json schema{{"enum", values}};
  if (values.size() == 1) schema["default"] = values[0];
  return schema;
}

// Null counts as an absent field.
void AllowNull(Json& schema) {
  if (schema.contains("enum")) {
    schema["enum"].push_back(nullptr);
  } else if (schema.contains("anyOf")) {
    schema["anyOf"].push_back({{"type", "null"}});
  } else if (schema.contains("type") && schema["type"].is_array()) {
    schema["type"].push_back("null");
  } else if (schema.contains("type")) {
    schema["type"] = {schema["type"], "null"};
  }
}

}  // namespace

Json BodySchema(const FieldSchemaOptions& options) {
  Schemas built = Json::object();
  AddGenerated(options, built);
  AddSampling(built);
  AddShown(options, built);
  AddPrompts(built);
  AddTemplateAndTools(options, built);
  AddGrammars(built);
  const std::string_view required = options.chat ? "messages" : "prompt";
  Json properties = Json::object();
  for (const KnownField& field : KnownFields()) {
    if (options.chat ? !field.chat : !field.completions) continue;
    const std::string name(field.name);
    Json schema = Json::object();
    if (field.use == FieldUse::kBuilt) schema = built[name];
    if (field.use == FieldUse::kUnbuilt) schema = NeutralValues(field);
    if (name != required) AllowNull(schema);
    properties[name] = std::move(schema);
  }
  Json body{{"type", "object"},
            {"properties", std::move(properties)},
            {"required", Json::array({required})}};
  if (options.strict) body["additionalProperties"] = false;
  return body;
}

}  // namespace sluice::openai
