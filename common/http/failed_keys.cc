#include "common/http/failed_keys.h"

#include <arpa/inet.h>

#include <algorithm>

#include "common/base/cat.h"

namespace sluice::http {
namespace {

constexpr auto kWindow = std::chrono::seconds(10);
constexpr size_t kMaxPeers = 4096;

}  // namespace

std::string ClientOfAddress(std::string_view address) {
  const std::string text(address.substr(0, address.find('%')));
  in6_addr v6{};
  if (::inet_pton(AF_INET6, text.c_str(), &v6) != 1) return text;
  char out[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&v6)) {
    ::inet_ntop(AF_INET, &v6.s6_addr[12], out, sizeof(out));
    return out;
  }
  std::fill(v6.s6_addr + 8, v6.s6_addr + 16, uint8_t{0});
  ::inet_ntop(AF_INET6, &v6, out, sizeof(out));
  return Cat(out, "/64");
}

Duration FailedKeys::OnFailure(std::string_view peer, TimePoint now) {
  MutexLock lock(mutex_);
  Peer& found = Find(peer);
  TimePoint& oldest = found.times[found.count % kMost];
  if (found.count >= kMost && oldest + kWindow > now) {
    return oldest + kWindow - now;
  }
  oldest = now;
  ++found.count;
  return Duration::zero();
}

FailedKeys::Peer& FailedKeys::Find(std::string_view peer) {
  const std::string client = ClientOfAddress(peer);
  if (const auto known = by_client_.find(client); known != by_client_.end()) {
    peers_.splice(peers_.begin(), peers_, known->second);
  } else {
    if (peers_.size() >= kMaxPeers) {
      by_client_.erase(peers_.back().client);
      peers_.pop_back();
    }
    peers_.emplace_front().client = client;
    by_client_.emplace(peers_.front().client, peers_.begin());
  }
  return peers_.front();
}

}  // namespace sluice::http
