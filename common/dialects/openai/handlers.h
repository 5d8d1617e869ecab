#ifndef SLUICE_COMMON_DIALECTS_OPENAI_HANDLERS_H_
#define SLUICE_COMMON_DIALECTS_OPENAI_HANDLERS_H_

#include <memory>
#include <string_view>

#include "common/dialects/openai/plain_body.h"
#include "common/http/router.h"
#include "common/serving/context.h"
#include "common/serving/dialect.h"

namespace sluice::openai {

inline constexpr std::string_view kChatPath = "/v1/chat/completions";
inline constexpr std::string_view kCompletionsPath = "/v1/completions";

void RunChat(const serving::ServingContext& context,
             std::shared_ptr<http::Exchange> exchange);
void RunCompletion(const serving::ServingContext& context,
                   std::shared_ptr<http::Exchange> exchange);

// Adds /tokenize, /detokenize, /tokenizer_info and /apply-template.
void AddTokenizeHandlers(http::Router& router,
                         const serving::ServingContext& context);

// Adds /v1/embeddings.
void AddEmbeddingsHandler(http::Router& router,
                          const serving::ServingContext& context);

inline constexpr serving::Endpoint kEndpoints[] = {
    {kChatPath, RunChat},
    {kCompletionsPath, RunCompletion},
    {"/chat/completions", RunChat}};  // as llama.cpp; its answers are the same

// What clients speak that show no other dialect: the errors are those of a
// server without dialects.
inline constexpr serving::Dialect kDialect = {
    kEndpoints,
    [](http::Router& router, const serving::ServingContext& context) {
      AddTokenizeHandlers(router, context);
      AddEmbeddingsHandler(router, context);
    },
    nullptr,
    IsPlainBody,
    {}};

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_DIALECTS_OPENAI_HANDLERS_H_
