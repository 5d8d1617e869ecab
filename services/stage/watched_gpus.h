#ifndef SLUICE_SERVICES_STAGE_WATCHED_GPUS_H_
#define SLUICE_SERVICES_STAGE_WATCHED_GPUS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/nvml/gpu_watch.h"
#include "common/pipeline/stage/stage_metrics.h"

namespace sluice::stage {

// The watch over a stage's GPUs. Any thread.
class WatchedGpus {
 public:
  // Begins to watch the GPUs that the first layers were loaded to, which stay
  // the stage's. Without NVML the stage serves, and the log says so. Called by
  // one thread.
  void Start(const std::vector<std::string>& ids) {
    if (ids.empty() || std::exchange(started_, true)) return;
    auto watch = GpuWatch::Start(ids);
    if (!watch.ok()) {
      return LogWarning("GPUs are not watched: ", Message(watch.status()));
    }
    MutexLock lock(mutex_);
    ids_ = ids;
    watch_ = *std::move(watch);
  }

  // At a scrape.
  void CopyTo(StageMetrics& metrics) {
    MutexLock lock(mutex_);
    if (watch_ != nullptr) metrics.OnGpus(ids_, watch_->Readings());
  }

 private:
  bool started_ = false;  // of Start's thread
  Mutex mutex_;
  std::vector<std::string> ids_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<GpuWatch> watch_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::stage

#endif  // SLUICE_SERVICES_STAGE_WATCHED_GPUS_H_
