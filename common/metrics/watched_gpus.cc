#include "common/metrics/watched_gpus.h"

#include <utility>

#include "common/base/log.h"

namespace sluice::metrics {

void WatchedGpus::Start(const std::vector<std::string>& ids,
                        const std::string& library,
                        std::function<void(const std::string&)> on_fault) {
  if (ids.empty() || std::exchange(started_, true)) return;
  auto watch = GpuWatch::Start(ids, library, std::move(on_fault));
  if (!watch.ok()) {
    return LogWarning("GPUs are not watched: ", Message(watch.status()));
  }
  MutexLock lock(mutex_);
  ids_ = ids;
  watch_ = *std::move(watch);
}

void WatchedGpus::OnScrape() {
  MutexLock lock(mutex_);
  if (watch_ == nullptr) return;
  if (series_.empty()) {
    for (const std::string& id : ids_) series_.push_back(AddSeries(id));
  }
  const std::vector<GpuReading> readings = watch_->Readings();
  for (size_t i = 0; i < series_.size() && i < readings.size(); ++i) {
    const Series& series = series_[i];
    const GpuReading& reading = readings[i];
    series.memory_used.Set(static_cast<double>(reading.memory_used));
    series.memory_total.Set(static_cast<double>(reading.memory_total));
    series.busy.Set(reading.busy);
    series.ecc_errors.AdvanceTo(static_cast<double>(reading.ecc_errors));
    series.xid_errors.AdvanceTo(static_cast<double>(reading.xid_errors));
  }
}

WatchedGpus::Series WatchedGpus::AddSeries(const std::string& id) const {
  const Labels labels = {{"gpu", id}};
  Series series;
  series.memory_used = registry_->AddGauge(
      names_.memory_used, "Bytes of the GPU's memory in use.", labels);
  series.memory_total = registry_->AddGauge(
      names_.memory_total, "Bytes of the GPU's memory.", labels);
  series.busy = registry_->AddGauge(
      names_.busy, "Share of the time in which a kernel ran.", labels);
  series.ecc_errors = registry_->AddCounter(
      names_.ecc_errors, "Errors that the memory did not correct.", labels);
  series.xid_errors = registry_->AddCounter(
      names_.xid_errors, "Errors that the driver told of.", labels);
  return series;
}

}  // namespace sluice::metrics
