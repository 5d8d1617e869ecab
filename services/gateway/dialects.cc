#include "services/gateway/dialects.h"

#include <memory>
#include <span>
#include <utility>

#include "common/dialects/openai/handlers.h"

namespace sluice::gateway {
namespace {

struct Dialect {
  std::span<const serving::Endpoint> (*endpoints)();
  // Adds the other routes; null: none.
  void (*add_others)(http::Router& router,
                     const serving::ServingContext& context);
};
constexpr Dialect kDialects[] = {
    {openai::Endpoints, openai::AddTokenizeHandlers},
};

}  // namespace

void AddDialects(http::Router& router, const serving::ServingContext& context) {
  for (const Dialect& dialect : kDialects) {
    for (const serving::Endpoint& endpoint : dialect.endpoints()) {
      router.Add("POST", endpoint.path,
                 [context, endpoint](std::shared_ptr<http::Exchange> exchange) {
                   endpoint.Run(context, std::move(exchange));
                 });
    }
    if (dialect.add_others != nullptr) dialect.add_others(router, context);
  }
}

const serving::Endpoint* FindEndpoint(std::string_view path) {
  for (const Dialect& dialect : kDialects) {
    for (const serving::Endpoint& endpoint : dialect.endpoints()) {
      if (endpoint.path == path) return &endpoint;
    }
  }
  return nullptr;
}

}  // namespace sluice::gateway
