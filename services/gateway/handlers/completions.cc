#include <utility>

#include "services/gateway/handlers/handlers.h"
#include "services/gateway/handlers/prepare.h"
#include "services/gateway/openai/error.h"
#include "services/gateway/openai/parse.h"
#include "services/gateway/served_model.h"

namespace sluice::gateway {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;

StatusOr<RunPlan::Choice> PrepareChoice(const HandlerContext& context,
                                        const CompletionRequest& request,
                                        const Prompt& prompt) {
  const ModelText& text = *context.model.text;
  const GenerationFields& fields = request.fields;
  RunPlan::Choice choice;
  choice.text.stop = fields.stop;
  choice.text.min_tokens = fields.min_tokens;
  choice.text.logprobs = fields.logprobs.has_value();
  choice.text.echo = request.echo;
  std::vector<TokenId> tokens;
  if (const auto* words = std::get_if<std::string>(&prompt)) {
    auto encoded = text.Encode(*words, request.add_special_tokens);
    if (!encoded.ok()) return WithParam(encoded.status(), "prompt");
    tokens = *std::move(encoded);
    choice.text.echo_text = *words;
  } else {
    tokens = std::get<std::vector<TokenId>>(prompt);
    if (request.echo) {
      SLUICE_ASSIGN_OR_RETURN(choice.text.echo_text,
                              text.Decode(tokens, /*skip_special=*/true));
    }
  }
  SLUICE_ASSIGN_OR_RETURN(
      choice.generate, MakeGenerateRequest(context, fields, std::move(tokens),
                                           {"prompt", kDefaultMaxTokens}));
  if (request.echo && fields.logprobs) {
    choice.generate.sampling.prompt_logprobs = *fields.logprobs;
  }
  return choice;
}

StatusOr<RunPlan> PrepareCompletion(const HandlerContext& context,
                                    std::string_view body) {
  const ServedModel& model = context.model;
  SLUICE_ASSIGN_OR_RETURN(const CompletionRequest request,
                          ParseCompletionRequest(body, model.vocab_size));
  const GenerationFields& fields = request.fields;
  SLUICE_RETURN_IF_ERROR(CheckModel(model, fields.model));
  AnswerInfo info = MakeAnswerInfo(model, fields, "cmpl-");
  RunPlan plan;
  plan.stream = fields.stream;
  plan.include_usage = fields.include_usage;
  for (const Prompt& prompt : request.prompts) {
    SLUICE_ASSIGN_OR_RETURN(RunPlan::Choice choice,
                            PrepareChoice(context, request, prompt));
    choice.generate.request_id = info.id;
    if (info.return_token_ids) {
      info.prompts.push_back(choice.generate.prompt_tokens);
    }
    plan.choices.push_back(std::move(choice));
  }
  plan.format =
      MakeCompletionFormat(*model.text, std::move(info), plan.choices.size());
  return plan;
}

}  // namespace

void AddCompletionsHandler(Router& router, const HandlerContext& context) {
  router.Add("POST", "/v1/completions",
             [context](std::shared_ptr<Exchange> exchange) {
               PrepareAndRun(
                   context,
                   [context](std::string_view body) {
                     return PrepareCompletion(context, body);
                   },
                   std::move(exchange));
             });
}

}  // namespace sluice::gateway
