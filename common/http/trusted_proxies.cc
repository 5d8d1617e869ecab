#include "common/http/trusted_proxies.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <utility>

#include "common/http/authority.h"

namespace sluice::http {
namespace {

// The addresses that a header tells, the nearest proxy's last; nothing in the
// place of one that is hidden or malformed. Empty elements of a list are none
// (RFC 9110, section 5.6.1.2).
using Hops = std::vector<std::optional<IpAddress>>;

std::string_view Trimmed(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

bool IsTokenChar(char c) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || kOthers.find(c) != kOthers.npos;
}

// An address with or without a port, or a hidden one (":_name"). An address of
// IPv6 has brackets.
std::optional<IpAddress> AddressOf(std::string_view node) {
  const size_t hidden = std::min(node.find(":_"), node.size());
  const std::string_view port = node.substr(hidden);
  if (std::all_of(port.begin(), port.end(),
                  [](char c) { return c == ':' || IsTokenChar(c); })) {
    node.remove_suffix(port.size());
  }
  const auto authority = ParseAuthority(node);
  return authority ? authority->address : std::nullopt;
}

void AddForwardedFor(std::string_view value, Hops& hops) {
  while (true) {
    const size_t comma = value.find(',');
    const std::string_view node = Trimmed(value.substr(0, comma));
    // Without a port IPv6 is mostly written without brackets.
    const auto bare = IpAddress::Parse(node);
    if (!node.empty()) hops.push_back(bare ? bare : AddressOf(node));
    if (comma == value.npos) return;
    value.remove_prefix(comma + 1);
  }
}

// Reads the value of a header Forwarded.
class ForwardedParser {
 public:
  explicit ForwardedParser(std::string_view text) : text_(text) {}

  // False for text that the grammar does not have: where its elements end is
  // not known then.
  bool AddTo(Hops& hops) {
    while (true) {
      std::optional<IpAddress> hop;
      bool is_empty = true;
      if (!Element(hop, is_empty)) return false;
      if (!is_empty) hops.push_back(hop);
      if (at_ == text_.size()) return true;
      ++at_;  // the comma
    }
  }

 private:
  // "for=192.0.2.1;proto=https", up to a comma or the end. `hop` stays empty
  // without an address.
  bool Element(std::optional<IpAddress>& hop, bool& is_empty) {
    bool has_for = false;
    while (true) {
      SkipSpace();
      if (AtEndOf(",")) return true;
      is_empty = false;
      if (Take(';')) continue;
      const std::string name = AsciiLower(Token());
      std::string value;
      if (name.empty() || !Take('=') || !Value(value)) return false;
      if (name == "for") {
        if (std::exchange(has_for, true)) return false;
        hop = AddressOf(value);
      }
      SkipSpace();
      if (AtEndOf(",")) return true;
      if (!Take(';')) return false;
    }
  }

  bool Value(std::string& value) {
    if (!Take('"')) {
      value = Token();
      return !value.empty();
    }
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') return true;
      if (c == '\\') {
        if (at_ == text_.size()) return false;
        value += text_[at_++];
      } else {
        value += c;
      }
    }
    return false;
  }

  std::string Token() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsTokenChar(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  bool AtEndOf(std::string_view ends) const {
    return at_ == text_.size() || ends.find(text_[at_]) != ends.npos;
  }
  bool Take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

// The hops of all headers `name`, which a proxy may write in lines of its own.
Hops HopsOf(const HttpHeaders& headers, std::string_view name) {
  Hops hops;
  for (const auto& [header, value] : headers) {
    if (header != name) continue;
    if (name == "x-forwarded-for") {
      AddForwardedFor(value, hops);
    } else if (!ForwardedParser(value).AddTo(hops)) {
      hops.emplace_back();  // nothing before it is believed
    }
  }
  return hops;
}

}  // namespace

StatusOr<TrustedProxies> TrustedProxies::Parse(
    const std::vector<std::string>& networks) {
  TrustedProxies proxies;
  for (const std::string& text : networks) {
    SLUICE_ASSIGN_OR_RETURN(IpNetwork network, IpNetwork::Parse(text));
    proxies.networks_.push_back(network);
  }
  return proxies;
}

bool TrustedProxies::Trusts(const IpAddress& address) const {
  return std::ranges::any_of(networks_, [&](const IpNetwork& network) {
    return network.Contains(address);
  });
}

std::string TrustedProxies::ClientOf(const HttpHeaders& headers,
                                     std::string_view peer) const {
  if (networks_.empty()) return std::string(peer);
  const auto own = IpAddress::Parse(peer.substr(0, peer.find('%')));
  if (!own || !Trusts(*own)) return std::string(peer);
  std::optional<IpAddress> client;
  for (const char* name : {"forwarded", "x-forwarded-for"}) {
    const Hops hops = HopsOf(headers, name);
    if (hops.empty()) continue;
    // Where all are proxies, one of them asks for itself.
    std::optional<IpAddress> told = hops.front();
    const auto last =
        std::find_if(hops.rbegin(), hops.rend(),
                     [this](const auto& hop) { return !hop || !Trusts(*hop); });
    if (last != hops.rend()) told = *last;
    if (!told || (client && *client != *told)) return std::string(peer);
    client = told;
  }
  return client ? client->ToString() : std::string(peer);
}

}  // namespace sluice::http
