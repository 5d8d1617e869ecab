#include "common/http/ip_address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace sluice::http {
namespace {

constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0,    0,
                                             0, 0, 0, 0, 0xff, 0xff};
constexpr int kMappedBits = 96;

}  // namespace

std::optional<IpAddress> IpAddress::Parse(std::string_view text) {
  // A zero byte would end the text early.
  if (text.find('\0') != text.npos) return std::nullopt;
  const std::string terminated(text);
  IpAddress address;
  if (::inet_pton(AF_INET6, terminated.c_str(), address.bytes_.data()) == 1) {
    return address;
  }
  std::copy(kMapped.begin(), kMapped.end(), address.bytes_.begin());
  if (::inet_pton(AF_INET, terminated.c_str(), address.bytes_.data() + 12) ==
      1) {
    return address;
  }
  return std::nullopt;
}

bool IpAddress::is_v4() const {
  return std::equal(kMapped.begin(), kMapped.end(), bytes_.begin());
}

bool IpAddress::is_loopback() const {
  if (is_v4()) return bytes_[12] == 127;
  return bytes_ == Parse("::1")->bytes_;
}

std::string IpAddress::ToString() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_v4()) {
    ::inet_ntop(AF_INET, bytes_.data() + 12, text, sizeof(text));
  } else {
    ::inet_ntop(AF_INET6, bytes_.data(), text, sizeof(text));
  }
  return text;
}

StatusOr<IpNetwork> IpNetwork::Parse(std::string_view text) {
  const size_t slash = text.find('/');
  const auto address = IpAddress::Parse(text.substr(0, slash));
  if (!address) {
    return InvalidArgument("'", text, "' is neither an IP address nor a ",
                           "network as 10.0.0.0/8");
  }
  IpNetwork network;
  network.address_ = *address;
  if (slash == text.npos) return network;
  // "::ffff:10.0.0.0/104" counts the bits of the longer form.
  const bool short_form =
      address->is_v4() && text.substr(0, slash).find(':') == text.npos;
  const int most = short_form ? 32 : 128;
  const std::string_view bits = text.substr(slash + 1);
  const auto parsed =
      std::from_chars(bits.data(), bits.data() + bits.size(), network.bits_);
  if (bits.empty() || parsed.ec != std::errc() ||
      parsed.ptr != bits.data() + bits.size() || network.bits_ < 0 ||
      network.bits_ > most) {
    return InvalidArgument("'", text, "': a network has 0 to ", most,
                           " bits, got '", bits, "'");
  }
  if (short_form) network.bits_ += kMappedBits;
  return network;
}

bool IpNetwork::Contains(const IpAddress& address) const {
  // "::/0" are all of IPv6, and none of IPv4.
  const bool v4 = address_.is_v4() && bits_ >= kMappedBits;
  if (address.is_v4() != v4) return false;
  const auto whole = static_cast<size_t>(bits_ / 8);
  if (!std::equal(address_.bytes_.begin(), address_.bytes_.begin() + whole,
                  address.bytes_.begin())) {
    return false;
  }
  const int rest = bits_ % 8;
  if (rest == 0) return true;
  const int differing = address_.bytes_[whole] ^ address.bytes_[whole];
  return differing >> (8 - rest) == 0;
}

}  // namespace sluice::http
