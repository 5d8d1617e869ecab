#ifndef SLUICE_COMMON_HTTP_FAILED_KEYS_H_
#define SLUICE_COMMON_HTTP_FAILED_KEYS_H_

#include <array>
#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace sluice::http {

// The client of an IP address: the first 64 bits of an IPv6 address (one host
// or network), else the address.
std::string ClientOfAddress(std::string_view address);

// Counts the unknown API keys of each client, of which 10 within 10 seconds get
// their answer. Remembers the latest 4096 clients. Any thread.
class FailedKeys {
 public:
  // Counts an unknown key from `peer`, an IP address. Returns how long the
  // client has to wait before its next one: zero if this one is within the
  // limit, and else it is not counted.
  Duration OnFailure(std::string_view peer, TimePoint now = Clock::now());

 private:
  static constexpr size_t kMost = 10;
  struct Peer {
    std::string client;
    // Of its latest unknown keys, a ring.
    std::array<TimePoint, kMost> times{};
    size_t count = 0;  // of all of them
  };

  // The client's record, made the latest of all.
  Peer& Find(std::string_view peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  std::list<Peer> peers_ ABSL_GUARDED_BY(mutex_);  // the latest first
  std::unordered_map<std::string_view, std::list<Peer>::iterator> by_client_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_FAILED_KEYS_H_
