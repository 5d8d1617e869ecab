#include "common/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <sstream>
#include <utility>

#include "common/base/mutex.h"

namespace sluice::metrics {

void Counter::Add(double by) const {
  if (series_ != nullptr) series_->Increment(by);
}

void Counter::AdvanceTo(double total) const {
  if (series_ == nullptr) return;
  const double missing = total - series_->Value();
  if (missing > 0) series_->Increment(missing);
}

double Counter::value() const {
  return series_ == nullptr ? 0.0 : series_->Value();
}

void Gauge::Set(double value) const {
  if (series_ != nullptr) series_->Set(value);
}

void Gauge::Add(double by) const {
  if (series_ != nullptr) series_->Increment(by);
}

double Gauge::value() const {
  return series_ == nullptr ? 0.0 : series_->Value();
}

void Histogram::Observe(double value) const {
  if (series_ != nullptr) series_->Observe(value);
}

class Registry::Impl {
 public:
  explicit Impl(Labels constant) : constant_(std::move(constant)) {}

  template <typename Builder>
  auto& Family(Builder builder, std::string_view name, std::string_view help) {
    return builder.Name(std::string(name))
        .Help(std::string(help))
        .Labels(constant_)
        .Register(registry_);
  }

  void AddHook(std::function<void()> hook) {
    MutexLock lock(mutex_);
    hooks_.push_back(std::move(hook));
  }

  std::string Text() {
    {
      MutexLock lock(mutex_);
      for (const auto& hook : hooks_) hook();
    }
    std::ostringstream out;
    out.exceptions(std::ios::badbit);  // else too little memory cuts it
    prometheus::TextSerializer().Serialize(out, registry_.Collect());
    return std::move(out).str();
  }

 private:
  const Labels constant_;
  prometheus::Registry registry_;  // locks by itself
  Mutex mutex_;                    // also: one run of the hooks at a time
  std::vector<std::function<void()>> hooks_ ABSL_GUARDED_BY(mutex_);
};

Registry::Registry(Labels constant)
    : impl_(std::make_unique<Impl>(std::move(constant))) {}
Registry::~Registry() = default;

Counter Registry::AddCounter(std::string_view name, std::string_view help,
                             const Labels& labels) {
  auto& family = impl_->Family(prometheus::BuildCounter(), name, help);
  return Counter(&family.Add(labels));
}

Gauge Registry::AddGauge(std::string_view name, std::string_view help,
                         const Labels& labels) {
  auto& family = impl_->Family(prometheus::BuildGauge(), name, help);
  return Gauge(&family.Add(labels));
}

void Registry::RemoveGauge(std::string_view name, const Gauge& series) {
  // A family is known by its name.
  impl_->Family(prometheus::BuildGauge(), name, "").Remove(series.series_);
}

Histogram Registry::AddHistogram(std::string_view name, std::string_view help,
                                 const std::vector<double>& bounds,
                                 const Labels& labels) {
  auto& family = impl_->Family(prometheus::BuildHistogram(), name, help);
  return Histogram(&family.Add(labels, bounds));
}

void Registry::OnScrape(std::function<void()> hook) {
  impl_->AddHook(std::move(hook));
}

std::string Registry::Text() const { return impl_->Text(); }

}  // namespace sluice::metrics
