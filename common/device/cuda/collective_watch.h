#ifndef SLUICE_COMMON_DEVICE_CUDA_COLLECTIVE_WATCH_H_
#define SLUICE_COMMON_DEVICE_CUDA_COLLECTIVE_WATCH_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/concurrency/named_thread.h"
#include "common/device/cuda/device_exchange.h"
#include "common/device/cuda/own_ranks.h"

namespace sluice {

struct CollectiveLimits {
  // NCCL may take so long to connect the ranks' devices, and a rank to wait for
  // the others, a whole step included: as long as a stage that a gateway holds
  // may stand still.
  Duration deadline = std::chrono::seconds(60);
  Duration look_every = std::chrono::milliseconds(100);
};

// Ends the process (EndToBeReplaced) when ranks that wait for each other will
// wait for ever: when the exchange has a fault, or a rank has waited beyond the
// deadline. A rank's device cannot go on alone, and what others have of the
// step is not known. Begin and End are of the rank's thread, by its index
// within the process.
class CollectiveWatch {
 public:
  // Looks from the thread "rank-watch" until it is destroyed, before
  // `exchange`.
  CollectiveWatch(const OwnRanks& ranks, DeviceExchange* exchange,
                  const CollectiveLimits& limits);
  ~CollectiveWatch();
  CollectiveWatch(const CollectiveWatch&) = delete;
  CollectiveWatch& operator=(const CollectiveWatch&) = delete;

  // The rank depends on the others from here on, if it did not.
  void Begin(int index) {
    std::atomic<uint64_t>& turn = turns_[static_cast<size_t>(index)].value;
    const uint64_t now = turn.load(std::memory_order_relaxed);
    if (now % 2 == 0) turn.store(now + 1, std::memory_order_relaxed);
  }
  // What it waited for is there.
  void End(int index) {
    std::atomic<uint64_t>& turn = turns_[static_cast<size_t>(index)].value;
    const uint64_t now = turn.load(std::memory_order_relaxed);
    if (now % 2 == 1) turn.store(now + 1, std::memory_order_relaxed);
  }

 private:
  struct alignas(64) Turn {
    std::atomic<uint64_t> value{0};  // odd: waits
  };
  // Waits for a look's time. Returns false when the watch ends.
  bool WaitToLook() ABSL_LOCKS_EXCLUDED(mutex_);
  void Watch();

  const OwnRanks ranks_;
  DeviceExchange& exchange_;
  const CollectiveLimits limits_;
  std::vector<Turn> turns_;
  Mutex mutex_;  // of the watch and its destructor
  CondVar wake_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  NamedThread thread_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_COLLECTIVE_WATCH_H_
