#ifndef SLUICE_SERVICES_STAGE_STALL_WATCH_H_
#define SLUICE_SERVICES_STAGE_STALL_WATCH_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/concurrency/named_thread.h"

namespace sluice::stage {

// The exit code of a process whose loop stands still: sysexits' EX_SOFTWARE.
inline constexpr int kStandsStill = 70;

// What a look at the stage's loop tells.
struct LoopReading {
  uint64_t progress = 0;  // see StageLoopStats
  bool is_held = false;   // by a gateway
};

// Judges readings of a loop: how long it has stood still. Threadless.
class StallJudge {
 public:
  // A gateway knows a slow layer from the steps before, and lets go
  // of a stage that it gives up.
  static constexpr Duration kHeldLimit = std::chrono::seconds(60);
  static constexpr Duration kFreeLimit = std::chrono::seconds(10);
  static constexpr Duration kTold = std::chrono::seconds(2);

  // A look that comes late counts as kLateLook: the whole process may have been
  // stopped, and its loop goes on only now.
  static constexpr Duration kLateLook = std::chrono::seconds(1);

  void Take(const LoopReading& reading, TimePoint now) {
    const bool moved = reading.progress != last_.progress;
    const bool is_first = looked_ == TimePoint();
    standing_ = moved || is_first
                    ? Duration::zero()
                    : standing_ + std::min<Duration>(now - looked_, kLateLook);
    last_ = reading;
    looked_ = now;
  }
  Duration standing() const { return standing_; }
  // Whether gateways are refused meanwhile.
  bool is_told() const { return standing_ >= kTold; }
  // Whether the process should end.
  bool is_dead() const {
    return standing_ >= (last_.is_held ? kHeldLimit : kFreeLimit);
  }

 private:
  LoopReading last_;
  TimePoint looked_{};
  Duration standing_{};
};

// Ends the process with kStandsStill when its loop stands still, so that its
// supervisor starts it again. The thread "stall-watch" looks.
class StallWatch {
 public:
  // `read` and `on_standing` run on the thread, until Stop returns.
  StallWatch(std::function<LoopReading()> read,
             std::function<void(bool standing)> on_standing);
  ~StallWatch() { Stop(); }
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;
  void Stop();

 private:
  void Run();

  const std::function<LoopReading()> read_;
  const std::function<void(bool)> on_standing_;
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  NamedThread thread_;
};

}  // namespace sluice::stage

#endif  // SLUICE_SERVICES_STAGE_STALL_WATCH_H_
