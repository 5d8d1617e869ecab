#ifndef SLUICE_COMMON_METRICS_WATCHED_GPUS_H_
#define SLUICE_COMMON_METRICS_WATCHED_GPUS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/metrics/metric_names.h"
#include "common/metrics/metrics.h"
#include "common/nvml/gpu_watch.h"

namespace sluice::metrics {

// Names of the series of a process' GPUs, by what a GpuReading has.
struct GpuSeriesNames {
  names::Name memory_used;
  names::Name memory_total;
  names::Name busy;
  names::Name ecc_errors;
  names::Name xid_errors;
};
inline constexpr GpuSeriesNames kStageGpuSeries = {
    names::kStageGpuMemoryUsed, names::kStageGpuMemoryTotal,
    names::kStageGpuBusy, names::kStageGpuEccErrors, names::kStageGpuXidErrors};
inline constexpr GpuSeriesNames kExpertGpuSeries = {
    names::kExpertGpuMemoryUsed, names::kExpertGpuMemoryTotal,
    names::kExpertGpuBusy, names::kExpertGpuEccErrors,
    names::kExpertGpuXidErrors};

// The watch over the GPUs that a process computes on, and their series, which
// are there from the first scrape on that has values. Any thread.
class WatchedGpus {
 public:
  // `registry` must outlive this object.
  WatchedGpus(Registry* registry, const GpuSeriesNames& names)
      : registry_(registry), names_(names) {}
  WatchedGpus(const WatchedGpus&) = delete;
  WatchedGpus& operator=(const WatchedGpus&) = delete;

  // Begins to watch the GPUs with these ids, at the first call that has any:
  // they stay the process'. Without NVML the process serves, and the log says
  // so. Called by one thread. `library` and `on_fault` are GpuWatch::Start's.
  void Start(const std::vector<std::string>& ids,
             const std::string& library = "libnvidia-ml.so.1",
             std::function<void(const std::string&)> on_fault = {})
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Sets the series to what was last read, at a scrape.
  void OnScrape() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Series {
    Gauge memory_used;
    Gauge memory_total;
    Gauge busy;
    Counter ecc_errors;
    Counter xid_errors;
  };
  Series AddSeries(const std::string& id) const;

  Registry* const registry_;
  const GpuSeriesNames names_;
  bool started_ = false;  // of Start's thread
  Mutex mutex_;
  std::vector<std::string> ids_ ABSL_GUARDED_BY(mutex_);
  std::vector<Series> series_ ABSL_GUARDED_BY(mutex_);  // in the ids' order
  std::unique_ptr<GpuWatch> watch_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::metrics

#endif  // SLUICE_COMMON_METRICS_WATCHED_GPUS_H_
