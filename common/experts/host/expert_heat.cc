#include "common/experts/host/expert_heat.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/cat.h"

namespace sluice {
namespace {

template <typename Number>
std::string List(const std::vector<Number>& numbers) {
  std::string text;
  for (const Number& number : numbers) {
    text += text.empty() ? Cat(number) : Cat(", ", number);
  }
  return "[" + text + "]";
}

}  // namespace

ExpertHeat::ExpertHeat(int32_t num_experts,
                       const std::vector<LayerRanges>& held)
    : num_experts_(num_experts) {
  const auto size = static_cast<size_t>(num_experts);
  for (const LayerRanges& layer : held) {
    Counts& counts = layers_[layer.layer];
    counts.asks.resize(size);
    for (auto& period : counts.periods) period.resize(size);
    for (const ExpertRange& range : layer.ranges) {
      for (int32_t id = range.begin; id < range.end; ++id) {
        counts.experts.push_back(id);
      }
    }
  }
}

void ExpertHeat::Turn(TimePoint now) {
  if (now < turned_ + kPeriod) return;
  const bool both = now >= turned_ + 2 * kPeriod;
  for (auto& [layer, counts] : layers_) {
    std::swap(counts.periods[0], counts.periods[1]);
    std::fill(counts.periods[0].begin(), counts.periods[0].end(), 0);
    if (!both) continue;
    std::fill(counts.periods[1].begin(), counts.periods[1].end(), 0);
  }
  turned_ = now;
}

void ExpertHeat::Add(int32_t layer, const std::vector<int32_t>& expert_ids,
                     TimePoint now) {
  MutexLock lock(mutex_);
  Turn(now);
  const auto found = layers_.find(layer);
  if (found == layers_.end()) return;
  for (const int32_t id : expert_ids) {
    if (id < 0 || id >= num_experts_) continue;  // of a row that failed
    ++found->second.asks[id];
    ++found->second.periods[0][id];
  }
}

std::vector<ExpertHeat::Layer> ExpertHeat::Snapshot(TimePoint now) {
  MutexLock lock(mutex_);
  Turn(now);
  std::vector<Layer> layers;
  for (const auto& [number, counts] : layers_) {
    Layer& layer = layers.emplace_back();
    layer.layer = number;
    layer.experts = counts.experts;
    for (const int32_t id : counts.experts) {
      layer.asks.push_back(counts.asks[id]);
      layer.recent.push_back(counts.periods[0][id] + counts.periods[1][id]);
    }
  }
  return layers;
}

double ExpertHeat::Layer::skew() const {
  const uint64_t sum =
      std::accumulate(recent.begin(), recent.end(), uint64_t{0});
  if (sum == 0) return 0;
  const uint64_t most = *std::max_element(recent.begin(), recent.end());
  return static_cast<double>(most) * static_cast<double>(recent.size()) /
         static_cast<double>(sum);
}

int32_t ExpertHeat::Layer::active() const {
  return static_cast<int32_t>(std::count_if(
      recent.begin(), recent.end(), [](uint64_t count) { return count > 0; }));
}

std::string ExpertHeat::Json() {
  std::string layers;
  for (const Layer& layer : Snapshot()) {
    layers += Cat(layers.empty() ? "" : ", ", "{\"layer\": ", layer.layer,
                  ", \"experts\": ", List(layer.experts),
                  ", \"asks\": ", List(layer.asks),
                  ", \"recent\": ", List(layer.recent), "}");
  }
  return Cat("{\"num_experts\": ", num_experts_,
             ", \"recent_seconds\": ", 2 * kPeriod.count(), ", \"layers\": [",
             layers, "]}\n");
}

}  // namespace sluice
