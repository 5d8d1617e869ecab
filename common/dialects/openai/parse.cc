#include "common/dialects/openai/parse.h"

#include <limits>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/core/sampling_params.h"
#include "common/dialects/openai/body_digest.h"
#include "common/dialects/openai/chat_fields.h"
#include "common/dialects/openai/common_fields.h"
#include "common/dialects/openai/known_fields.h"
#include "common/dialects/openai/reasoning_fields.h"
#include "common/dialects/openai/tool_fields.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"
#include "common/serving/request_body.h"
#include "common/serving/request_fields.h"

namespace sluice::openai {
namespace {

StatusOr<serving::Prompt> ParsePrompt(const Json& prompt,
                                      std::string_view field, int vocab_size) {
  if (prompt.is_string()) return serving::Prompt(prompt.get<std::string>());
  if (!prompt.is_array()) {
    return serving::FieldError(
        field,
        "must be a string, an array of strings, or token ids, "
        "got ",
        serving::Describe(prompt));
  }
  SLUICE_ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                          serving::ParseTokenIds(prompt, field, vocab_size));
  if (tokens.empty()) return serving::FieldError(field, "must not be empty");
  return serving::Prompt(std::move(tokens));
}

}  // namespace

StatusOr<std::vector<serving::Prompt>> ParsePrompts(const Json* prompt,
                                                    std::string_view field,
                                                    int vocab_size,
                                                    size_t most) {
  if (prompt == nullptr) return serving::FieldError(field, "is missing");
  const bool several =
      prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  std::vector<serving::Prompt> prompts;
  if (!several) {
    SLUICE_ASSIGN_OR_RETURN(serving::Prompt one,
                            ParsePrompt(*prompt, field, vocab_size));
    prompts.push_back(std::move(one));
    return prompts;
  }
  if (prompt->size() > most) {
    return serving::FieldError(field, "has ", prompt->size(),
                               " prompts, limit ", most);
  }
  for (const Json& entry : *prompt) {
    SLUICE_ASSIGN_OR_RETURN(serving::Prompt one,
                            ParsePrompt(entry, field, vocab_size));
    prompts.push_back(std::move(one));
  }
  return prompts;
}

StatusOr<serving::ChatRequest> ParseChatRequest(std::string_view body,
                                                int vocab_size, bool strict) {
  JsonBudget budget;
  serving::RoundedNumbers rounded;
  SLUICE_ASSIGN_OR_RETURN(const Json json,
                          serving::ParseBody(body, budget, &rounded));
  if (strict) {
    SLUICE_RETURN_IF_ERROR(RefuseUnknownFields(json, /*chat=*/true));
  }
  SLUICE_RETURN_IF_ERROR(RefuseUnbuiltFields(json, /*chat=*/true));
  serving::FieldReader in(json);
  serving::ChatRequest out{ReadCommonFields(in, vocab_size, kChatNames)};
  if (out.fields.max_tokens == 0) {
    in.Refuse(out.fields.max_tokens_field, "must be at least 1, got 0");
  }
  if (out.fields.best_of > 0) {
    in.Refuse("best_of", "must be 1 or n, ", out.fields.n, ", in a chat; got ",
              out.fields.best_of);
  }
  CheckTogether(in, out.fields, 1);
  serving::ReadLogprobs(in, out.fields);
  CheckLogprobTokenIds(in, out.fields);
  if (out.fields.stream) out.fields.digest = BodyDigest(json);
  out.chat_template = ReadTemplateFields(in);
  out.argument_names = ReadArgumentNames(in);
  out.hides_reasoning = ReadHidesReasoning(in);
  ReadThinkingBudget(in, out.fields);
  out.tools = ReadToolFields(in);
  serving::HoldRounded(body, in, rounded, out.fields, &out.tools);
  out.echo = in.Bool("echo").value_or(false);
  const Json* messages = in.Find("messages");
  SLUICE_RETURN_IF_ERROR(in.status());
  if (messages == nullptr) return serving::FieldError("messages", "is missing");
  SLUICE_ASSIGN_OR_RETURN(out.messages, ParseMessages(*messages, budget));
  return out;
}

