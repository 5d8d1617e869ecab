#ifndef SLUICE_COMMON_METRICS_METRICS_H_
#define SLUICE_COMMON_METRICS_METRICS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace sluice::metrics {

// Label names and values of one series. Values come from small fixed sets:
// never a request id, key, prompt, peer address or error text.
using Labels = std::map<std::string, std::string>;

// Handles to one series each: cheap to copy, safe from any thread, valid as
// long as their Registry. A default-constructed handle does nothing.
class Counter {
 public:
  Counter() = default;
  void Add(double by = 1.0) const;
  // Raises the counter to `total`, the value of another count; a lower total is
  // ignored. For one caller at a time: a scrape hook.
  void AdvanceTo(double total) const;
  double value() const;

 private:
  friend class Registry;
  explicit Counter(prometheus::Counter* series) : series_(series) {}
  prometheus::Counter* series_ = nullptr;
};

class Gauge {
 public:
  Gauge() = default;
  void Set(double value) const;
  void Add(double by) const;
  double value() const;

 private:
  friend class Registry;
  explicit Gauge(prometheus::Gauge* series) : series_(series) {}
  prometheus::Gauge* series_ = nullptr;
};

class Histogram {
 public:
  Histogram() = default;
  void Observe(double value) const;

 private:
  friend class Registry;
  explicit Histogram(prometheus::Histogram* series) : series_(series) {}
  prometheus::Histogram* series_ = nullptr;
};

// A process's series, in Prometheus text format. Adding the same name and
// labels twice gives the same series. A name must keep its kind; names and
// labels are our own, so a wrong one is a bug and ends the process.
class Registry {
 public:
  // `constant` labels stand on every series.
  explicit Registry(Labels constant = {});
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  Counter AddCounter(std::string_view name, std::string_view help,
                     const Labels& labels = {});
  Gauge AddGauge(std::string_view name, std::string_view help,
                 const Labels& labels = {});
  // Removes the series `series` of `name`; its handles must not be used after
  // that.
  void RemoveGauge(std::string_view name, const Gauge& series);
  // `bounds`: rising upper bounds; +Inf is implied.
  Histogram AddHistogram(std::string_view name, std::string_view help,
                         const std::vector<double>& bounds,
                         const Labels& labels = {});

  // `hook` runs before each Text(), one at a time, to copy values that other
  // classes count. It must not block.
  void OnScrape(std::function<void()> hook);

  // Content type text/plain; version=0.0.4. Safe from any thread.
  std::string Text() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

inline constexpr std::string_view kTextContentType =
    "text/plain; version=0.0.4; charset=utf-8";

}  // namespace sluice::metrics

#endif  // SLUICE_COMMON_METRICS_METRICS_H_
