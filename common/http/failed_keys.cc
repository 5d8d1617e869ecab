#include "common/http/failed_keys.h"

#include <arpa/inet.h>

#include <algorithm>

#include "common/base/cat.h"

namespace sluice::http {
namespace {

constexpr double kBurst = 20;
constexpr double kPerSecond = 1;
constexpr size_t kMaxPeers = 4096;
constexpr size_t kMaxGoodKeys = 1024;

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

bool FailedKeys::MayTry(std::string_view peer, uint64_t key, TimePoint now) {
  MutexLock lock(mutex_);
  const Peer& found = Find(peer, now);
  return found.failures >= 1 || std::find(found.good.begin(), found.good.end(),
                                          key) != found.good.end();
}

void FailedKeys::OnSuccess(std::string_view peer, uint64_t key, TimePoint now) {
  MutexLock lock(mutex_);
  std::vector<uint64_t>& good = Find(peer, now).good;
  if (std::find(good.begin(), good.end(), key) != good.end()) return;
  if (good.size() >= kMaxGoodKeys) good.erase(good.begin());
  good.push_back(key);
}

void FailedKeys::OnFailure(std::string_view peer, TimePoint now) {
  MutexLock lock(mutex_);
  Peer& found = Find(peer, now);
  found.failures = std::max(0.0, found.failures - 1);
}

FailedKeys::Peer& FailedKeys::Find(std::string_view peer, TimePoint now) {
  const std::string client = ClientOfAddress(peer);
  if (const auto known = by_client_.find(client); known != by_client_.end()) {
    peers_.splice(peers_.begin(), peers_, known->second);
  } else {
    if (peers_.size() >= kMaxPeers) {
      by_client_.erase(peers_.back().client);
      peers_.pop_back();
    }
    peers_.push_front({client, kBurst, now, {}});
    by_client_.emplace(peers_.front().client, peers_.begin());
  }
  Peer& found = peers_.front();
  found.failures = std::min(
      kBurst, found.failures + kPerSecond * Seconds(now - found.as_of));
  found.as_of = now;
  return found;
}

}  // namespace sluice::http
