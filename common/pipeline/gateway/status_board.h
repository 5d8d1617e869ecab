#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_STATUS_BOARD_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_STATUS_BOARD_H_

#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/pipeline/gateway/pipeline_status.h"

namespace sluice {

// What the thread "pipeline" lets the others see: the latest status, and that
// the stages have drained. Any thread.
class StatusBoard {
 public:
  void Publish(PipelineStatus status, TimePoint now) {
    MutexLock lock(mutex_);
    status_ = std::move(status);
    published_at_ = now;
  }
  // Returns the status at `now`, with the stages' `clocks`.
  PipelineStatus status(const std::vector<ClockEstimate>& clocks,
                        TimePoint now) const {
    MutexLock lock(mutex_);
    PipelineStatus copy = status_;
    for (size_t i = 0; i < copy.stages.size(); ++i) {
      StageStatus& stage = copy.stages[i];
      // A pipeline of another number of stages may just be on its way.
      if (i < clocks.size()) stage.clock = clocks[i];
      if (stage.last_heard > Duration::zero()) {
        stage.last_heard += now - published_at_;
      }
    }
    return copy;
  }
  bool ready() const {
    MutexLock lock(mutex_);
    return status_.ready;
  }
  GatewayRole role() const {
    MutexLock lock(mutex_);
    return status_.role;
  }

  void SetDrained() {
    MutexLock lock(mutex_);
    if (std::exchange(drained_, true)) return;
    LogInfo("all stages have drained");
    changed_.NotifyAll();
  }
  // Returns once the stages have drained, or at `deadline`.
  void WaitDrained(TimePoint deadline) {
    MutexLock lock(mutex_);
    while (!drained_ && changed_.WaitUntil(mutex_, deadline)) {
    }
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;
  PipelineStatus status_ ABSL_GUARDED_BY(mutex_);
  TimePoint published_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STATUS_BOARD_H_
