#include "common/dialects/messages/parse.h"

#include <optional>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/dialects/messages/known_fields.h"
#include "common/dialects/messages/tools.h"
#include "common/dialects/messages/turns.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"
#include "common/serving/request_body.h"
#include "common/serving/request_fields.h"
#include "common/serving/thinking.h"

namespace sluice::messages {
namespace {

constexpr serving::FieldNames kNames = {.truncate_prompt = "messages",
                                        .stop = "stop_sequences",
                                        .echo = "messages",
                                        .top_logprobs = "logprobs",
                                        .prompt_logprobs = "logprobs",
                                        .tool_calls = "tool_use blocks",
                                        .allowed_tools = "tool_choice",
                                        .template_arguments = "thinking",
                                        .continues_message = "messages"};

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
  } else if (out.grammar) {
    in.Refuse(field, "cannot go with ", out.grammar->name,
              ": an answer keeps to one grammar");
  } else {
    serving::SetSchema(in, Cat(field, ".schema"), *schema, out);
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
  const Json* thinking = serving::FindObject(in, "thinking");
  if (thinking == nullptr) return std::nullopt;
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
  SLUICE_RETURN_IF_ERROR(serving::CheckFields(
      json, KnownFields(),
      {.strict = options.strict,
       .unknown = "unknown field (the server's --strict-fields)"}));
  serving::FieldReader in(json);
  MessagesRequest out{{serving::GenerationFields(kNames)}, "", false};
  serving::GenerationFields& fields = out.chat.fields;
  out.model = in.String("model").value_or("");
  serving::ReadFields(in, KnownFields(), serving::kAnyPlace, options.vocab_size,
                      fields);
  fields.cuts_max_tokens = true;
  const Json* messages = in.Find("messages");
  if (!fields.max_tokens && !options.counts) {
    in.Refuse("max_tokens", "Field required");
  }
  if (messages == nullptr) in.Refuse("messages", "Field required");
  std::string effort = ReadOutputConfig(in, fields);
  const auto thinks = ReadThinking(in, out);
  SLUICE_RETURN_IF_ERROR(in.status());
  SLUICE_ASSIGN_OR_RETURN(Turns turns,
                          ReadTurns(in.Find("system"), *messages, budget));
  Tools tools = ReadTools(in, turns.named_tools);
  serving::HoldRounded(body, in, rounded, fields, &tools.by_place);
  SLUICE_RETURN_IF_ERROR(in.status());
  if (fields.stream) {
    fields.digest = serving::BodyDigest(json, KnownFields());
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
