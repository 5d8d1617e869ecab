#ifndef SLUICE_COMMON_HTTP_BROWSER_GUARD_H_
#define SLUICE_COMMON_HTTP_BROWSER_GUARD_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/http/cors.h"
#include "common/http/message.h"

namespace sluice::http {

// Refuses requests that a browser sends for another site's page: a Host that is
// not ours (DNS rebinding: 421), a foreign or "null" Origin (403), and a POST
// with an Origin whose body is not declared as JSON (415), because browsers
// send those without a preflight. Immutable; any thread.
class BrowserGuard {
 public:
  struct Options {
    // Whether Host must be ours: localhost, an IP address, a name of this
    // machine inside its containers (host.docker.internal), or one of these.
    // Not needed where every request brings an API key.
    bool check_host = true;
    // Names without a port; ".example.com" stands for all names below it, "*"
    // for any name.
    std::vector<std::string> allowed_hosts;
    CorsPolicy cors;
  };

  // INVALID_ARGUMENT names an allowed host that is no name.
  static StatusOr<BrowserGuard> Create(Options options);

  // The answer that refuses `request`, nothing if it may go on.
  std::optional<HttpResponse> Screen(const HttpRequest& request) const;

 private:
  explicit BrowserGuard(Options options) : options_(std::move(options)) {}
  bool IsOurs(std::string_view host) const;

  Options options_;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_BROWSER_GUARD_H_
