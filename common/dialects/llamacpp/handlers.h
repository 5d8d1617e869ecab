#ifndef SLUICE_COMMON_DIALECTS_LLAMACPP_HANDLERS_H_
#define SLUICE_COMMON_DIALECTS_LLAMACPP_HANDLERS_H_

#include <memory>
#include <string_view>

#include "common/dialects/llamacpp/errors.h"
#include "common/dialects/llamacpp/known_fields.h"
#include "common/http/exchange.h"
#include "common/serving/context.h"
#include "common/serving/dialect.h"

namespace sluice::llamacpp {

inline constexpr std::string_view kCompletionPath = "/completion";
inline constexpr std::string_view kInfillPath = "/infill";

void RunCompletion(const serving::ServingContext& context,
                   std::shared_ptr<http::Exchange> exchange);
void RunInfill(const serving::ServingContext& context,
               std::shared_ptr<http::Exchange> exchange);

// /completions is the older name of /completion.
inline constexpr serving::Endpoint kEndpoints[] = {
    {kCompletionPath, RunCompletion},
    {"/completions", RunCompletion},
    {kInfillPath, RunInfill}};

// Clients speak it on its own paths alone.
inline constexpr serving::Dialect kDialect = {
    kEndpoints,
    nullptr,
    IsSpoken,
    IsPlainBody,
    {ErrorAnswer, StreamError, AddHeaders}};

}  // namespace sluice::llamacpp

#endif  // SLUICE_COMMON_DIALECTS_LLAMACPP_HANDLERS_H_
