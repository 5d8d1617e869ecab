#ifndef SLUICE_COMMON_DIALECTS_OLLAMA_HANDLERS_H_
#define SLUICE_COMMON_DIALECTS_OLLAMA_HANDLERS_H_

#include <memory>
#include <string_view>

#include "common/dialects/ollama/answer.h"
#include "common/dialects/ollama/fields.h"
#include "common/http/router.h"
#include "common/serving/context.h"
#include "common/serving/dialect.h"

namespace sluice::ollama {

inline constexpr std::string_view kChatPath = "/api/chat";
inline constexpr std::string_view kGeneratePath = "/api/generate";

void RunChat(const serving::ServingContext& context,
             std::shared_ptr<http::Exchange> exchange);
void RunGenerate(const serving::ServingContext& context,
                 std::shared_ptr<http::Exchange> exchange);

// Adds the paths that tell of the model.
void AddOthers(http::Router& router, const serving::ServingContext& context);

// Adds /api/embed and /api/embeddings.
void AddEmbedHandlers(http::Router& router,
                      const serving::ServingContext& context);

// Below /api.
bool IsSpoken(const http::HttpRequest& request);

inline constexpr serving::Endpoint kEndpoints[] = {
    {kChatPath, RunChat}, {kGeneratePath, RunGenerate}};

inline constexpr serving::Dialect kDialect = {
    kEndpoints,
    AddOthers,
    IsSpoken,
    IsPlainBody,
    {ErrorAnswer, StreamError,
     [](const http::HttpRequest&, Duration, http::HttpHeaders&) {}}};

}  // namespace sluice::ollama

#endif  // SLUICE_COMMON_DIALECTS_OLLAMA_HANDLERS_H_
