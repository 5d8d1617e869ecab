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
#include "common/serving/plain_body.h"
#include "common/serving/request_body.h"
#include "common/serving/request_fields.h"
#include "common/serving/thinking.h"

namespace sluice::responses {
namespace {

namespace rows = serving::rows;
using rows::Own;
using rows::Unbuilt;

constexpr serving::FieldNames kNames = {.prompt = "input",
                                        .truncate_prompt = "truncation",
                                        .max_tokens = "max_output_tokens",
                                        .logprobs = "include",
                                        .tool_calls = "input",
                                        .allowed_tools = "tool_choice",
                                        .template_arguments = "reasoning",
                                        .continues_message = "input"};

constexpr std::string_view kLogprobs = "message.output_text.logprobs";

// OpenAI's limits of metadata; kMaxLabelBytes also of a user and of keys.
constexpr size_t kMaxMetadata = 16;
constexpr size_t kMaxMetadataKeyBytes = 64;
constexpr size_t kMaxLabelBytes = 512;

// Another API's field that asks for nothing.
constexpr std::string_view kNull = "[]";

constexpr serving::RequestField kFields[] = {
    rows::kModel.Silent(),
    Own("input").Unordered(),
    Own("instructions"),
    Own("previous_response_id"),
    rows::kMaxTokens.Named("max_output_tokens"),
    rows::kTemperature,
    rows::kTopP,
    rows::kTopK,
    rows::kMinP,
    rows::kSeed,
    rows::kFrequencyPenalty,
    rows::kPresencePenalty,
    rows::kRepetitionPenalty,
    rows::kStop,
    rows::kStopTokenIds,
    rows::kIgnoreEos,
    rows::kAllowedTokenIds,
    rows::kBadWords,
    rows::kMinTokens,
    rows::kStream,
    rows::kPriority.Silent(),
    rows::kThinkingBudget,
    rows::kPingInterval.Silent(),
    rows::kCacheSalt.Silent(),
    Own("include").Unordered(),
    Own("top_logprobs"),
    Own("n"),
    Own("max_tool_calls"),
    Own("parallel_tool_calls"),
    Own("reasoning").Unordered(),
    Own("text").Constrains(),
    Own("tool_choice").Unordered().Constrains(),
    Own("tools").Constrains(),
    Own("truncation"),
    Own("background").Silent(),
    Own("client_metadata").Silent(),
    Own("context_management").Silent(),
    Own("metadata").Silent(),
    Own("moderation").Silent(),
    Own("prompt_cache_key").Silent(),
    Own("prompt_cache_options").Silent(),
    Own("prompt_cache_retention").Silent(),
    Own("safety_identifier").Silent(),
    Own("service_tier").Silent(),
    Own("store").Silent(),
    Own("stream_options").Silent(),
    Own("user").Silent(),
    Unbuilt("conversation", kNull, "; give input or previous_response_id"),
    Unbuilt("prompt", kNull, "; give instructions and input"),
    Unbuilt("messages", kNull, "; give input"),
    Unbuilt("max_tokens", kNull, "; give max_output_tokens"),
    Unbuilt("max_completion_tokens", kNull, "; give max_output_tokens"),
    Unbuilt("reasoning_effort", kNull, "; give reasoning.effort"),
    Unbuilt("response_format", kNull, "; give text.format"),
    Unbuilt("structured_outputs", kNull, "; give text.format"),
    Unbuilt("guided_json", kNull, "; give text.format"),
    Unbuilt("guided_regex", kNull, "; give a custom tool with a format"),
    Unbuilt("guided_grammar", kNull, "; give a custom tool with a format"),
    Unbuilt("functions", "[[]]", "; give tools"),
    Unbuilt("logprobs", "[false]", "; give include and top_logprobs"),
    Unbuilt("logit_bias", kNull, "; give /v1/chat/completions, which has it"),
};

// {"format": {"type", "name", "schema", ..}, "verbosity"}.
void ReadText(serving::FieldReader& in, serving::GenerationFields& out) {
  const Json* text = serving::FindObject(in, "text");
  if (text == nullptr) return;
  serving::FieldReader members(*text, "text.");
  const Json* format = serving::FindObject(members, "format");
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
    if (schema == nullptr) {
      part.Refuse("schema", "must be a JSON schema, an object");
    } else {
      serving::SetSchema(in, "text.format.schema", *schema, out);
    }
  } else if (type != "text") {
    part.Refuse("type", "must be \"text\", \"json_object\" or \"json_schema\"");
  }
  in.Keep(part.status());
}

// {"effort", "summary"}.
void ReadReasoning(serving::FieldReader& in, ResponsesRequest& out) {
  const Json* reasoning = serving::FindObject(in, "reasoning");
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

void ReadAskedLogprobs(serving::FieldReader& in,
                       serving::GenerationFields& out) {
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
  if (const Json* options = serving::FindObject(in, "stream_options")) {
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
  const Json* metadata = serving::FindObject(in, "metadata");
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

bool IsReference(const Json& item) {
  if (!item.is_object()) return false;
  const auto type = item.find("type");
  return type != item.end() && *type == "item_reference";
}

// Returns the field `input` with the items that it refers to.
StatusOr<Json> WithReferenced(const Json& input, const ReadOptions& options,
                              JsonBudget& budget) {
  Json items = Json::array();
  for (size_t i = 0; i < input.size(); ++i) {
    if (!IsReference(input[i])) {
      items.push_back(input[i]);
      continue;
    }
    const std::string where = Cat("input[", i, "]");
    const auto id = serving::FieldReader(input[i]).String("id");
    if (!id) return serving::FieldError("input", where, ".id must be a string");
    auto item = options.item(*id, budget);
    if (!item.ok()) {
      const bool is_absent = item.status().code() == StatusCode::kNotFound;
      return serving::WithCode(
          serving::FieldError("input", where, ": ", Message(item.status())),
          is_absent ? "item_not_found" : "unsupported_content");
    }
    items.push_back(*std::move(item));
  }
  return items;
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
  SLUICE_RETURN_IF_ERROR(
      serving::CheckFields(json, kFields, {.strict = options.strict}));
  serving::FieldReader in(json);
  ResponsesRequest out{{serving::GenerationFields(kNames)}};
  serving::GenerationFields& fields = out.chat.fields;
  serving::ReadFields(in, kFields, serving::kAnyPlace, options.vocab_size,
                      fields);
  serving::CheckMinTokens(in, fields);
  ReadAskedLogprobs(in, fields);
  ReadText(in, fields);
  RefuseValues(in);
  CheckLabels(in);
  fields.thinking_budget_field = rows::kThinkingBudget.name;
  if (fields.stream) fields.digest = serving::BodyDigest(json, kFields);
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
  Json referenced;
  if (options.item != nullptr && input != nullptr && input->is_array() &&
      std::ranges::any_of(*input, IsReference)) {
    SLUICE_ASSIGN_OR_RETURN(referenced,
                            WithReferenced(*input, options, budget));
    input = &referenced;
  }
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
  static const auto* const names =
      new std::vector<std::string_view>(serving::PlainNames(kFields));
  static constexpr serving::PlainValue kValues[] = {
      {"tools", "[]"},
      {"tool_choice", R"("none")"},
      {"tool_choice", R"("auto")"},
      {"text", R"({"format":{"type":"text"}})"},
      {"text", R"({"verbosity":"low"})"},
      {"text", R"({"verbosity":"medium"})"},
      {"text", R"({"verbosity":"high"})"}};
  return serving::IsPlainBody(body, *names, kValues);
}

}  // namespace sluice::responses
