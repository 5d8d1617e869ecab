#include "services/gateway/openai/parse.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/json.h"
#include "common/core/sampling_params.h"
#include "services/gateway/openai/error.h"
#include "services/gateway/openai/fields.h"

namespace sluice::gateway {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

StatusOr<Json> ParseObject(std::string_view body) {
  SLUICE_ASSIGN_OR_RETURN(Json json, ParseJson(body));
  if (!json.is_object()) {
    return InvalidArgument("the body must be a JSON object, got ",
                           Describe(json));
  }
  return json;
}

void ReadStreamOptions(FieldReader& in, GenerationFields& out) {
  const Json* options = in.Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    in.Refuse("stream_options", "must be an object, got ", Describe(*options));
    return;
  }
  if (!out.stream) {
    in.Refuse("stream_options", "only allowed with \"stream\": true");
    return;
  }
  FieldReader sub(*options, "stream_options.");
  out.include_usage = sub.Bool("include_usage").value_or(false);
  out.continuous_usage =
      out.include_usage && sub.Bool("continuous_usage_stats").value_or(false);
  if (!sub.status().ok()) in.Refuse("stream_options", Message(sub.status()));
}

// Fields that mean the same for chat and completions.
GenerationFields ReadCommonFields(FieldReader& in, int vocab_size) {
  GenerationFields out;
  out.model = in.String("model").value_or("");
  out.max_tokens = in.Int("max_tokens", 0, kMaxInt32);
  out.temperature = in.Number("temperature", 0, 2);
  out.top_p = in.Number("top_p", 0, 1);
  if (out.top_p == 0.0) in.Refuse("top_p", "must be above 0, got 0");
  out.top_k = in.Int("top_k", -1, kMaxInt32);
  if (out.top_k == -1) out.top_k = 0;
  out.min_p = in.Number("min_p", 0, 1);
  if (const auto seed = in.Int("seed", INT64_MIN, INT64_MAX)) {
    out.seed = static_cast<uint64_t>(*seed);
  }
  out.stop =
      in.Strings("stop", kMaxStopStrings, kMaxStopBytes).value_or(out.stop);
  out.stop_token_ids =
      in.TokenIds("stop_token_ids", vocab_size, kMaxStopTokenIds)
          .value_or(out.stop_token_ids);
  out.ignore_eos = in.Bool("ignore_eos").value_or(false);
  out.min_tokens = in.Int("min_tokens", 0, kMaxInt32).value_or(0);
  out.stream = in.Bool("stream").value_or(false);
  ReadStreamOptions(in, out);
  out.return_token_ids = in.Bool("return_token_ids").value_or(false);
  out.tokens_as_token_ids =
      in.Bool("return_tokens_as_token_ids").value_or(false);
  return out;
}

void CheckMinTokens(FieldReader& in, const GenerationFields& fields) {
  if (fields.max_tokens && fields.min_tokens > *fields.max_tokens) {
    in.Refuse("min_tokens", "must not exceed max_tokens ", *fields.max_tokens,
              ", got ", fields.min_tokens);
  }
}

StatusOr<std::string> JoinParts(const Json& parts, const std::string& where) {
  if (parts.size() > kMaxContentParts) {
    return FieldError("messages", where, ".content has ", parts.size(),
                      " parts, limit ", kMaxContentParts);
  }
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string at = Cat(where, ".content[", i, "]");
    if (!parts[i].is_object()) {
      return FieldError("messages", at, " must be an object, got ",
                        Describe(parts[i]));
    }
    FieldReader part(parts[i]);
    const std::string type = part.String("type").value_or("");
    if (type != "text") {
      return WithCode(
          FieldError("messages", at, ".type: only \"text\" is supported"),
          "unsupported_content");
    }
    const auto piece = part.String("text");
    if (!piece) {
      return FieldError("messages", at, ".text must be a string");
    }
    if (i > 0) text += '\n';
    text += *piece;
  }
  return text;
}

