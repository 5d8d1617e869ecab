#include "common/placement/cluster_times.h"

#include <algorithm>
#include <utility>

#include "common/placement/split_costs.h"

namespace sluice::placement {
namespace {

// The fewest decodes that the gateway puts into a plan of their own.
constexpr int64_t kLeastDecodes = 4;
// Threads that a message passes and wakes on its way over a hop, both ends
// together, and their work on it.
constexpr double kHopWakes = 3;
constexpr double kHopSeconds = 90e-6;
// Of a processor, at the gateway, for a token on its way to a client.
constexpr double kTokenSeconds = 60e-6;
// Of a socket within a machine.
constexpr double kLocalBytesPerSecond = 2e9;

}  // namespace

double Pass::longest() const { return *std::ranges::max_element(busy); }

ClusterTimes::ClusterTimes(const ModelConfig& config,
                           const ModelProducts& products,
                           const Machines& machines,
                           std::vector<HostPlan> hosts,
                           kernels::WeightType kv_type)
    : config_(config),
      products_(products),
      machines_(machines),
      hosts_(std::move(hosts)) {
  work_.config = &config_;
  work_.products = &products_;
  work_.kv_type = kv_type;
  work_.local_experts = hosts_.empty() ? 1 : 0;
}

double ClusterTimes::HopSeconds(double rows, int32_t from, int32_t to) const {
  const double bytes = rows * config_.row_size() * sizeof(float);
  const double wake = machines_.machines[At(to)].rates.wake_seconds;
  const double software = kHopSeconds + kHopWakes * wake;
  if (from == to) return software + bytes / kLocalBytesPerSecond;
  const Link& link = machines_.Between(from, to);
  return software + link.latency_seconds + bytes / link.bytes_per_second;
}

double ClusterTimes::TripSeconds(int32_t machine, int32_t layer,
                                 double rows) const {
  if (hosts_.empty() || !config_.is_sparse(layer)) return 0;
  const MoeConfig& moe = config_.layers[At(layer)].moe;
  double longest = 0;
  for (const HostPlan& host : hosts_) {
    const MachineRates& rates = machines_.machines[At(host.machine)].rates;
    const double trip =
        HopSeconds(rows, machine, host.machine) +
        HopSeconds(rows, host.machine, machine) +
        HostSeconds(moe, products_.layers[At(layer)], host.share, rates, rows);
    longest = std::max(longest, trip);
  }
  return longest;
}

double ClusterTimes::LayerSeconds(int32_t machine, int32_t layer,
                                  const StepShape& step, bool cached) const {
  return placement::LayerSeconds(work_, layer,
                                 machines_.machines[At(machine)].rates, step,
                                 cached) +
         TripSeconds(machine, layer, static_cast<double>(step.rows()));
}

double ClusterTimes::HeadSeconds(int32_t machine, const StepShape& step,
                                 bool cached) const {
  return placement::HeadSeconds(work_, machines_.machines[At(machine)].rates,
                                step, cached);
}

double ClusterTimes::GatewaySeconds(int32_t machine, int64_t sequences) const {
  const int32_t threads = machines_.machines[At(machine)].rates.threads;
  if (threads == 0) return 0;
  return static_cast<double>(sequences) * kTokenSeconds / threads;
}

double ClusterTimes::StageSeconds(const StagePlan& stage,
                                  const StepShape& step) const {
  const MachineRates& rates = machines_.machines[At(stage.machine)].rates;
  const bool cached =
      static_cast<double>(stage.bytes.weights) < rates.cache_bytes;
  double seconds = 0;
  for (int32_t i = stage.range.first; i < stage.range.last; ++i) {
    seconds += LayerSeconds(stage.machine, i, step, cached);
  }
  if (stage.range.last < config_.num_layers()) return seconds;
  return seconds + HeadSeconds(stage.machine, step, cached);
}

Pass ClusterTimes::PassOf(std::span<const StagePlan> stages,
                          const StepShape& step) const {
  Pass pass;
  pass.busy.resize(machines_.machines.size());
  for (const StagePlan& stage : stages) {
    const double seconds = StageSeconds(stage, step);
    pass.all += seconds;
    pass.busy[At(stage.machine)] += seconds;
  }
  // Hidden states between stages; plans and results at the ends.
  const int32_t gateway = stages.front().machine;
  pass.all += HopSeconds(0, gateway, gateway);
  for (size_t i = 1; i < stages.size(); ++i) {
    pass.all += HopSeconds(static_cast<double>(step.rows()),
                           stages[i - 1].machine, stages[i].machine);
  }
  pass.all += HopSeconds(0, stages.back().machine, gateway);
  const double text = GatewaySeconds(gateway, step.sequences);
  pass.all += text;
  pass.busy[At(gateway)] += text;
  return pass;
}

double ClusterTimes::StepSeconds(std::span<const StagePlan> stages,
                                 int64_t streams, int32_t context) const {
  std::vector<int32_t> used;
  for (const StagePlan& stage : stages) used.push_back(stage.machine);
  const int64_t groups =
      GroupsOf(streams, std::unique(used.begin(), used.end()) - used.begin());
  const Pass pass = PassOf(stages, {GroupSize(streams, groups), 1, context});
  return std::max(pass.all, static_cast<double>(groups) * pass.longest());
}

int64_t GroupsOf(int64_t streams, int64_t machines) {
  return std::min(machines, std::max<int64_t>(1, streams / kLeastDecodes));
}

int64_t GroupSize(int64_t streams, int64_t groups) {
  return (streams + groups - 1) / groups;
}

std::vector<StepShape> ChunksOf(int32_t prompt_tokens, int32_t step_tokens) {
  std::vector<StepShape> chunks;
  for (int32_t done = 0; done < prompt_tokens;) {
    const int32_t chunk = std::min(step_tokens, prompt_tokens - done);
    chunks.push_back({1, chunk, done});
    done += chunk;
  }
  return chunks;
}

}  // namespace sluice::placement
