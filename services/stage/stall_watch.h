#ifndef SLUICE_SERVICES_STAGE_STALL_WATCH_H_
#define SLUICE_SERVICES_STAGE_STALL_WATCH_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "common/base/clock.h"
#include "common/base/end_process.h"
#include "common/base/mutex.h"
#include "common/concurrency/named_thread.h"

namespace sluice::stage {

// The exit code of a process whose loop stands still.
inline constexpr int kStandsStill = kToBeReplaced;

// What was last read of the stage's loop.
struct LoopReading {
  uint64_t progress = 0;  // see StageLoopStats
  bool is_held = false;   // by a gateway
};

struct StallLimits {
  // A gateway knows a slow layer from the steps before, and lets go
  // of a stage that it gives up.
  Duration held = std::chrono::seconds(60);
  Duration free = std::chrono::seconds(10);
  // From here on gateways are refused.
  Duration told = std::chrono::seconds(2);
  Duration look_every = std::chrono::milliseconds(250);
};

// Judges readings of a loop: how long it has stood still. Threadless.
class StallJudge {
 public:
  // A look that comes late counts as kLateLook: the whole process may have been
  // stopped, and its loop goes on only now.
  static constexpr Duration kLateLook = std::chrono::seconds(1);

  explicit StallJudge(const StallLimits& limits = {}) : limits_(limits) {}

  // `reads`: how many readings there have been; `last` is the latest. A reading
  // that does not end waits for a lock of a thread that stands still, as
  // answers to gateways do then.
  void Take(uint64_t reads, const LoopReading& last, TimePoint now) {
    const bool is_first = looked_ == TimePoint();
    const Duration passed = is_first
                                ? Duration::zero()
                                : std::min<Duration>(now - looked_, kLateLook);
    const bool moved = last.progress != last_.progress;
    standing_ = moved ? Duration::zero() : standing_ + passed;
    unread_ = reads != reads_ ? Duration::zero() : unread_ + passed;
    last_ = last;
    reads_ = reads;
    looked_ = now;
  }
  Duration standing() const { return std::max(standing_, unread_); }
  // Whether gateways are refused meanwhile.
  bool is_told() const { return standing_ >= limits_.told; }
  // Whether the process should end.
  bool is_dead() const {
    return unread_ >= limits_.free ||
           standing_ >= (last_.is_held ? limits_.held : limits_.free);
  }

 private:
  const StallLimits limits_;
  LoopReading last_;
  uint64_t reads_ = 0;
  TimePoint looked_{};
  Duration standing_{};  // since the loop's last progress
  Duration unread_{};    // since the last reading ended
};

// Ends the process with kStandsStill when its loop stands still, so that its
// supervisor starts it again. The loop may stand still with any lock held: the
// thread "stall-read" takes locks, and "stall-watch" judges without one.
class StallWatch {
 public:
  // `read` and `on_standing` run on "stall-read", until Stop returns.
  StallWatch(std::function<LoopReading()> read,
             std::function<void(bool standing)> on_standing,
             const StallLimits& limits = {});
  ~StallWatch() { Stop(); }
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;
  // Waits for a call of `read` or `on_standing`; meanwhile the watch goes on.
  void Stop();

 private:
  // Waits for a look's time. Returns false when `stopping`.
  bool WaitToLook(const bool& stopping) ABSL_LOCKS_EXCLUDED(mutex_);
  void Read();
  void Watch();

  const std::function<LoopReading()> read_;
  const std::function<void(bool)> on_standing_;
  const StallLimits limits_;
  std::atomic<uint64_t> progress_{0};
  std::atomic<bool> is_held_{false};
  std::atomic<uint64_t> reads_{0};
  std::atomic<bool> told_{false};
  Mutex mutex_;  // of these two threads and Stop
  CondVar wake_;
  bool stop_reading_ = false;   // under mutex_
  bool stop_watching_ = false;  // likewise
  NamedThread reader_;
  NamedThread watcher_;
};

}  // namespace sluice::stage

#endif  // SLUICE_SERVICES_STAGE_STALL_WATCH_H_
