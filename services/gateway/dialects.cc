#include "services/gateway/dialects.h"

#include "common/dialects/llamacpp/handlers.h"
#include "common/dialects/messages/handlers.h"
#include "common/dialects/ollama/handlers.h"
#include "common/dialects/openai/handlers.h"
#include "common/dialects/responses/handlers.h"
#include "common/serving/dialect.h"
#include "common/serving/resumed_streams.h"

namespace sluice::gateway {
namespace {

// The last is the default. Messages, which a header tells, too, comes behind
// those that a path alone tells.
constexpr serving::Dialect kDialects[] = {llamacpp::kDialect, ollama::kDialect,
                                          responses::kDialect,
                                          messages::kDialect, openai::kDialect};

}  // namespace

void AddDialects(http::Router& router, const serving::ServingContext& context) {
  serving::AddDialects(kDialects, router, context);
  serving::AddStreamsHandler(kDialects, router, context);
}

const serving::Endpoint* FindEndpoint(std::string_view path) {
  return serving::FindEndpoint(kDialects, path);
}

http::ClientFormat FormatOf(const http::HttpRequest& request) {
  return serving::DialectOf(kDialects, request).format;
}

bool IsPlainRequest(const http::HttpRequest& request) {
  // Its body is in the journal of the gateway that leads.
  if (request.path.starts_with(serving::kStreamsPath)) return false;
  return serving::DialectOf(kDialects, request).is_plain(request.body);
}

}  // namespace sluice::gateway
