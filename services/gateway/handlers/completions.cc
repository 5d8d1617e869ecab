#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "common/openai/error.h"
#include "common/openai/parse.h"
#include "common/openai/text_offsets.h"
#include "services/gateway/handlers/handlers.h"
#include "services/gateway/handlers/prepare.h"
#include "services/gateway/served_model.h"

namespace sluice::gateway {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;
// Lowered to what the context leaves.
constexpr int64_t kFillsContext = std::numeric_limits<int32_t>::max();

StatusOr<std::vector<TokenId>> EncodePrompt(
    const HandlerContext& context, const openai::CompletionRequest& request,
    const openai::Prompt& prompt) {
  const auto* words = std::get_if<std::string>(&prompt);
  if (words == nullptr) return std::get<std::vector<TokenId>>(prompt);
  if (words->size() > MaxTextBytes(context, request.fields)) {
    return TextTooLong(context, "prompt", words->size());
  }
  SLUICE_RETURN_IF_ERROR(
      openai::CheckText("prompt", words->size(), MaxTokenizeBytes(context)));
  auto encoded = context.model.text->Encode(*words, request.add_special_tokens);
  if (!encoded.ok()) return openai::WithParam(encoded.status(), "prompt");
  return encoded;
}

// Returns the offsets of a choice's tokens in its text.
std::shared_ptr<const openai::TextOffsets> MakeOffsets(
    const HandlerContext& context, const openai::CompletionRequest& request,
    const openai::Prompt& prompt, const PreparedRequest::Choice& choice) {
  std::optional<openai::TextOffsets::Echo> echo;
  const auto& tokens = choice.generate.prompt_tokens;
  if (request.echo) {
    const auto* words = std::get_if<std::string>(&prompt);
    const bool as_given = words != nullptr && choice.text.echo_text == *words;
    echo = {choice.text.echo_text, tokens.size(), as_given};
  }
  return std::make_shared<const openai::TextOffsets>(
      *context.model.text, tokens, request.fields.skip_special,
      std::move(echo));
}

// `text` has the options that all prompts share.
StatusOr<PreparedRequest::Choice> PrepareChoice(
    const HandlerContext& context, const openai::CompletionRequest& request,
    const openai::Prompt& prompt, const openai::ChoiceTextOptions& text) {
  const openai::GenerationFields& fields = request.fields;
  PreparedRequest::Choice choice;
  choice.text = text;
  choice.text.echo = request.echo;
  SLUICE_ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                          EncodePrompt(context, request, prompt));
  const size_t whole = tokens.size();
  SLUICE_ASSIGN_OR_RETURN(tokens,
                          TruncatePrompt(context, fields, std::move(tokens)));
  if (request.echo) {
    const auto* words = std::get_if<std::string>(&prompt);
    if (words != nullptr && tokens.size() == whole) {
      choice.text.echo_text = *words;
    } else {
      SLUICE_ASSIGN_OR_RETURN(
          choice.text.echo_text,
          context.model.text->Decode(tokens, fields.skip_special));
    }
  }
  SLUICE_ASSIGN_OR_RETURN(
      choice.generate,
      MakeGenerateRequest(
          context, fields, std::move(tokens),
          {"prompt",
           fields.fills_context ? kFillsContext : kDefaultMaxTokens}));
  if (request.echo && fields.logprobs) {
    int32_t& wanted = choice.generate.sampling.prompt_logprobs;
    wanted = std::max(wanted, *fields.logprobs);
  }
  return choice;
}

StatusOr<PreparedRequest> PrepareCompletion(const HandlerContext& context,
                                            const http::HttpRequest& http) {
  const ServedModel& model = context.model;
  SLUICE_ASSIGN_OR_RETURN(
      const openai::CompletionRequest request,
      openai::ParseCompletionRequest(http.body, model.vocab_size,
                                     context.strict_fields));
  const openai::GenerationFields& fields = request.fields;
  SLUICE_RETURN_IF_ERROR(CheckModel(model, fields.model));
  SLUICE_RETURN_IF_ERROR(CheckStops(context, fields));
  SLUICE_ASSIGN_OR_RETURN(AnswerStart start,
                          StartAnswer(http, kCompletionsPath, fields));
  SLUICE_ASSIGN_OR_RETURN(const RequestTerms terms, ReadTerms(http));
  openai::AnswerInfo info = MakeAnswerInfo(model, fields, start);
  PreparedRequest prepared;
  SLUICE_ASSIGN_OR_RETURN(prepared.grammar, CompletionGrammar(model, fields));
  size_t answer_bytes = 0;  // over all prompts so far
  size_t prompts = 0;
  prepared.stream = fields.stream;
  prepared.include_usage = fields.include_usage;
  prepared.times = StreamTimes(context, fields);
  const openai::ChoiceTextOptions text = MakeTextOptions(fields);
  for (const openai::Prompt& prompt : request.prompts) {
    SLUICE_ASSIGN_OR_RETURN(PreparedRequest::Choice choice,
                            PrepareChoice(context, request, prompt, text));
    const openai::AnswerShape shape{
        /*chat=*/false, request.echo, choice.generate.prompt_tokens.size(),
        choice.text.echo_text.size(), choice.generate.max_tokens};
    answer_bytes += openai::AnswerBytes(fields, shape);
    SLUICE_RETURN_IF_ERROR(
        openai::CheckAnswer(fields, shape, answer_bytes, context.limits));
    if (info.return_token_ids) {
      info.prompts.push_back(choice.generate.prompt_tokens);
    }
    if (fields.logprobs) {
      info.offsets.push_back(MakeOffsets(context, request, prompt, choice));
    }
    choice.generate.sampling.seed = start.SeedOf(fields, prompts++);
    AddChoices(prepared, std::move(choice), fields.n, terms);
  }
  // The first choice of a prompt computes its logprobs.
  for (PreparedRequest::Choice& choice : prepared.choices) {
    SamplingParams& sampling = choice.generate.sampling;
    choice.follows = sampling.choice > 0 && sampling.prompt_logprobs >= 0;
    if (choice.follows) sampling.prompt_logprobs = -1;
  }
  info.num_choices = prepared.choices.size();
  SLUICE_RETURN_IF_ERROR(
      StartStream(context, http, fields, start, prepared, info));
  prepared.format = openai::MakeCompletionFormat(*model.text, std::move(info));
  return prepared;
}

}  // namespace

void RunCompletion(const HandlerContext& context,
                   std::shared_ptr<http::Exchange> exchange) {
  PrepareAndRun(context, PrepareCompletion, std::move(exchange));
}

void AddCompletionsHandler(http::Router& router,
                           const HandlerContext& context) {
  router.Add("POST", kCompletionsPath,
             [context](std::shared_ptr<http::Exchange> exchange) {
               RunCompletion(context, std::move(exchange));
             });
}

}  // namespace sluice::gateway
