#ifndef SLUICE_COMMON_HTTP_FAILED_KEYS_H_
#define SLUICE_COMMON_HTTP_FAILED_KEYS_H_

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace sluice::http {

// The client of an IP address: the first 64 bits of an IPv6 address (one host
// or network), else the address.
std::string ClientOfAddress(std::string_view address);

// Slows down the guessing of API keys: a client may fail 20 times at once and
// once more each second. Beyond that, only keys that this client used with
// success before are tried. Remembers the latest 4096 clients. Any thread.
class FailedKeys {
 public:
  // Whether `peer`, an IP address, may try the key whose digest begins with
  // `key`.
  bool MayTry(std::string_view peer, uint64_t key,
              TimePoint now = Clock::now());
  void OnSuccess(std::string_view peer, uint64_t key,
                 TimePoint now = Clock::now());
  void OnFailure(std::string_view peer, TimePoint now = Clock::now());

 private:
  struct Peer {
    std::string client;
    double failures = 0;  // that it has left
    TimePoint as_of{};
    std::vector<uint64_t> good;  // keys it came in with
  };

  // The client's record, made the latest of all.
  Peer& Find(std::string_view peer, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  std::list<Peer> peers_ ABSL_GUARDED_BY(mutex_);  // the latest first
  std::unordered_map<std::string_view, std::list<Peer>::iterator> by_client_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_FAILED_KEYS_H_