StatusOr<Json> ParseContent(const Json& message, std::string_view role,
                            const std::string& where) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    // An assistant that only called tools has no content.
    if (role == "assistant") return Json("");
    return FieldError("messages", where, ".content is missing");
  }
  if (content->is_string()) return *content;
  if (content->is_array()) {
    SLUICE_ASSIGN_OR_RETURN(std::string text, JoinParts(*content, where));
    return Json(std::move(text));
  }
  return FieldError("messages", where,
                    ".content must be a string or an array of parts, got ",
                    Describe(*content));
}

Status CopyToolFields(const Json& in, const std::string& where, Json& out) {
  for (const char* name : {"name", "tool_call_id"}) {
    const auto found = in.find(name);
    if (found == in.end() || found->is_null()) continue;
    if (!found->is_string()) {
      return FieldError("messages", where, ".", name, " must be a string, got ",
                        Describe(*found));
    }
    out[name] = *found;
  }
  const auto calls = in.find("tool_calls");
  if (calls == in.end() || calls->is_null() || calls->empty()) {
    return OkStatus();
  }
  const bool objects =
      calls->is_array() &&
      std::all_of(calls->begin(), calls->end(),
                  [](const Json& call) { return call.is_object(); });
  if (!objects) {
    return FieldError("messages", where,
                      ".tool_calls must be an array of objects, got ",
                      Describe(*calls));
  }
  out["tool_calls"] = *calls;
  return OkStatus();
}

StatusOr<Json> ParseMessage(const Json& message, size_t index) {
  const std::string where = Cat("messages[", index, "]");
  if (!message.is_object()) {
    return FieldError("messages", where, " must be an object, got ",
                      Describe(message));
  }
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) {
    return FieldError("messages", where, ".role must be a string");
  }
  const auto& name = role->get_ref<const std::string&>();
  static constexpr std::string_view kRoles[] = {"system", "user", "assistant",
                                                "tool", "developer"};
  if (std::find(std::begin(kRoles), std::end(kRoles), name) ==
      std::end(kRoles)) {
    return FieldError("messages", where,
                      ".role must be system, user, assistant, tool or "
                      "developer");
  }
  Json out;
  out["role"] = name == "developer" ? "system" : name;
  SLUICE_ASSIGN_OR_RETURN(out["content"], ParseContent(message, name, where));
  SLUICE_RETURN_IF_ERROR(CopyToolFields(message, where, out));
  return out;
}

StatusOr<Prompt> ParsePrompt(const Json& prompt, int vocab_size) {
  if (prompt.is_string()) return Prompt(prompt.get<std::string>());
  if (!prompt.is_array()) {
    return FieldError("prompt",
                      "must be a string, an array of strings, or token ids, "
                      "got ",
                      Describe(prompt));
  }
  SLUICE_ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                          ParseTokenIds(prompt, "prompt", vocab_size));
  if (tokens.empty()) return FieldError("prompt", "must not be empty");
  return Prompt(std::move(tokens));
}

StatusOr<std::vector<Prompt>> ParsePrompts(const Json* prompt, int vocab_size) {
  if (prompt == nullptr) return FieldError("prompt", "is missing");
  const bool several =
      prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  std::vector<Prompt> prompts;
  if (!several) {
    SLUICE_ASSIGN_OR_RETURN(Prompt one, ParsePrompt(*prompt, vocab_size));
    prompts.push_back(std::move(one));
    return prompts;
  }
  if (prompt->size() > kMaxPrompts) {
    return FieldError("prompt", "has ", prompt->size(), " prompts, limit ",
                      kMaxPrompts);
  }
  for (const Json& entry : *prompt) {
    SLUICE_ASSIGN_OR_RETURN(Prompt one, ParsePrompt(entry, vocab_size));
    prompts.push_back(std::move(one));
  }
  return prompts;
}

}  // namespace

StatusOr<Json> ParseMessages(const Json& messages) {
  if (!messages.is_array() || messages.empty()) {
    return FieldError("messages",
                      "must be an array of at least one message, "
                      "got ",
                      Describe(messages));
  }
  if (messages.size() > kMaxMessages) {
    return FieldError("messages", "has ", messages.size(), " messages, limit ",
                      kMaxMessages);
  }
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(Json message, ParseMessage(messages[i], i));
    out.push_back(std::move(message));
  }
  return out;
}

