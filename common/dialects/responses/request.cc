#include "common/dialects/responses/request.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/core/sampling_params.h"
#include "common/dialects/responses/input_items.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"
#include "common/serving/json_digest.h"
#include "common/serving/plain_body.h"
#include "common/serving/request_body.h"
#include "common/serving/request_limits.h"
#include "common/serving/sampling_fields.h"
#include "common/serving/thinking.h"

namespace sluice::responses {
namespace {

constexpr serving::FieldNames kNames = {.prompt = "input",
                                        .truncate_prompt = "truncation",
                                        .max_tokens = "max_output_tokens",
                                        .min_tokens = "min_tokens",
                                        .stop = "stop",
                                        .n = "n",
                                        .echo = "echo",
                                        .logprobs = "include",
                                        .top_logprobs = "top_logprobs",
                                        .prompt_logprobs = "prompt_logprobs",
                                        .stream = "stream",
                                        .tools = "tools",
                                        .tool_calls = "input",
                                        .allowed_tools = "tool_choice",
                                        .template_arguments = "reasoning",
                                        .continues_message = "input"};

constexpr std::string_view kLogprobs = "message.output_text.logprobs";

// OpenAI's limits of metadata; kMaxLabelBytes also of a user and of keys.
constexpr size_t kMaxMetadata = 16;
constexpr size_t kMaxMetadataKeyBytes = 64;
constexpr size_t kMaxLabelBytes = 512;

// A field that is read.
struct ReadField {
  std::string_view name;
  bool is_silent = false;  // changes no token and no event of an answer
  bool is_plain = true;    // brings no grammar, whatever its value is
};
// Sorted.
constexpr ReadField kFields[] = {
    {"allowed_token_ids"},
    {"background", true},
    {"bad_words"},
    {"cache_salt", true},
    {"client_metadata", true},
    {"context_management", true},
    {"frequency_penalty"},
    {"ignore_eos"},
    {"include"},
    {"input"},
    {"instructions"},
    {"max_output_tokens"},
    {"max_tool_calls"},
    {"metadata", true},
    {"min_p"},
    {"min_tokens"},
    {"model", true},
    {"moderation", true},
    {"n"},
    {"parallel_tool_calls"},
    {"presence_penalty"},
    {"previous_response_id"},
    {"priority", true},
    {"prompt_cache_key", true},
    {"prompt_cache_options", true},
    {"prompt_cache_retention", true},
    {"reasoning"},
    {"repetition_penalty"},
    {"safety_identifier", true},
    {"seed"},
    {"service_tier", true},
    {"sse_ping_interval", true},
    {"stop"},
    {"stop_token_ids"},
    {"store", true},
    {"stream"},
    {"stream_options", true},
    {"temperature"},
    {"text", false, false},
    {"thinking_token_budget"},
    {"tool_choice", false, false},
    {"tools", false, false},
    {"top_k"},
    {"top_logprobs"},
    {"top_p"},
    {"truncation"},
    {"user", true},
};
static_assert(std::ranges::is_sorted(kFields, {}, &ReadField::name));
// Fields in whose objects the order of members changes nothing.
constexpr std::string_view kUnordered[] = {"include", "input", "reasoning",
                                           "tool_choice"};

// Fields that are refused, with what to give.
struct RefusedField {
  std::string_view name;
  std::string_view instead;
};
constexpr RefusedField kRefused[] = {
    {"conversation", "input or previous_response_id"},
    {"prompt", "instructions and input"},
    {"messages", "input"},
    {"max_tokens", "max_output_tokens"},
    {"max_completion_tokens", "max_output_tokens"},
    {"reasoning_effort", "reasoning.effort"},
    {"response_format", "text.format"},
    {"structured_outputs", "text.format"},
    {"guided_json", "text.format"},
    {"guided_regex", "a custom tool with a format"},
    {"guided_grammar", "a custom tool with a format"},
    {"functions", "tools"},
    {"logprobs", "include and top_logprobs"},
    {"logit_bias", "/v1/chat/completions, which has it"}};

// Returns the names of the fields whose `member` is true.
std::vector<std::string_view> NamesOf(bool ReadField::*member) {
  std::vector<std::string_view> names;
  for (const ReadField& field : kFields) {
    if (field.*member) names.push_back(field.name);
  }
  return names;
}

// Whether a refused field has a value that asks for nothing.
bool AsksNothing(std::string_view name, const Json& value) {
  return value.is_null() || (name == "logprobs" && value == false) ||
         (name == "functions" && value == Json::array());
}

Status CheckFields(const Json& body, bool strict) {
  for (const RefusedField& field : kRefused) {
    const auto found = body.find(field.name);
    if (found == body.end() || AsksNothing(field.name, *found)) continue;
    return serving::WithCode(
        serving::FieldError(field.name, "not supported; give ", field.instead),
        "unsupported_parameter");
  }
  if (!strict) return OkStatus();
  constexpr size_t kMaxShownName = 64;
  for (const auto& [name, value] : body.items()) {
    const bool is_known =
        std::ranges::binary_search(kFields, name, {}, &ReadField::name) ||
        std::ranges::find(kRefused, name, &RefusedField::name) !=
            std::end(kRefused);
    if (is_known) continue;
    return serving::WithCode(
        serving::FieldError(name.substr(0, kMaxShownName), "is not known here"),
        "unknown_parameter");
  }
  return OkStatus();
}

const Json* FindObject(serving::FieldReader& in, const char* name) {
  const Json* value = in.Find(name);
  if (value == nullptr || value->is_object()) return value;
  in.Refuse(name, "must be an object, got ", serving::Describe(*value));
  return nullptr;
}

void ReadStops(serving::FieldReader& in, int vocab_size,
               serving::GenerationFields& out) {
  out.stop =
      in.Strings("stop", serving::kMaxStopStrings, serving::kMaxStopBytes)
          .value_or(out.stop);
  size_t bytes = 0;
  for (const std::string& stop : out.stop) bytes += stop.size();
  if (bytes > serving::kMaxAllStopBytes) {
    in.Refuse("stop", "the strings have ", bytes, " bytes together, limit ",
              serving::kMaxAllStopBytes);
  }
  out.stop_token_ids =
      in.TokenIds("stop_token_ids", vocab_size, serving::kMaxClientStopTokenIds)
          .value_or(out.stop_token_ids);
  out.ignore_eos = in.Bool("ignore_eos").value_or(false);
  out.allowed_token_ids =
      in.TokenIds("allowed_token_ids", vocab_size, serving::kMaxAllowedTokenIds)
          .value_or(out.allowed_token_ids);
  out.bad_words =
      in.Strings("bad_words", serving::kMaxBadWords, serving::kMaxStopBytes)
          .value_or(out.bad_words);
  out.min_tokens = in.Int("min_tokens", 0, serving::kMaxInt32).value_or(0);
  if (out.max_tokens && out.min_tokens > *out.max_tokens) {
    in.Refuse("min_tokens", "must not exceed max_output_tokens ",
              *out.max_tokens, ", got ", out.min_tokens);
  }
}

// {"format": {"type", "name", "schema", ..}, "verbosity"}.
void ReadText(serving::FieldReader& in, serving::GenerationFields& out) {
  const Json* text = FindObject(in, "text");
  if (text == nullptr) return;
  serving::FieldReader members(*text, "text.");
  const Json* format = FindObject(members, "format");
  in.Keep(members.status());
  if (format == nullptr) return;
  serving::FieldReader part(*format, "text.format.");
  const std::string type = part.String("type").value_or("");
  if (type == "json_object") {
    out.grammar = {"text.format", {GrammarSpec::Kind::kJsonObject, ""}};
  } else if (type == "json_schema") {
    part.String("name");
    part.Bool("strict");
    const Json* schema = part.Find("schema");
    if (schema == nullptr || !(schema->is_object() || schema->is_boolean())) {
      part.Refuse("schema", "must be a JSON schema, an object",
                  schema == nullptr
                      ? std::string()
                      : Cat(", got ", serving::Describe(*schema)));
    } else {
      out.grammar = {"text.format.schema",
                     {GrammarSpec::Kind::kJsonSchema, DumpJson(*schema)}};
    }
  } else if (type != "text") {
    part.Refuse("type", "must be \"text\", \"json_object\" or \"json_schema\"");
  }
  in.Keep(part.status());
}

// {"effort", "summary"}.
void ReadReasoning(serving::FieldReader& in, ResponsesRequest& out) {
  const Json* reasoning = FindObject(in, "reasoning");
  if (reasoning == nullptr) return;
  serving::FieldReader part(*reasoning, "reasoning.");
  const auto effort = part.String("effort");
  if (effort && !serving::IsWord(*effort)) {
    part.Refuse("effort", "must be a word like \"low\"");
  }
  for (const char* name : {"summary", "generate_summary"}) {
    const auto summary = part.String(name);
    if (summary && *summary != "auto" && *summary != "concise" &&
        *summary != "detailed") {
      part.Refuse(name, "must be \"auto\", \"concise\" or \"detailed\"");
    }
    out.tells_summary = out.tells_summary || summary.has_value();
  }
  in.Keep(part.status());
  if (!in.status().ok()) return;
  const std::optional<bool> thinks =
      effort == "none" ? std::optional(false) : std::nullopt;
  serving::SetThinking(thinks, effort, out.chat.chat_template.kwargs);
}

void ReadLogprobs(serving::FieldReader& in, serving::GenerationFields& out) {
  const auto top = in.Int("top_logprobs", 0, kMaxTopLogprobs);
  bool asked = top.value_or(0) > 0;
  if (const Json* include = in.Find("include")) {
    if (!include->is_array()) {
      in.Refuse("include", "must be an array of strings, got ",
                serving::Describe(*include));
      return;
    }
    asked = asked || std::find(include->begin(), include->end(),
                               Json(std::string(kLogprobs))) != include->end();
  }
  if (asked) out.logprobs = static_cast<int>(top.value_or(0));
}

// Fields with values that are not built.
void RefuseValues(serving::FieldReader& in) {
  if (in.Bool("background").value_or(false)) {
    in.Keep(serving::WithCode(
        serving::FieldError("background", "true is not supported: a response ",
                            "is answered while its client waits"),
        "unsupported_parameter"));
  }
  const std::string truncation = in.String("truncation").value_or("auto");
  if (truncation != "auto" && truncation != "disabled") {
    in.Refuse("truncation", "must be \"auto\" or \"disabled\"");
  }
  in.Int("n", 1, 1);
  in.Int("max_tool_calls", 0, serving::kMaxInt32);  // of hosted tools
  if (const Json* options = FindObject(in, "stream_options")) {
    serving::FieldReader part(*options, "stream_options.");
    part.Bool("include_obfuscation");
    in.Keep(part.status());
  }
}

// Fields that a response says again, and that change nothing else.
void CheckLabels(serving::FieldReader& in) {
  for (const char* name : {"prompt_cache_key", "safety_identifier", "user"}) {
    const auto text = in.String(name);
    if (text && text->size() > kMaxLabelBytes) {
      in.Refuse(name, "has ", text->size(), " bytes, limit ", kMaxLabelBytes);
    }
  }
  const Json* metadata = FindObject(in, "metadata");
  if (metadata == nullptr) return;
  if (metadata->size() > kMaxMetadata) {
    in.Refuse("metadata", "has ", metadata->size(), " members, limit ",
              kMaxMetadata);
    return;
  }
  for (const auto& [key, value] : metadata->items()) {
    if (key.size() > kMaxMetadataKeyBytes) {
      in.Refuse("metadata", "has a key of ", key.size(), " bytes, limit ",
                kMaxMetadataKeyBytes);
    } else if (!value.is_string()) {
      in.Refuse("metadata", key, " must be a string, got ",
                serving::Describe(value));
    } else if (const size_t bytes = value.get_ref<const std::string&>().size();
               bytes > kMaxLabelBytes) {
      in.Refuse("metadata", key, " has ", bytes, " bytes, limit ",
                kMaxLabelBytes);
    }
  }
}

// Returns the members of an answer that say again what was asked for.
Json EchoOf(serving::FieldReader& in, const ResponsesRequest& request,
            Json shown_tools) {
  const auto given = [&in](const char* name, Json otherwise = nullptr) {
    const Json* value = in.Find(name);
    return value == nullptr ? std::move(otherwise) : *value;
  };
  const Json* reasoning = in.Find("reasoning");
  const Json asked = reasoning == nullptr ? Json::object() : *reasoning;
  const auto member = [](const Json& object, const char* name) {
    const auto found = object.find(name);
    return found == object.end() ? Json() : *found;
  };
  Json text = given("text", Json::object());
  if (!text.contains("format")) text["format"] = {{"type", "text"}};
  return {{"instructions", given("instructions")},
          {"max_output_tokens", given("max_output_tokens")},
          {"max_tool_calls", given("max_tool_calls")},
          {"metadata", given("metadata", Json::object())},
          {"parallel_tool_calls", request.chat.tools.parallel},
          {"previous_response_id", given("previous_response_id")},
          {"prompt_cache_key", given("prompt_cache_key")},
          {"reasoning",
           {{"effort", member(asked, "effort")},
            {"summary", member(asked, "summary")}}},
          {"safety_identifier", given("safety_identifier")},
          {"service_tier", "default"},
          {"temperature", given("temperature")},
          {"text", std::move(text)},
          {"tool_choice", given("tool_choice", "auto")},
          {"tools", std::move(shown_tools)},
          {"top_logprobs", given("top_logprobs", 0)},
          {"top_p", given("top_p")},
          {"truncation", given("truncation", "disabled")},
          {"user", given("user")}};
}

// Returns the items before the request's own.
StatusOr<Json> PreviousItems(const std::optional<std::string>& id,
                             const ReadOptions& options, JsonBudget& budget) {
  if (!id) return Json::array();
  constexpr std::string_view kField = "previous_response_id";
  constexpr std::string_view kCode = "previous_response_not_found";
  if (options.previous == nullptr) {
    return serving::WithCode(
        serving::FieldError(kField, "this server keeps no responses (its ",
                            "--response-store): send the items before"),
        kCode);
  }
  auto items = options.previous(*id, budget);
  if (items.ok()) return items;
  if (items.status().code() == StatusCode::kNotFound) {
    return serving::WithCode(
        serving::FieldError(kField, Message(items.status())), kCode);
  }
  return serving::WithCode(
      serving::FieldError(kField, "its items cannot be read beside those of ",
                          "the request: ", Message(items.status())),
      "previous_response_too_large");
}

// Returns the items `before` and those of the field `input`.
Json WithOwn(Json before, const Json& input) {
  if (input.is_string()) {
    before.push_back(
        {{"type", "message"}, {"role", "user"}, {"content", input}});
    return before;
  }
  for (const Json& item : input) before.push_back(item);
  return before;
}

}  // namespace

StatusOr<ResponsesRequest> ParseRequest(std::string_view body,
                                        const ReadOptions& options) {
  JsonBudget budget;
  serving::RoundedNumbers rounded;
  SLUICE_ASSIGN_OR_RETURN(const Json json,
                          serving::ParseBody(body, budget, &rounded));
  SLUICE_RETURN_IF_ERROR(CheckFields(json, options.strict));
  serving::FieldReader in(json);
  ResponsesRequest out{{serving::GenerationFields(kNames)}};
  serving::GenerationFields& fields = out.chat.fields;
  fields.model = in.String("model").value_or("");
  fields.max_tokens = in.Int("max_output_tokens", 1, serving::kMaxInt32);
  serving::ReadSamplingFields(in, fields);
  ReadStops(in, options.vocab_size, fields);
  ReadLogprobs(in, fields);
  ReadText(in, fields);
  RefuseValues(in);
  CheckLabels(in);
  fields.stream = in.Bool("stream").value_or(false);
  fields.priority = static_cast<int32_t>(
      in.Int("priority", -serving::kMaxInt32, serving::kMaxInt32).value_or(0));
  fields.thinking_budget_field = "thinking_token_budget";
  fields.thinking_budget =
      in.Int(fields.thinking_budget_field, 1, serving::kMaxInt32);
  fields.ping_interval =
      in.Int("sse_ping_interval", -1, serving::kMaxPingSeconds);
  fields.cache_salt = in.String("cache_salt").value_or("");
  if (fields.cache_salt.size() > serving::kMaxCacheSaltBytes) {
    in.Refuse("cache_salt", "has ", fields.cache_salt.size(), " bytes, limit ",
              serving::kMaxCacheSaltBytes);
  }
  if (fields.stream) {
    static const auto* const silent =
        new std::vector<std::string_view>(NamesOf(&ReadField::is_silent));
    fields.digest = serving::BodyDigest(json, *silent, kUnordered);
  }
  out.chat.chat_template.add_generation_prompt = true;
  ReadReasoning(in, out);
  Tools tools = ReadTools(in);
  serving::HoldRounded(body, in, rounded, fields, &tools.of_body);
  out.chat.tools = std::move(tools.fields);
  out.names = std::move(tools.names);
  out.store = in.Bool("store").value_or(true);
  const auto previous = in.String("previous_response_id");
  const auto instructions = in.String("instructions");
  const Json* input = in.Find("input");
  SLUICE_RETURN_IF_ERROR(in.status());
  if (input == nullptr && !previous) {
    return serving::FieldError("input", "is missing");
  }
  SLUICE_ASSIGN_OR_RETURN(Json before,
                          PreviousItems(previous, options, budget));
  const Json none = Json::array();
  const Json& own = input == nullptr ? none : *input;
  SLUICE_ASSIGN_OR_RETURN(
      out.chat.messages,
      MessagesOf(before, own, instructions.value_or(""), budget));
  if (options.previous != nullptr && out.store) {
    out.items = WithOwn(std::move(before), own);
  }
  out.echo = EchoOf(in, out, std::move(tools.shown));
  return out;
}

bool IsPlainBody(std::string_view body) {
  static const auto* const plain =
      new std::vector<std::string_view>(NamesOf(&ReadField::is_plain));
  static constexpr serving::PlainValue kValues[] = {
      {"tools", "[]"},
      {"tool_choice", R"("none")"},
      {"tool_choice", R"("auto")"},
      {"text", R"({"format":{"type":"text"}})"},
      {"text", R"({"verbosity":"low"})"},
      {"text", R"({"verbosity":"medium"})"},
      {"text", R"({"verbosity":"high"})"}};
  return serving::IsPlainBody(body, *plain, kValues);
}

}  // namespace sluice::responses
