#include "common/dialects/llamacpp/completion.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "common/dialects/llamacpp/answer.h"
#include "common/dialects/llamacpp/handlers.h"
#include "common/dialects/llamacpp/settings.h"
#include "common/serving/error.h"
#include "common/serving/prepare.h"
#include "common/serving/served_model.h"
#include "common/serving/token_rules.h"

namespace sluice::llamacpp {
namespace {

// Lowered to what the context leaves.
constexpr int64_t kFillsContext = std::numeric_limits<int32_t>::max();

// A text has special tokens where it spells them, and BOS in front of the first
// one.
StatusOr<std::vector<TokenId>> EncodeParts(
    const serving::ServingContext& context,
    const serving::GenerationFields& fields, const PromptParts& parts) {
  size_t bytes = 0;
  for (const serving::Prompt& part : parts) {
    const auto* text = std::get_if<std::string>(&part);
    if (text != nullptr) bytes += text->size();
  }
  SLUICE_RETURN_IF_ERROR(CheckTextBytes(context, fields, bytes));
  std::vector<TokenId> tokens;
  for (const serving::Prompt& part : parts) {
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&part)) {
      tokens.insert(tokens.end(), ids->begin(), ids->end());
      continue;
    }
    const bool is_first = &part == &parts.front();
    auto ids =
        context.model.text->Encode(std::get<std::string>(part), is_first);
    if (!ids.ok()) return serving::WithParam(ids.status(), "prompt");
    tokens.insert(tokens.end(), ids->begin(), ids->end());
  }
  return tokens;
}

StatusOr<serving::PreparedRequest> PrepareCompletion(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  const serving::ServedModel& model = context.model;
  SLUICE_ASSIGN_OR_RETURN(
      const CompletionBody body,
      ParseCompletion(http.body, *model.text, model.vocab_size,
                      context.strict_fields));
  std::vector<std::vector<TokenId>> prompts;
  for (const PromptParts& parts : body.prompts) {
    SLUICE_ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                            EncodeParts(context, body.fields, parts));
    prompts.push_back(std::move(tokens));
  }
  return Prepare(context, http, kCompletionPath, body, std::move(prompts));
}

}  // namespace

Status CheckTextBytes(const serving::ServingContext& context,
                      const serving::GenerationFields& fields, size_t bytes) {
  if (bytes > serving::MaxTextBytes(context, fields)) {
    return serving::TextTooLong(context, fields, bytes);
  }
  return serving::CheckText(fields.names->prompt, bytes,
                            serving::MaxTokenizeBytes(context));
}

StatusOr<serving::PreparedRequest> Prepare(
    const serving::ServingContext& context, const http::HttpRequest& http,
    std::string_view path, const CompletionBody& body,
    std::vector<std::vector<TokenId>> prompts) {
  const serving::ServedModel& model = context.model;
  const serving::GenerationFields& fields = body.fields;
  SLUICE_RETURN_IF_ERROR(serving::CheckModel(model, "model", fields.model));
  SLUICE_RETURN_IF_ERROR(serving::CheckStops(context, fields));
  SLUICE_ASSIGN_OR_RETURN(serving::AnswerStart start,
                          serving::StartAnswer(http, path, fields));
  SLUICE_ASSIGN_OR_RETURN(const serving::RequestTerms terms,
                          serving::ReadTerms(http));
  serving::AnswerInfo info =
      serving::MakeAnswerInfo(model, fields, start, "cmpl-");
  serving::PreparedRequest prepared;
  SLUICE_ASSIGN_OR_RETURN(prepared.grammar,
                          serving::CompletionGrammar(model, fields));
  prepared.stream = fields.stream;
  prepared.times = serving::StreamTimes(context, fields);
  CompletionShape shape;
  shape.n_ctx = serving::MaxContext(context);
  size_t answer_bytes = 0;  // over all prompts so far
  for (std::vector<TokenId>& tokens : prompts) {
    serving::PreparedRequest::Choice choice;
    choice.text = serving::MakeTextOptions(fields);
    SLUICE_ASSIGN_OR_RETURN(std::string text,
                            model.text->Decode(tokens, /*skip_special=*/false));
    SLUICE_ASSIGN_OR_RETURN(
        choice.generate,
        serving::MakeGenerateRequest(context, fields, std::move(tokens),
                                     kFillsContext));
    SLUICE_ASSIGN_OR_RETURN(
        choice.rules, serving::MakeTokenRules(context, fields,
                                              choice.generate.prompt_tokens));
    // The prompt's text is in the answer.
    const serving::AnswerShape cost{/*chat=*/true, /*echo=*/true,
                                    choice.generate.prompt_tokens.size(),
                                    text.size(), choice.generate.max_tokens};
    answer_bytes += serving::AnswerBytes(fields, cost);
    SLUICE_RETURN_IF_ERROR(
        serving::CheckAnswer(fields, cost, answer_bytes, context.limits));
    choice.generate.sampling.seed = start.SeedOf(fields, shape.prompts.size());
    if (shape.prompts.empty()) {
      shape.settings =
          SettingsJson(choice.generate.sampling, body, shape.n_ctx);
      shape.settings["model"] = model.name;
    }
    shape.prompts.push_back(std::move(text));
    serving::AddChoices(prepared, std::move(choice), fields.n, terms);
  }
  info.num_choices = prepared.choices.size();
  SLUICE_RETURN_IF_ERROR(
      serving::StartStream(context, http, fields, start, prepared, info));
  shape.is_list = body.is_list;
  shape.stream = fields.stream;
  shape.return_tokens = body.return_tokens;
  shape.timings_per_token = body.timings_per_token;
  shape.response_fields = body.response_fields;
  prepared.format =
      MakeCompletionFormat(*model.text, std::move(info), std::move(shape));
  return prepared;
}

void RunCompletion(const serving::ServingContext& context,
                   std::shared_ptr<http::Exchange> exchange) {
  serving::PrepareAndRun(context, PrepareCompletion, std::move(exchange));
}

}  // namespace sluice::llamacpp
