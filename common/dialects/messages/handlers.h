#ifndef SLUICE_COMMON_DIALECTS_MESSAGES_HANDLERS_H_
#define SLUICE_COMMON_DIALECTS_MESSAGES_HANDLERS_H_

#include <memory>
#include <string_view>

#include "common/dialects/messages/errors.h"
#include "common/dialects/messages/known_fields.h"
#include "common/http/router.h"
#include "common/serving/context.h"
#include "common/serving/dialect.h"

namespace sluice::messages {

inline constexpr std::string_view kMessagesPath = "/v1/messages";
inline constexpr std::string_view kCountPath = "/v1/messages/count_tokens";

void RunMessages(const serving::ServingContext& context,
                 std::shared_ptr<http::Exchange> exchange);
// Adds kCountPath.
void AddCountHandler(http::Router& router,
                     const serving::ServingContext& context);

inline constexpr serving::Endpoint kEndpoints[] = {
    {kMessagesPath, RunMessages}};

// Anthropic's Messages.
inline constexpr serving::Dialect kDialect = {
    kEndpoints,
    AddCountHandler,
    IsSpoken,
    IsPlainBody,
    {WriteError, WriteStreamError, AddHeaders}};

}  // namespace sluice::messages

#endif  // SLUICE_COMMON_DIALECTS_MESSAGES_HANDLERS_H_
