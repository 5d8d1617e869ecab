#include <optional>
#include <utility>

#include "common/base/json.h"
#include "common/dialects/messages/answer.h"
#include "common/dialects/messages/handlers.h"
#include "common/dialects/messages/parse.h"
#include "common/serving/answer_start.h"
#include "common/serving/prepare.h"
#include "common/serving/prepare_chat.h"
#include "common/serving/served_model.h"

namespace sluice::messages {
namespace {

StatusOr<serving::PreparedRequest> Prepare(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  SLUICE_ASSIGN_OR_RETURN(
      const MessagesRequest request,
      ParseMessagesRequest(http.body, {.vocab_size = context.model.vocab_size,
                                       .strict = context.strict_fields}));
  MessageFormat* format = nullptr;
  const auto make_format = [&](const serving::ModelText&,
                               serving::AnswerInfo info) {
    if (!request.model.empty()) info.model = request.model;
    auto made = std::make_unique<MessageFormat>(
        info, MessageFormat::Options{http.request_id, request.omits_thinking});
    format = made.get();
    return made;
  };
  SLUICE_ASSIGN_OR_RETURN(
      serving::PreparedRequest prepared,
      serving::PrepareChat(context, http, request.chat,
                           {kMessagesPath, "msg_", "toolu_", make_format}));
  const int64_t most = prepared.choices.front().generate.max_tokens;
  if (most < *request.chat.fields.max_tokens) format->set_limit_is_context();
  return prepared;
}

StatusOr<http::HttpResponse> Count(const serving::ServingContext& context,
                                   const http::HttpRequest& http) {
  SLUICE_ASSIGN_OR_RETURN(
      const MessagesRequest request,
      ParseMessagesRequest(http.body, {.vocab_size = context.model.vocab_size,
                                       .strict = context.strict_fields,
                                       .counts = true}));
  SLUICE_RETURN_IF_ERROR(
      serving::CheckHistory(*request.chat.fields.names, request.chat.messages,
                            request.chat.tools.tools, context.limits));
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<TokenId> prompt,
      serving::EncodeChatPrompt(context, request.chat, serving::UnixSeconds(),
                                std::nullopt));
  http::HttpResponse response;
  response.body = DumpJson({{"input_tokens", prompt.size()}});
  return response;
}

}  // namespace

void RunMessages(const serving::ServingContext& context,
                 std::shared_ptr<http::Exchange> exchange) {
  serving::PrepareAndRun(context, Prepare, std::move(exchange));
}

void AddCountHandler(http::Router& router,
                     const serving::ServingContext& context) {
  router.Add("POST", kCountPath, [context](std::shared_ptr<http::Exchange> on) {
    serving::AnswerOffLoop(context, Count, std::move(on));
  });
}

}  // namespace sluice::messages
