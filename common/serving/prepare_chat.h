#ifndef SLUICE_COMMON_SERVING_PREPARE_CHAT_H_
#define SLUICE_COMMON_SERVING_PREPARE_CHAT_H_

#include <functional>
#include <memory>
#include <string_view>

#include "common/base/status.h"
#include "common/http/message.h"
#include "common/serving/answer_format.h"
#include "common/serving/context.h"
#include "common/serving/prepared_request.h"
#include "common/serving/request.h"

namespace sluice::serving {

// What an endpoint adds to a chat.
struct ChatEndpoint {
  std::string_view path;
  std::string_view id_prefix;       // of the answer's id
  std::string_view call_id_prefix;  // of the calls' ids
  // Returns the writer of the answer; `text` outlives it.
  std::function<std::unique_ptr<AnswerFormat>(const ModelText& text,
                                              AnswerInfo info)>
      make_format;
};

// Returns the prompt of `request` as the chat template renders it, at `now`
// (Unix time). INVALID_ARGUMENT (context_length_exceeded, request_too_large)
// names the field. For endpoints that count tokens, too.
StatusOr<std::vector<TokenId>> EncodeChatPrompt(
    const ServingContext& context, const ChatRequest& request, int64_t now,
    std::optional<TimePoint> deadline);

// Returns the request for the engine: renders the messages, limits the answer,
// finds its grammar and the parsers of its calls. INVALID_ARGUMENT names the
// field, in the names of `request.fields`; NOT_FOUND for another model. Takes
// as long as the template and the tokenizer: off the loop for large bodies.
StatusOr<PreparedRequest> PrepareChat(const ServingContext& context,
                                      const http::HttpRequest& http,
                                      const ChatRequest& request,
                                      const ChatEndpoint& endpoint);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_PREPARE_CHAT_H_
