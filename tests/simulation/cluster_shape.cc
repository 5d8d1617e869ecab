#include "tests/simulation/cluster_shape.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "tests/engine/random_shape.h"
#include "tests/simulation/world.h"

namespace sluice::simulation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

StageInfo ToyInfo(const PlanLimits& limits, int num_layers, bool log) {
  StageInfo info;
  info.model_name = "toy";
  info.model_digest = "digest";
  info.numerics = "digests";
  info.weights_dtype = "none";
  info.num_layers = num_layers;
  info.hidden_size = 4;
  info.ranks = info.threads = 1;
  info.isa = "none";
  info.replay_log = log;
  info.limits = limits;
  info.context = limits.max_context;
  return info;
}

}  // namespace

ClusterShape RandomCluster(uint64_t seed) {
  Random random(seed * 2 + 1);
  const auto one_of = [&](std::initializer_list<int> values) {
    return values.begin()[random.Below(std::ssize(values))];
  };
  const Shape shape = RandomShape(static_cast<uint32_t>(seed));
  ClusterShape cluster;
  cluster.limits = LimitsOf(shape);
  cluster.max_positions = std::min(150, cluster.limits.max_context);
  cluster.num_requests = one_of({4, 8, 16});
  cluster.duration = seconds(one_of({5, 15, 30}));
  cluster.fault_every = milliseconds(one_of({500, 2000, 5000}));
  cluster.yields = one_of({0, 20, 200});
  cluster.weather.latency = microseconds(one_of({200, 2000, 20000}));
  cluster.weather.late = one_of({0, 5, 50});
  cluster.weather.window = static_cast<size_t>(one_of({2, 8, 1000}));
  for (int i = 0; i < kNumFaults; ++i) {
    cluster.faults.push_back(static_cast<Fault>(i));
  }
  // One kind alone, or all of them.
  if (random.Below(4) == 0) {
    cluster.faults = {
        cluster.faults[static_cast<size_t>(random.Below(kNumFaults))]};
  }

  rpc::TransportOptions transport;
  transport.insecure = true;
  transport.peer_timeout = seconds(one_of({4, 10}));
  const int num_layers = shape.num_stages + one_of({0, 1, 3});
  StageSetup stage;
  stage.info = ToyInfo(cluster.limits, num_layers, random.Below(2) == 0);
  stage.transport = transport;
  stage.max_steps_in_flight = one_of({2, 16});
  stage.step_time = milliseconds(one_of({1, 5, 40}));
  stage.load_time = milliseconds(one_of({1, 300, 3000}));
  stage.no_host = one_of({0, 0, 0, 5});
  int layer = 0;
  for (int i = 0; i < shape.num_stages; ++i) {
    stage.info.first_layer = layer;
    const int rest = num_layers - layer - (shape.num_stages - i);
    layer += 1 + (i + 1 == shape.num_stages
                      ? rest
                      : static_cast<int>(random.Below(rest + 1)));
    stage.info.last_layer = layer;
    cluster.stages.push_back(stage);
  }

  EngineOptions& engine = cluster.gateway.engine;
  engine = shape.options;
  engine.recovery_timeout = seconds(one_of({10, 60, 60, 60}));
  engine.max_replays = one_of({2, 8, 100, 100});
  PipelineOptions& pipeline = cluster.gateway.pipeline;
  for (size_t i = 0; i < cluster.stages.size(); ++i) {
    pipeline.stages.push_back(
        Network::AddressOf(cluster.first_host + static_cast<int>(i)));
  }
  pipeline.gateway_id = "gateway";
  pipeline.transport = transport;
  pipeline.steps_ahead = engine.ahead_within > Duration::zero();
  return cluster;
}

}  // namespace sluice::simulation
