#ifndef SLUICE_COMMON_DIALECTS_RESPONSES_HANDLERS_H_
#define SLUICE_COMMON_DIALECTS_RESPONSES_HANDLERS_H_

#include <memory>
#include <string_view>

#include "common/dialects/responses/answer.h"
#include "common/dialects/responses/request.h"
#include "common/http/router.h"
#include "common/serving/context.h"
#include "common/serving/dialect.h"

namespace sluice::responses {

inline constexpr std::string_view kPath = "/v1/responses";

void RunResponse(const serving::ServingContext& context,
                 std::shared_ptr<http::Exchange> exchange);

// Adds /v1/responses/input_tokens, and the paths of responses that are kept.
void AddOtherHandlers(http::Router& router,
                      const serving::ServingContext& context);

bool IsSpoken(const http::HttpRequest& request);

inline constexpr serving::Endpoint kEndpoints[] = {{kPath, RunResponse}};

// OpenAI's Responses. Errors before a stream are those of OpenAI's other
// endpoints.
inline constexpr serving::Dialect kDialect = {
    kEndpoints,
    AddOtherHandlers,
    IsSpoken,
    IsPlainBody,
    {http::PlainError, StreamError, http::AddPlainHeaders}};

}  // namespace sluice::responses

#endif  // SLUICE_COMMON_DIALECTS_RESPONSES_HANDLERS_H_
