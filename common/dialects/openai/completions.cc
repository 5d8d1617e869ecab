#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "common/dialects/openai/answer.h"
#include "common/dialects/openai/handlers.h"
#include "common/dialects/openai/parse.h"
#include "common/serving/error.h"
#include "common/serving/prepare.h"
#include "common/serving/served_model.h"
#include "common/serving/text_offsets.h"
#include "common/serving/token_rules.h"

namespace sluice::openai {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;
// Lowered to what the context leaves.
constexpr int64_t kFillsContext = std::numeric_limits<int32_t>::max();

StatusOr<std::vector<TokenId>> EncodePrompt(
    const serving::ServingContext& context,
    const serving::CompletionRequest& request, const serving::Prompt& prompt) {
  const auto* words = std::get_if<std::string>(&prompt);
  if (words == nullptr) return std::get<std::vector<TokenId>>(prompt);
  if (words->size() > serving::MaxTextBytes(context, request.fields)) {
    return serving::TextTooLong(context, request.fields, words->size());
  }
  SLUICE_RETURN_IF_ERROR(serving::CheckText(
      "prompt", words->size(), serving::MaxTokenizeBytes(context)));
  auto encoded = context.model.text->Encode(*words, request.add_special_tokens);
  if (!encoded.ok()) return serving::WithParam(encoded.status(), "prompt");
  return encoded;
}

// Returns the offsets of a choice's tokens in its text.
std::shared_ptr<const serving::TextOffsets> MakeOffsets(
    const serving::ServingContext& context,
    const serving::CompletionRequest& request, const serving::Prompt& prompt,
    const serving::PreparedRequest::Choice& choice) {
  std::optional<serving::TextOffsets::Echo> echo;
  const auto& tokens = choice.generate.prompt_tokens;
  if (request.echo) {
    const auto* words = std::get_if<std::string>(&prompt);
    const bool as_given = words != nullptr && choice.text.echo_text == *words;
    echo = {choice.text.echo_text, tokens.size(), as_given};
  }
  return std::make_shared<const serving::TextOffsets>(
      *context.model.text, tokens, request.fields.skip_special,
      std::move(echo));
}

// `text` has the options that all prompts share.
StatusOr<serving::PreparedRequest::Choice> PrepareChoice(
    const serving::ServingContext& context,
    const serving::CompletionRequest& request, const serving::Prompt& prompt,
    const serving::ChoiceTextOptions& text) {
  const serving::GenerationFields& fields = request.fields;
  serving::PreparedRequest::Choice choice;
  choice.text = text;
  choice.text.echo = request.echo;
  SLUICE_ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                          EncodePrompt(context, request, prompt));
  const size_t whole = tokens.size();
  SLUICE_ASSIGN_OR_RETURN(
      tokens, serving::TruncatePrompt(context, fields, std::move(tokens)));
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
      serving::MakeGenerateRequest(
          context, fields, std::move(tokens),
          fields.fills_context ? kFillsContext : kDefaultMaxTokens));
  SLUICE_ASSIGN_OR_RETURN(
      choice.rules,
      serving::MakeTokenRules(context, fields, choice.generate.prompt_tokens));
  if (request.echo && fields.logprobs) {
    int32_t& wanted = choice.generate.sampling.prompt_logprobs;
    wanted = std::max(wanted, *fields.logprobs);
  }
  return choice;
}

StatusOr<serving::PreparedRequest> PrepareCompletion(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  const serving::ServedModel& model = context.model;
  SLUICE_ASSIGN_OR_RETURN(const serving::CompletionRequest request,
                          ParseCompletionRequest(http.body, model.vocab_size,
                                                 context.strict_fields));
  const serving::GenerationFields& fields = request.fields;
  SLUICE_RETURN_IF_ERROR(serving::CheckModel(model, "model", fields.model));
  SLUICE_RETURN_IF_ERROR(serving::CheckStops(context, fields));
  SLUICE_ASSIGN_OR_RETURN(serving::AnswerStart start,
                          serving::StartAnswer(http, kCompletionsPath, fields));
  SLUICE_ASSIGN_OR_RETURN(const serving::RequestTerms terms,
                          serving::ReadTerms(http));
  serving::AnswerInfo info =
      serving::MakeAnswerInfo(model, fields, start, "cmpl-");
  serving::PreparedRequest prepared;
  SLUICE_ASSIGN_OR_RETURN(prepared.grammar,
                          serving::CompletionGrammar(model, fields));
  size_t answer_bytes = 0;  // over all prompts so far
  size_t prompts = 0;
  prepared.stream = fields.stream;
  prepared.times = serving::StreamTimes(context, fields);
  // Choosing takes the log probabilities of all choices.
  serving::GenerationFields made = fields;
  if (fields.best_of > 0) {
    made.n = fields.best_of;
    made.logprobs = fields.logprobs.value_or(0);
    prepared.best_of = {made.n, fields.n, fields.logprobs.has_value()};
  }
  const serving::ChoiceTextOptions text = serving::MakeTextOptions(made);
  for (const serving::Prompt& prompt : request.prompts) {
    SLUICE_ASSIGN_OR_RETURN(serving::PreparedRequest::Choice choice,
                            PrepareChoice(context, request, prompt, text));
    if (made.logprobs && !fields.logprobs) {
      choice.generate.sampling.logprobs = *made.logprobs;
    }
    const serving::AnswerShape shape{
        /*chat=*/false, request.echo, choice.generate.prompt_tokens.size(),
        choice.text.echo_text.size(), choice.generate.max_tokens};
    answer_bytes += serving::AnswerBytes(made, shape);
    SLUICE_RETURN_IF_ERROR(
        serving::CheckAnswer(made, shape, answer_bytes, context.limits));
    if (info.return_token_ids) {
      info.prompts.push_back(choice.generate.prompt_tokens);
    }
    if (fields.logprobs) {
      info.offsets.push_back(MakeOffsets(context, request, prompt, choice));
    }
    choice.generate.sampling.seed = start.SeedOf(fields, prompts++);
    serving::AddChoices(prepared, std::move(choice), made.n, terms);
  }
  // The first choice of a prompt computes its logprobs.
  for (serving::PreparedRequest::Choice& choice : prepared.choices) {
    SamplingParams& sampling = choice.generate.sampling;
    choice.follows = sampling.choice > 0 && sampling.prompt_logprobs >= 0;
    if (choice.follows) sampling.prompt_logprobs = -1;
  }
  info.num_choices = prompts * static_cast<size_t>(fields.n);
  SLUICE_RETURN_IF_ERROR(
      serving::StartStream(context, http, fields, start, prepared, info));
  prepared.format = MakeCompletionFormat(*model.text, std::move(info));
  return prepared;
}

}  // namespace

void RunCompletion(const serving::ServingContext& context,
                   std::shared_ptr<http::Exchange> exchange) {
  serving::PrepareAndRun(context, PrepareCompletion, std::move(exchange));
}

}  // namespace sluice::openai
