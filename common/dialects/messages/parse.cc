#include "common/dialects/messages/parse.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/core/sampling_params.h"
#include "common/dialects/messages/known_fields.h"
#include "common/dialects/messages/tools.h"
#include "common/dialects/messages/turns.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"
#include "common/serving/json_digest.h"
#include "common/serving/request_body.h"
#include "common/serving/request_limits.h"
#include "common/serving/sampling_fields.h"
#include "common/serving/thinking.h"

namespace sluice::messages {
namespace {

constexpr serving::FieldNames kNames = {.prompt = "messages",
                                        .truncate_prompt = "messages",
                                        .max_tokens = "max_tokens",
                                        .min_tokens = "min_tokens",
                                        .stop = "stop_sequences",
                                        .n = "n",
                                        .echo = "messages",
                                        .logprobs = "logprobs",
                                        .top_logprobs = "logprobs",
                                        .prompt_logprobs = "logprobs",
                                        .stream = "stream",
                                        .tools = "tools",
                                        .tool_calls = "tool_use blocks",
                                        .allowed_tools = "tool_choice",
                                        .template_arguments = "thinking",
                                        .continues_message = "messages"};

// Fields in whose objects the order of members changes nothing, or the prompt's
// tokens alone.
constexpr std::string_view kUnorderedFields[] = {"messages", "system",
                                                 "thinking", "tool_choice"};

Status RefuseUnknownFields(const Json& body) {
  const auto is_among = [](auto names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  for (const auto& [name, value] : body.items()) {
    if (is_among(ReadFields(), name) || is_among(IgnoredFields(), name)) {
      continue;
    }
    return serving::WithCode(
        serving::FieldError(name.substr(0, 64),
                            "unknown field (the server's --strict-fields)"),
        "unknown_parameter");
  }
  return OkStatus();
}

// Refuses what another server would have to run.
void RefuseServers(serving::FieldReader& in) {
  for (const char* name : {"mcp_servers", "container"}) {
    const Json* value = in.Find(name);
    if (value == nullptr || *value == "" ||
        (value->is_structured() && value->empty())) {
      continue;
    }
    in.Refuse(name, "not supported: this server runs no tools");
  }
}

void ReadSampling(serving::FieldReader& in, int vocab_size,
                  serving::GenerationFields& out) {
  serving::ReadSamplingFields(in, out);
  out.ignore_eos = in.Bool("ignore_eos").value_or(false);
  out.min_tokens = in.Int("min_tokens", 0, serving::kMaxInt32).value_or(0);
  out.stop_token_ids =
      in.TokenIds("stop_token_ids", vocab_size, serving::kMaxClientStopTokenIds)
          .value_or(out.stop_token_ids);
  out.allowed_token_ids =
      in.TokenIds("allowed_token_ids", vocab_size, serving::kMaxAllowedTokenIds)
          .value_or(out.allowed_token_ids);
  out.bad_words =
      in.Strings("bad_words", serving::kMaxBadWords, serving::kMaxStopBytes)
          .value_or(out.bad_words);
  out.priority = static_cast<int32_t>(
      in.Int("priority", -serving::kMaxInt32, serving::kMaxInt32).value_or(0));
}

void ReadStops(serving::FieldReader& in, serving::GenerationFields& out) {
  out.stop = in.Strings("stop_sequences", serving::kMaxStopStrings,
                        serving::kMaxStopBytes)
                 .value_or(out.stop);
  size_t bytes = 0;
  for (const std::string& stop : out.stop) bytes += stop.size();
  if (bytes > serving::kMaxAllStopBytes) {
    in.Refuse("stop_sequences", "the strings have ", bytes,
              " bytes together, limit ", serving::kMaxAllStopBytes);
  }
}

// Reads a format, {"type": "json_schema", "schema"}, of `field`.
void ReadFormat(serving::FieldReader& in, const Json* format,
                const std::string& field, serving::GenerationFields& out) {
  if (format == nullptr) return;
  if (!format->is_object()) {
    in.Refuse(field, "must be an object, got ", serving::Describe(*format));
    return;
  }
  serving::FieldReader part(*format, Cat(field, "."));
  const Json* schema = part.Find("schema");
  if (part.String("type").value_or("") != "json_schema") {
    part.Refuse("type", "must be \"json_schema\"");
  } else if (schema == nullptr) {
    part.Refuse("schema", "Field required");
  } else if (!schema->is_object() && !schema->is_boolean()) {
    part.Refuse("schema", "must be a JSON schema, an object, got ",
                serving::Describe(*schema));
  } else if (out.grammar) {
    in.Refuse(field, "cannot go with ", out.grammar->name,
              ": an answer keeps to one grammar");
  } else {
    out.grammar = {Cat(field, ".schema"),
                   {GrammarSpec::Kind::kJsonSchema, DumpJson(*schema)}};
  }
  in.Keep(part.status());
}

// Reads the form of the answer, and returns the effort, empty: none.
std::string ReadOutputConfig(serving::FieldReader& in,
                             serving::GenerationFields& out) {
  ReadFormat(in, in.Find("output_format"), "output_format", out);
  const Json* config = in.Find("output_config");
  if (config == nullptr) return "";
  const auto effort = ReadEffort(*config, "output_config");
  in.Keep(effort.status());
  if (!effort.ok()) return "";
  const auto format = config->find("format");
  if (format != config->end() && !format->is_null()) {
    ReadFormat(in, &*format, "output_config.format", out);
  }
  return *effort;
}

// Reads whether `out` omits thinking, and its budget. Returns whether the model
// thinks; nothing: as it does by itself.
std::optional<bool> ReadThinking(serving::FieldReader& in,
                                 MessagesRequest& out) {
  const Json* thinking = in.Find("thinking");
  if (thinking == nullptr) return std::nullopt;
  if (!thinking->is_object()) {
    in.Refuse("thinking", "must be an object, got ",
              serving::Describe(*thinking));
    return std::nullopt;
  }
  serving::FieldReader part(*thinking, "thinking.");
  const std::string type = part.String("type").value_or("");
  out.omits_thinking = part.String("display").value_or("") == "omitted";
  const bool by_itself = type == "adaptive" || type == "between_tools";
  if (!by_itself && type != "enabled" && type != "disabled") {
    part.Refuse("type", "must be \"adaptive\", \"enabled\", \"disabled\" or ",
                "\"between_tools\"");
  }
  if (type == "enabled") {
    out.chat.fields.thinking_budget =
        part.Int("budget_tokens", 1, serving::kMaxInt32);
    out.chat.fields.thinking_budget_field = "thinking.budget_tokens";
    // Clients must send it whatever the model is.
    out.chat.fields.thinking_budget_is_wish = true;
  }
  in.Keep(part.status());
  if (by_itself) return std::nullopt;
  return type == "enabled";
}

}  // namespace

StatusOr<MessagesRequest> ParseMessagesRequest(std::string_view body,
                                               const ParseOptions& options) {
  JsonBudget budget;
  serving::RoundedNumbers rounded;
  SLUICE_ASSIGN_OR_RETURN(const Json json,
                          serving::ParseBody(body, budget, &rounded));
  if (options.strict) SLUICE_RETURN_IF_ERROR(RefuseUnknownFields(json));
  serving::FieldReader in(json);
  MessagesRequest out{{serving::GenerationFields(kNames)}, "", false};
  serving::GenerationFields& fields = out.chat.fields;
  out.model = in.String("model").value_or("");
  fields.max_tokens = in.Int("max_tokens", 1, serving::kMaxInt32);
  fields.cuts_max_tokens = true;
  const Json* messages = in.Find("messages");
  if (!fields.max_tokens && !options.counts) {
    in.Refuse("max_tokens", "Field required");
  }
  if (messages == nullptr) in.Refuse("messages", "Field required");
  RefuseServers(in);
  ReadSampling(in, options.vocab_size, fields);
  ReadStops(in, fields);
  fields.stream = in.Bool("stream").value_or(false);
  fields.cache_salt = in.String("cache_salt").value_or("");
  if (fields.cache_salt.size() > serving::kMaxCacheSaltBytes) {
    in.Refuse("cache_salt", "has ", fields.cache_salt.size(), " bytes, limit ",
              serving::kMaxCacheSaltBytes);
  }
  std::string effort = ReadOutputConfig(in, fields);
  const auto thinks = ReadThinking(in, out);
  SLUICE_RETURN_IF_ERROR(in.status());
  SLUICE_ASSIGN_OR_RETURN(Turns turns,
                          ReadTurns(in.Find("system"), *messages, budget));
  Tools tools = ReadTools(in, turns.named_tools);
  serving::HoldRounded(body, in, rounded, fields, &tools.by_place);
  SLUICE_RETURN_IF_ERROR(in.status());
  if (fields.stream) {
    fields.digest =
        serving::BodyDigest(json, IgnoredFields(), kUnorderedFields);
  }
  if (!turns.effort.empty()) effort = turns.effort;
  serving::SetThinking(thinks,
                       effort.empty() ? std::nullopt : std::optional(effort),
                       out.chat.chat_template.kwargs);
  out.chat.messages = std::move(turns.messages);
  out.chat.tools = std::move(tools.fields);
  out.chat.chat_template.continue_final_message = turns.continues;
  out.chat.chat_template.add_generation_prompt = !turns.continues;
  return out;
}

}  // namespace sluice::messages
