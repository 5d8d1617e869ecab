#ifndef SLUICE_COMMON_HTTP_AUTHORITY_H_
#define SLUICE_COMMON_HTTP_AUTHORITY_H_

#include <optional>
#include <string>
#include <string_view>

#include "common/http/ip_address.h"

namespace sluice::http {

// The host of "host[:port]" as Host and an origin have it.
struct Authority {
  std::string name;                  // in lower case; without an address's
  std::optional<IpAddress> address;  // of a host that is an IP address
};

// Reads `text` to its end. Nothing for text that is no authority: user info, a
// port that is no number, bytes behind an IPv6 address's bracket, a host of
// characters that a name does not have.
std::optional<Authority> ParseAuthority(std::string_view text);

// Whether only the machine itself has the host's address: 127.0.0.0/8, ::1,
// localhost and the names below it (RFC 6761, section 6.3).
bool IsLoopback(const Authority& authority);

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_AUTHORITY_H_
