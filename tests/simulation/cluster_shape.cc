#include "tests/simulation/cluster_shape.h"

#include <algorithm>
#include <chrono>
#include <initializer_list>
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

// Draws the parts of one cluster.
class ClusterDraw {
 public:
  explicit ClusterDraw(uint64_t seed)
      : random_(seed * 2 + 1),
        shape_(RandomShape(static_cast<uint32_t>(seed))) {}

  ClusterShape Draw() {
    cluster_.limits = LimitsOf(shape_);
    cluster_.max_positions = std::min(150, cluster_.limits.max_context);
    cluster_.num_requests = OneOf({4, 8, 16});
    cluster_.duration = seconds(OneOf({5, 15, 30}));
    cluster_.fault_every = milliseconds(OneOf({500, 2000, 5000}));
    cluster_.yields = OneOf({0, 20, 200});
    cluster_.weather.latency = microseconds(OneOf({200, 2000, 20000}));
    cluster_.weather.late = OneOf({0, 5, 50});
    cluster_.weather.window = static_cast<size_t>(OneOf({2, 8, 1000}));
    cluster_.num_gateways = OneOf({1, 1, 1, 2});
    DrawFaults();
    DrawStages();
    DrawGateway();
    return std::move(cluster_);
  }

 private:
  int OneOf(std::initializer_list<int> values) {
    return values.begin()[random_.Below(std::ssize(values))];
  }

  // One kind alone, or all of them. Gateways crash less often: what they have
  // computed is lost with them.
  void DrawFaults() {
    for (int i = 0; i < kNumFaults; ++i) {
      const auto fault = static_cast<Fault>(i);
      const int weight =
          fault == Fault::kGatewayCrash || fault == Fault::kGatewayLeave ? 1
                                                                         : 4;
      cluster_.faults.insert(cluster_.faults.end(), weight, fault);
    }
    if (OneOf({0, 0, 0, 1}) == 0) return;
    cluster_.faults = {static_cast<Fault>(random_.Below(kNumFaults))};
  }

  void DrawStages() {
    transport_.insecure = true;
    transport_.peer_timeout = seconds(OneOf({4, 10}));
    const int num_layers = shape_.num_stages + OneOf({0, 1, 3});
    StageSetup stage;
    stage.info = ToyInfo(cluster_.limits, num_layers, OneOf({0, 1}) == 1);
    stage.transport = transport_;
    stage.max_steps_in_flight = OneOf({2, 16});
    stage.step_time = milliseconds(OneOf({1, 5, 40}));
    stage.load_time = milliseconds(OneOf({1, 300, 3000}));
    stage.no_host = OneOf({0, 0, 0, 5});
    stage.failed_loads = OneOf({0, 0, 100});
    stage.assignable = OneOf({0, 1}) == 1;
    if (stage.assignable) {
      stage.blocks_per_layer = OneOf({0, 0, 1});
      stage.info.room.memory = static_cast<uint64_t>(OneOf({0, 350, 1000}));
      stage.info.room.layers.assign(static_cast<size_t>(num_layers), 100);
      stage.info.room.kv.assign(static_cast<size_t>(num_layers), 10);
    }
    int layer = 0;
    for (int i = 0; i < shape_.num_stages; ++i) {
      stage.info.first_layer = layer;
      const int rest = num_layers - layer - (shape_.num_stages - i);
      layer += 1 + (i + 1 == shape_.num_stages
                        ? rest
                        : static_cast<int>(random_.Below(rest + 1)));
      stage.info.last_layer = layer;
      cluster_.stages.push_back(stage);
      // Beside stages whose experts lack hosts, such as overlap steps.
      if (stage.info.first_layer % 2 == 1) cluster_.stages.back().no_host = 0;
    }
    const int num_spares = OneOf({0, 0, 1, 2});
    for (int i = 0; i < num_spares; ++i) {
      // Of one of the places, or ready to load any.
      StageSetup spare =
          cluster_
              .stages[static_cast<size_t>(random_.Below(shape_.num_stages))];
      if (spare.assignable && OneOf({0, 1}) == 0) {
        spare.info.first_layer = spare.info.last_layer = 0;
      }
      cluster_.stages.push_back(spare);
    }
  }

  void DrawGateway() {
    EngineOptions& engine = cluster_.gateway.engine;
    engine = shape_.options;
    engine.recovery_timeout = seconds(OneOf({10, 60, 60, 60}));
    engine.max_replays = OneOf({2, 8, 100, 100});
    PipelineOptions& pipeline = cluster_.gateway.pipeline;
    const bool are_given = OneOf({0, 0, 1}) == 1;
    for (size_t i = 0; i < cluster_.stages.size(); ++i) {
      const std::string address =
          Network::AddressOf(cluster_.num_gateways + static_cast<int>(i));
      const bool has_place = i < static_cast<size_t>(shape_.num_stages);
      (has_place ? pipeline.stages : pipeline.spares).push_back(address);
      if (has_place && are_given) {
        pipeline.places.push_back(cluster_.stages[i].info.place());
      }
    }
    pipeline.gateway_id = "gateway";
    pipeline.transport = transport_;
    pipeline.steps_ahead = engine.ahead_within > Duration::zero();
    pipeline.resplit.shrink_after = seconds(OneOf({0, 1, 5}));
    pipeline.resplit.grow_after = seconds(OneOf({1, 5}));
    if (cluster_.num_gateways > 1) pipeline.lease = seconds(3);
  }

  Random random_;
  const Shape shape_;
  rpc::TransportOptions transport_;
  ClusterShape cluster_;
};

}  // namespace

ClusterShape RandomCluster(uint64_t seed) {
  ClusterShape shape = ClusterDraw(seed).Draw();
  shape.rogues = seed % 5 == 1;
  return shape;
}

}  // namespace sluice::simulation
