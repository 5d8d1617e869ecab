#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/dialects/ollama/answer.h"
#include "common/dialects/ollama/handlers.h"
#include "common/dialects/ollama/models.h"
#include "common/dialects/ollama/parse.h"
#include "common/serving/error.h"
#include "common/serving/infill.h"
#include "common/serving/prepare.h"
#include "common/serving/prepare_chat.h"
#include "common/serving/request_cost.h"
#include "common/serving/request_grammar.h"
#include "common/serving/served_model.h"

namespace sluice::ollama {
namespace {

using MakeAnswerFormat = std::function<std::unique_ptr<serving::AnswerFormat>(
    const serving::ModelText& text, serving::AnswerInfo info)>;

// Returns the tokens of a prompt that goes to the model without a template. A
// text that fills a hole ends with the tokens for that, too.
StatusOr<std::vector<TokenId>> EncodePrompt(
    const serving::ServingContext& context, const OllamaRequest& request,
    serving::GenerationFields& fields) {
  const size_t bytes = request.prompt.size() + request.suffix.size();
  if (bytes > serving::MaxTextBytes(context, request.chat.fields)) {
    return serving::TextTooLong(context, request.chat.fields, bytes);
  }
  SLUICE_RETURN_IF_ERROR(
      serving::CheckText("prompt", bytes, serving::MaxTokenizeBytes(context)));
  const serving::ModelText& text = *context.model.text;
  if (!request.is_raw) {
    SLUICE_ASSIGN_OR_RETURN(const serving::InfillTokens tokens,
                            serving::FindInfillTokens(context.model, "suffix"));
    fields.stop_token_ids = tokens.ends;
    return serving::EncodeInfill(text, tokens,
                                 {.prefix = {"prompt", request.prompt},
                                  .suffix = {"suffix", request.suffix}});
  }
  auto tokens = text.Encode(request.prompt, /*special=*/true);
  if (!tokens.ok()) return serving::WithParam(tokens.status(), "prompt");
  return tokens;
}

StatusOr<serving::PreparedRequest> PrepareText(
    const serving::ServingContext& context, const http::HttpRequest& http,
    const OllamaRequest& request, const MakeAnswerFormat& make_format) {
  const serving::ServedModel& model = context.model;
  serving::GenerationFields fields = request.chat.fields;
  SLUICE_RETURN_IF_ERROR(serving::CheckStops(context, fields));
  SLUICE_ASSIGN_OR_RETURN(serving::AnswerStart start,
                          serving::StartAnswer(http, kGeneratePath, fields));
  SLUICE_ASSIGN_OR_RETURN(const serving::RequestTerms terms,
                          serving::ReadTerms(http));
  serving::PreparedRequest prepared;
  SLUICE_ASSIGN_OR_RETURN(prepared.grammar,
                          serving::CompletionGrammar(model, fields));
  SLUICE_ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                          EncodePrompt(context, request, fields));
  serving::AnswerShape shape{.prompt_tokens = tokens.size()};
  serving::PreparedRequest::Choice choice;
  choice.text = serving::MakeTextOptions(fields);
  SLUICE_ASSIGN_OR_RETURN(
      choice.generate,
      serving::MakeGenerateRequest(
          context, fields, std::move(tokens),
          serving::DefaultMaxTokens(fields, shape, context.limits)));
  shape.max_tokens = choice.generate.max_tokens;
  SLUICE_RETURN_IF_ERROR(serving::CheckAnswer(
      fields, shape, serving::AnswerBytes(fields, shape), context.limits));
  choice.generate.sampling.seed = start.SeedOf(fields, 0);
  prepared.stream = fields.stream;
  prepared.times = serving::StreamTimes(context, fields);
  serving::AddChoices(prepared, std::move(choice), 1, terms);
  serving::AnswerInfo info = serving::MakeAnswerInfo(model, fields, start, "");
  SLUICE_RETURN_IF_ERROR(
      serving::StartStream(context, http, fields, start, prepared, info));
  prepared.format = make_format(*model.text, std::move(info));
  return prepared;
}

StatusOr<serving::PreparedRequest> Prepare(
    const serving::ServingContext& context, const http::HttpRequest& http,
    AnswerForm form, OllamaRequest request) {
  const std::string model = std::move(request.chat.fields.model);
  SLUICE_RETURN_IF_ERROR(CheckName(context.model, model));
  request.chat.fields.model.clear();  // the name is one of Ollama's forms
  if (request.act != OllamaRequest::Act::kAnswer) {
    serving::PreparedRequest prepared;
    const bool loads = request.act == OllamaRequest::Act::kLoad;
    prepared.answer.emplace().body =
        DumpJson(EmptyAnswer(form, model, loads ? "load" : "unload"));
    return prepared;
  }
  const MakeAnswerFormat make_format = [form, model, arrival = http.arrival](
                                           const serving::ModelText& text,
                                           serving::AnswerInfo info) {
    info.model = model;
    return MakeFormat(text, std::move(info), form, arrival);
  };
  if (request.chat.messages.is_null()) {
    return PrepareText(context, http, request, make_format);
  }
  const bool is_chat = form == AnswerForm::kChat;
  return serving::PrepareChat(
      context, http, request.chat,
      {is_chat ? kChatPath : kGeneratePath, "", "call_", make_format});
}

StatusOr<serving::PreparedRequest> PrepareChat(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  SLUICE_ASSIGN_OR_RETURN(OllamaRequest request,
                          ParseChat(http.body, context.strict_fields));
  return Prepare(context, http, AnswerForm::kChat, std::move(request));
}

StatusOr<serving::PreparedRequest> PrepareGenerate(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  SLUICE_ASSIGN_OR_RETURN(OllamaRequest request,
                          ParseGenerate(http.body, context.strict_fields));
  return Prepare(context, http, AnswerForm::kGenerate, std::move(request));
}

}  // namespace

void RunChat(const serving::ServingContext& context,
             std::shared_ptr<http::Exchange> exchange) {
  serving::PrepareAndRun(context, PrepareChat, std::move(exchange));
}

void RunGenerate(const serving::ServingContext& context,
                 std::shared_ptr<http::Exchange> exchange) {
  serving::PrepareAndRun(context, PrepareGenerate, std::move(exchange));
}

}  // namespace sluice::ollama