StatusOr<ChatRequest> ParseChatRequest(std::string_view body, int vocab_size) {
  SLUICE_ASSIGN_OR_RETURN(const Json json, ParseObject(body));
  SLUICE_RETURN_IF_ERROR(RefuseUnbuiltFields(json, /*chat=*/true));
  FieldReader in(json);
  ChatRequest out;
  out.fields = ReadCommonFields(in, vocab_size);
  if (const auto max = in.Int("max_completion_tokens", 0, kMaxInt32)) {
    out.fields.max_tokens = max;
  }
  if (out.fields.max_tokens == 0) {
    in.Refuse("max_tokens", "must be at least 1, got 0");
  }
  CheckMinTokens(in, out.fields);
  const bool logprobs = in.Bool("logprobs").value_or(false);
  const auto top = in.Int("top_logprobs", 0, kMaxTopLogprobs);
  if (top.value_or(0) > 0 && !logprobs) {
    in.Refuse("top_logprobs", "needs \"logprobs\": true");
  }
  if (logprobs) out.fields.logprobs = static_cast<int>(top.value_or(0));
  out.add_generation_prompt = in.Bool("add_generation_prompt").value_or(true);
  const Json* messages = in.Find("messages");
  SLUICE_RETURN_IF_ERROR(in.status());
  if (messages == nullptr) return FieldError("messages", "is missing");
  SLUICE_ASSIGN_OR_RETURN(out.messages, ParseMessages(*messages));
  return out;
}

StatusOr<CompletionRequest> ParseCompletionRequest(std::string_view body,
                                                   int vocab_size) {
  SLUICE_ASSIGN_OR_RETURN(const Json json, ParseObject(body));
  SLUICE_RETURN_IF_ERROR(RefuseUnbuiltFields(json, /*chat=*/false));
  FieldReader in(json);
  CompletionRequest out;
  out.fields = ReadCommonFields(in, vocab_size);
  out.echo = in.Bool("echo").value_or(false);
  if (out.fields.max_tokens == 0 && !out.echo) {
    in.Refuse("max_tokens", "must be at least 1 without echo, got 0");
  }
  CheckMinTokens(in, out.fields);
  if (const auto logprobs = in.Int("logprobs", 0, kMaxTopLogprobs)) {
    out.fields.logprobs = static_cast<int>(*logprobs);
  }
  out.add_special_tokens = in.Bool("add_special_tokens").value_or(true);
  const Json* prompt = in.Find("prompt");
  SLUICE_RETURN_IF_ERROR(in.status());
  SLUICE_ASSIGN_OR_RETURN(out.prompts, ParsePrompts(prompt, vocab_size));
  return out;
}

StatusOr<TokenizeRequest> ParseTokenizeRequest(std::string_view body) {
  SLUICE_ASSIGN_OR_RETURN(const Json json, ParseObject(body));
  FieldReader in(json);
  TokenizeRequest out;
  out.model = in.String("model").value_or("");
  out.add_generation_prompt = in.Bool("add_generation_prompt").value_or(true);
  const Json* messages = in.Find("messages");
  out.add_special_tokens = in.Bool("add_special_tokens").value_or(true);
  const auto prompt = in.String("prompt");
  SLUICE_RETURN_IF_ERROR(in.status());
  if (prompt.has_value() == (messages != nullptr)) {
    return FieldError("prompt", "give either prompt or messages");
  }
  if (prompt) {
    out.input = *prompt;
  } else {
    SLUICE_ASSIGN_OR_RETURN(out.input, ParseMessages(*messages));
  }
  return out;
}

StatusOr<DetokenizeRequest> ParseDetokenizeRequest(std::string_view body,
                                                   int vocab_size) {
  SLUICE_ASSIGN_OR_RETURN(const Json json, ParseObject(body));
  FieldReader in(json);
  DetokenizeRequest out;
  out.model = in.String("model").value_or("");
  const auto tokens =
      in.TokenIds("tokens", vocab_size, std::numeric_limits<size_t>::max());
  SLUICE_RETURN_IF_ERROR(in.status());
  if (!tokens) return FieldError("tokens", "is missing");
  out.tokens = *tokens;
  return out;
}

}  // namespace sluice::gateway