StatusOr<serving::CompletionRequest> ParseCompletionRequest(
    std::string_view body, int vocab_size, bool strict) {
  JsonBudget budget;
  serving::RoundedNumbers rounded;
  SLUICE_ASSIGN_OR_RETURN(const Json json,
                          serving::ParseBody(body, budget, &rounded));
  if (strict) {
    SLUICE_RETURN_IF_ERROR(RefuseUnknownFields(json, /*chat=*/false));
  }
  SLUICE_RETURN_IF_ERROR(RefuseUnbuiltFields(json, /*chat=*/false));
  serving::FieldReader in(json);
  serving::CompletionRequest out{
      ReadCommonFields(in, vocab_size, kCompletionNames)};
  out.echo = in.Bool("echo").value_or(false);
  if (out.fields.max_tokens == 0 && !out.echo) {
    in.Refuse(out.fields.max_tokens_field,
              "must be at least 1 without echo, got 0");
  }
  RefuseBudgets(in);
  if (const auto logprobs = in.Int("logprobs", 0, kMaxTopLogprobs)) {
    out.fields.logprobs = static_cast<int>(*logprobs);
  }
  CheckLogprobTokenIds(in, out.fields);
  out.add_special_tokens = in.Bool("add_special_tokens").value_or(true);
  serving::HoldRounded(body, in, rounded, out.fields, nullptr);
  if (out.fields.stream) out.fields.digest = BodyDigest(json);
  const Json* prompt = in.Find("prompt");
  SLUICE_RETURN_IF_ERROR(in.status());
  SLUICE_ASSIGN_OR_RETURN(
      out.prompts, ParsePrompts(prompt, "prompt", vocab_size, kMaxPrompts));
  CheckTogether(in, out.fields, out.prompts.size());
  SLUICE_RETURN_IF_ERROR(in.status());
  return out;
}

StatusOr<TokenizeRequest> ParseTokenizeRequest(std::string_view body) {
  JsonBudget budget;
  SLUICE_ASSIGN_OR_RETURN(const Json json, serving::ParseBody(body, budget));
  serving::FieldReader in(json);
  TokenizeRequest out;
  out.model = in.String("model").value_or("");
  const Json* messages = in.Find("messages");
  if (messages != nullptr) {
    out.chat_template = ReadTemplateFields(in);
    out.argument_names = ReadArgumentNames(in);
    out.tools = ReadToolFields(in).tools;
  }
  auto prompt = in.String("prompt");
  auto content = in.String("content");
  if (prompt && content) in.Refuse("content", "cannot go with prompt");
  // Each server's default stays with its name of the text.
  const bool adds = messages == nullptr && !content;
  const auto adds_too = in.Bool("add_special");
  out.add_special_tokens =
      in.Bool("add_special_tokens").value_or(adds_too.value_or(adds));
  out.return_token_strs = in.Bool("return_token_strs").value_or(false);
  out.parses_special = in.Bool("parse_special").value_or(true);
  out.with_pieces = in.Bool("with_pieces").value_or(false);
  if (!out.parses_special && out.add_special_tokens) {
    in.Refuse("parse_special", "must be true beside add_special: true");
  }
  SLUICE_RETURN_IF_ERROR(in.status());
  if (content) {
    prompt = std::move(content);
    out.prompt_field = "content";
  }
  if (prompt.has_value() == (messages != nullptr)) {
    return serving::FieldError("prompt", "give either prompt or messages");
  }
  if (prompt) {
    out.input = *std::move(prompt);
  } else {
    SLUICE_ASSIGN_OR_RETURN(out.input, ParseMessages(*messages, budget));
  }
  return out;
}

StatusOr<DetokenizeRequest> ParseDetokenizeRequest(std::string_view body,
                                                   int vocab_size) {
  JsonBudget budget;
  SLUICE_ASSIGN_OR_RETURN(const Json json, serving::ParseBody(body, budget));
  serving::FieldReader in(json);
  DetokenizeRequest out;
  out.model = in.String("model").value_or("");
  auto tokens =
      in.TokenIds("tokens", vocab_size, std::numeric_limits<size_t>::max());
  SLUICE_RETURN_IF_ERROR(in.status());
  if (!tokens) return serving::FieldError("tokens", "is missing");
  out.tokens = *std::move(tokens);
  return out;
}

}  // namespace sluice::openai
