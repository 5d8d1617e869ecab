#include <limits>
#include <utility>

#include "services/gateway/handlers/handlers.h"
#include "services/gateway/handlers/prepare.h"
#include "services/gateway/openai/error.h"
#include "services/gateway/openai/parse.h"
#include "services/gateway/served_model.h"

namespace sluice::gateway {
namespace {

StatusOr<RunPlan> PrepareChat(const HandlerContext& context,
                              std::string_view body) {
  const ServedModel& model = context.model;
  SLUICE_ASSIGN_OR_RETURN(const ChatRequest request,
                          ParseChatRequest(body, model.vocab_size));
  const GenerationFields& fields = request.fields;
  SLUICE_RETURN_IF_ERROR(CheckModel(model, fields.model));
  auto encoded =
      model.text->EncodeChat(request.messages, request.add_generation_prompt);
  if (!encoded.ok()) {
    return encoded.status().code() == StatusCode::kInvalidArgument
               ? WithParam(encoded.status(), "messages")
               : encoded.status();
  }
  SLUICE_ASSIGN_OR_RETURN(
      GenerateRequest generate,
      MakeGenerateRequest(context, fields, *std::move(encoded),
                          {"messages", std::numeric_limits<int32_t>::max()}));
  AnswerInfo info = MakeAnswerInfo(model, fields, "chatcmpl-");
  generate.request_id = info.id;
  if (info.return_token_ids) info.prompts = {generate.prompt_tokens};
  RunPlan plan;
  plan.stream = fields.stream;
  plan.include_usage = fields.include_usage;
  plan.format = MakeChatFormat(*model.text, std::move(info));
  ChoiceTextOptions text;
  text.stop = fields.stop;
  text.min_tokens = fields.min_tokens;
  text.logprobs = fields.logprobs.has_value();
  plan.choices.push_back({std::move(generate), std::move(text)});
  return plan;
}

}  // namespace

void AddChatHandler(Router& router, const HandlerContext& context) {
  router.Add("POST", "/v1/chat/completions",
             [context](std::shared_ptr<Exchange> exchange) {
               PrepareAndRun(
                   context,
                   [context](std::string_view body) {
                     return PrepareChat(context, body);
                   },
                   std::move(exchange));
             });
}

}  // namespace sluice::gateway
