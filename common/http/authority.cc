#include "common/http/authority.h"

#include <algorithm>
#include <charconv>

#include "common/http/message.h"

namespace sluice::http {
namespace {

constexpr int kMaxPort = 65535;

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

// ":port", ":" or nothing.
bool IsPort(std::string_view text) {
  if (text.empty()) return true;
  if (text.front() != ':') return false;
  text.remove_prefix(1);
  if (text.empty()) return true;
  if (text.front() < '0' || text.front() > '9') return false;
  int port = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, port);
  return parsed.ec == std::errc() && parsed.ptr == end && port <= kMaxPort;
}

}  // namespace

std::optional<Authority> ParseAuthority(std::string_view text) {
  Authority authority;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == text.npos || !IsPort(text.substr(end + 1))) return std::nullopt;
    const std::string_view inside = text.substr(1, end - 1);
    if (inside.find(':') == inside.npos) return std::nullopt;
    authority.address = IpAddress::Parse(inside);
    if (!authority.address) return std::nullopt;
    return authority;
  }
  const size_t colon = std::min(text.find(':'), text.size());
  if (colon == 0 || !IsPort(text.substr(colon))) return std::nullopt;
  authority.name = AsciiLower(text.substr(0, colon));
  if (!std::all_of(authority.name.begin(), authority.name.end(), IsNameChar)) {
    return std::nullopt;
  }
  authority.address = IpAddress::Parse(authority.name);
  if (authority.address) authority.name.clear();
  return authority;
}

bool IsLoopback(const Authority& authority) {
  if (authority.address) return authority.address->is_loopback();
  return authority.name == "localhost" ||
         authority.name.ends_with(".localhost");
}

}  // namespace sluice::http
