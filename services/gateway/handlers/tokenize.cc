#include <utility>

#include "common/base/json.h"
#include "services/gateway/handlers/handlers.h"
#include "services/gateway/handlers/prepare.h"
#include "services/gateway/openai/error.h"
#include "services/gateway/openai/parse.h"
#include "services/gateway/served_model.h"

namespace sluice::gateway {
namespace {

StatusOr<HttpResponse> Tokenize(const HandlerContext& context,
                                std::string_view body) {
  SLUICE_ASSIGN_OR_RETURN(const TokenizeRequest request,
                          ParseTokenizeRequest(body));
  SLUICE_RETURN_IF_ERROR(CheckModel(context.model, request.model));
  const ModelText& text = *context.model.text;
  const auto* prompt = std::get_if<std::string>(&request.input);
  auto tokens = prompt != nullptr
                    ? text.Encode(*prompt, request.add_special_tokens)
                    : text.EncodeChat(std::get<Json>(request.input),
                                      request.add_generation_prompt);
  if (!tokens.ok()) return tokens.status();
  HttpResponse response;
  response.body = DumpJson({{"count", tokens->size()},
                            {"max_model_len", MaxContext(context)},
                            {"tokens", *tokens},
                            {"token_strs", nullptr}});
  return response;
}

StatusOr<HttpResponse> Detokenize(const HandlerContext& context,
                                  std::string_view body) {
  SLUICE_ASSIGN_OR_RETURN(
      const DetokenizeRequest request,
      ParseDetokenizeRequest(body, context.model.vocab_size));
  SLUICE_RETURN_IF_ERROR(CheckModel(context.model, request.model));
  SLUICE_ASSIGN_OR_RETURN(
      const std::string prompt,
      context.model.text->Decode(request.tokens, /*skip_special=*/false));
  HttpResponse response;
  response.body = DumpJson({{"prompt", prompt}});
  return response;
}

}  // namespace

void AddTokenizeHandlers(Router& router, const HandlerContext& context) {
  router.Add("POST", "/tokenize", [context](std::shared_ptr<Exchange> on) {
    AnswerOffLoop(
        context,
        [context](std::string_view body) { return Tokenize(context, body); },
        std::move(on));
  });
  router.Add("POST", "/detokenize", [context](std::shared_ptr<Exchange> on) {
    AnswerOffLoop(
        context,
        [context](std::string_view body) { return Detokenize(context, body); },
        std::move(on));
  });
}

}  // namespace sluice::gateway
