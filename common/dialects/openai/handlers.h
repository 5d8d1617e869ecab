#ifndef SLUICE_COMMON_DIALECTS_OPENAI_HANDLERS_H_
#define SLUICE_COMMON_DIALECTS_OPENAI_HANDLERS_H_

#include <memory>
#include <span>
#include <string_view>

#include "common/http/router.h"
#include "common/serving/context.h"
#include "common/serving/endpoint.h"

namespace sluice::openai {

inline constexpr std::string_view kChatPath = "/v1/chat/completions";
inline constexpr std::string_view kCompletionsPath = "/v1/completions";

void RunChat(const serving::ServingContext& context,
             std::shared_ptr<http::Exchange> exchange);
void RunCompletion(const serving::ServingContext& context,
                   std::shared_ptr<http::Exchange> exchange);

// Returns both.
std::span<const serving::Endpoint> Endpoints();

// Adds /tokenize, /detokenize and /tokenizer_info.
void AddTokenizeHandlers(http::Router& router,
                         const serving::ServingContext& context);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_DIALECTS_OPENAI_HANDLERS_H_
