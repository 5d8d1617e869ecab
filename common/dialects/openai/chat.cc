#include <utility>

#include "common/dialects/openai/answer.h"
#include "common/dialects/openai/handlers.h"
#include "common/dialects/openai/parse.h"
#include "common/serving/prepare.h"
#include "common/serving/prepare_chat.h"
#include "common/serving/served_model.h"

namespace sluice::openai {
namespace {

StatusOr<serving::PreparedRequest> PrepareChat(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  SLUICE_ASSIGN_OR_RETURN(const serving::ChatRequest request,
                          ParseChatRequest(http.body, context.model.vocab_size,
                                           context.strict_fields));
  return serving::PrepareChat(
      context, http, request,
      {kChatPath, "chatcmpl-", "call_", MakeChatFormat});
}

}  // namespace

void RunChat(const serving::ServingContext& context,
             std::shared_ptr<http::Exchange> exchange) {
  serving::PrepareAndRun(context, PrepareChat, std::move(exchange));
}

}  // namespace sluice::openai
