#ifndef SLUICE_SERVICES_GATEWAY_DOORS_H_
#define SLUICE_SERVICES_GATEWAY_DOORS_H_

#include <memory>
#include <optional>
#include <utility>

#include "common/base/status.h"
#include "common/http/api_keys.h"
#include "common/http/browser_guard.h"
#include "common/http/cors.h"
#include "common/http/trusted_proxies.h"
#include "services/gateway/gateway_server.h"

namespace sluice::gateway {

// Returns whether requests need an API key.
bool AskForKeys(const GatewayOptions& options);

// Access to the gateway: the rules for browsers' pages, then the API keys. Any
// thread.
class Doors {
 public:
  // INVALID_ARGUMENT for wrong options, and for a listener beyond this machine
  // without keys unless `open` is set.
  static StatusOr<std::unique_ptr<Doors>> Open(const GatewayOptions& options);

  // See HttpServerOptions::screen.
  std::optional<http::HttpResponse> Screen(http::HttpRequest& request) const;
  bool asks_for_keys() const { return keys_ != nullptr; }
  const http::CorsPolicy& cors() const { return cors_; }
  const http::TrustedProxies& proxies() const { return proxies_; }

 private:
  Doors(http::CorsPolicy cors, http::TrustedProxies proxies,
        http::BrowserGuard guard, std::unique_ptr<http::ApiKeys> keys)
      : cors_(std::move(cors)),
        proxies_(std::move(proxies)),
        guard_(std::move(guard)),
        keys_(std::move(keys)) {}

  const http::CorsPolicy cors_;
  const http::TrustedProxies proxies_;
  const http::BrowserGuard guard_;
  const std::unique_ptr<http::ApiKeys> keys_;  // null: no request needs one
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_DOORS_H_
