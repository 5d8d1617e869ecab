#ifndef SLUICE_COMMON_HTTP_IP_ADDRESS_H_
#define SLUICE_COMMON_HTTP_IP_ADDRESS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace sluice::http {

// An IP address. An IPv4 address and its IPv4-mapped IPv6 form are equal.
class IpAddress {
 public:
  // An address as text: without a port, brackets or a zone, and no other
  // spelling of numbers than the usual. Nothing for other text.
  static std::optional<IpAddress> Parse(std::string_view text);

  bool is_v4() const;
  bool is_loopback() const;  // 127.0.0.0/8 or ::1
  std::string ToString() const;

  friend bool operator==(const IpAddress&, const IpAddress&) = default;

 private:
  friend class IpNetwork;
  // Of IPv6, network order.
  std::array<uint8_t, 16> bytes_{};
};

// The addresses that share their first bits: "10.0.0.0/8", "2001:db8::/32"; an
// address alone is a network of one.
class IpNetwork {
 public:
  // INVALID_ARGUMENT says why `text` is no network.
  static StatusOr<IpNetwork> Parse(std::string_view text);

  bool Contains(const IpAddress& address) const;

 private:
  IpAddress address_;
  int bits_ = 128;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_IP_ADDRESS_H_
