#ifndef SLUICE_COMMON_HTTP_TRUSTED_PROXIES_H_
#define SLUICE_COMMON_HTTP_TRUSTED_PROXIES_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/http/ip_address.h"
#include "common/http/message.h"

namespace sluice::http {

// The proxies in front of a server that are believed when they say whose
// request they pass on. Immutable; any thread.
class TrustedProxies {
 public:
  TrustedProxies() = default;  // none: every peer is the client

  // `networks`: IP addresses and networks as 10.0.0.0/8. INVALID_ARGUMENT names
  // the text that is neither.
  static StatusOr<TrustedProxies> Parse(
      const std::vector<std::string>& networks);

  // Returns the client's address of a request that came from the address
  // `peer`. Behind a trusted proxy the client has the rightmost address of
  // Forwarded (RFC 7239) or X-Forwarded-For that no trusted proxy has. `peer`
  // is the client where the headers hide or misspell that address, and where
  // they tell different addresses: a proxy writes one header, and passes the
  // other header on as the client sent it.
  std::string ClientOf(const HttpHeaders& headers, std::string_view peer) const;

 private:
  bool Trusts(const IpAddress& address) const;

  std::vector<IpNetwork> networks_;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_TRUSTED_PROXIES_H_
