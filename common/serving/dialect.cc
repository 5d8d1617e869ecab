#include "common/serving/dialect.h"

#include <memory>
#include <utility>

namespace sluice::serving {
namespace {

bool IsSpoken(const Dialect& dialect, const http::HttpRequest& request) {
  if (!request.resumed_path.empty()) {
    return FindEndpoint({&dialect, 1}, request.resumed_path) != nullptr;
  }
  return dialect.is_spoken == nullptr || dialect.is_spoken(request);
}

}  // namespace

void AddDialects(std::span<const Dialect> dialects, http::Router& router,
                 const ServingContext& context) {
  for (const Dialect& dialect : dialects) {
    for (const Endpoint& endpoint : dialect.endpoints) {
      router.Add("POST", endpoint.path,
                 [context, endpoint](std::shared_ptr<http::Exchange> exchange) {
                   endpoint.run(context, std::move(exchange));
                 });
    }
    if (dialect.add_others != nullptr) dialect.add_others(router, context);
  }
}

const Endpoint* FindEndpoint(std::span<const Dialect> dialects,
                             std::string_view path) {
  for (const Dialect& dialect : dialects) {
    for (const Endpoint& endpoint : dialect.endpoints) {
      if (endpoint.path == path) return &endpoint;
    }
  }
  return nullptr;
}

const Dialect& DialectOf(std::span<const Dialect> dialects,
                         const http::HttpRequest& request) {
  for (const Dialect& dialect : dialects) {
    if (FindEndpoint({&dialect, 1}, request.path) != nullptr) return dialect;
  }
  for (const Dialect& dialect : dialects) {
    if (IsSpoken(dialect, request)) return dialect;
  }
  return dialects.back();
}

}  // namespace sluice::serving
