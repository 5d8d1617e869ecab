#ifndef SLUICE_SERVICES_STAGE_STAGE_SERVER_H_
#define SLUICE_SERVICES_STAGE_STAGE_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/placement/layer_loads.h"
#include "common/rpc/transport_options.h"
#include "common/stage/stage.h"

namespace sluice::stage {

// The choice of a stage's layers.
struct LayerChoice {
  // Layers [first, last); last -1: to the end. Or a split by bytes: part
  // `index` of `parts`, if parts is not 0, by the memory of each part (empty:
  // they are equal).
  int32_t first = 0;
  int32_t last = -1;
  int32_t index = 0;
  int32_t parts = 0;
  std::vector<uint64_t> memory = {};
  // Of a step, for the KV cache that each part has at least.
  int32_t step_tokens = LayerLoadOptions().max_step_tokens;
  bool assigned = false;  // those that a gateway's Assign names, then others
  // These at the start, and then those that a gateway's Assign names.
  bool assignable = false;
};

// Layers [first, last) of the model, resolved, a split as SplitLayers makes it.
// INVALID_ARGUMENT for layers and parts that do not exist; otherwise
// SplitLayers' errors.
StatusOr<LayerRange> ResolveLayers(const LayerChoice& choice,
                                   const LayerLoads& loads);

struct StageServerOptions {
  std::string listen = "127.0.0.1:0";  // port 0: choose one, see address()
  std::string metrics_listen;          // empty: none
  LayerChoice layers;
  // The server sets first_layer, last_layer and memory from `layers`, placement
  // and expert_transport from `placement`.
  StageOptions stage;
  std::string placement;  // file; empty: every expert is here
  rpc::TransportOptions transport;
  int32_t max_steps_in_flight = 16;
  // Called when another process with ranks of this stage ends: the stage is to
  // drain and end, too.
  std::function<void()> ask_to_end;
};

// A stage process: model, loop, gRPC server, metrics. It binds the address
// before it loads the model; until then it answers gateways UNAVAILABLE with
// the progress. Threads: "stage-load" while loading, "stage-loop", the model's
// ranks, "expert-watch" with remote experts, "metrics-0", and gRPC's own.
class StageServer {
 public:
  // Binds and begins to load; loaded means that remote experts have hosts, too.
  // Errors: INVALID_ARGUMENT for options and models that cannot be, NOT_FOUND
  // for files, UNAVAILABLE for an address in use, RESOURCE_EXHAUSTED for layers
  // that fit no split of `layers.memory`.
  static StatusOr<std::unique_ptr<StageServer>> Start(
      StageServerOptions options);
  ~StageServer();  // Stop
  StageServer(const StageServer&) = delete;
  StageServer& operator=(const StageServer&) = delete;

  const std::string& address() const;  // with the chosen port
  int metrics_port() const;            // 0: none

  // Waits until the layers of the start are loaded (assigned layers: until a
  // gateway may name them), or cannot be; at most until `deadline`,
  // then DEADLINE_EXCEEDED.
  Status WaitLoaded(TimePoint deadline);
  // Turns readiness off and tells the gateway that this stage ends. The
  // gateway's sequences go on. Returns when the gateway has let go of the
  // stage; at `deadline` the stage takes no new step and returns once open
  // steps are done (a few seconds at most).
  void Drain(TimePoint deadline);
  // Ends all streams with UNAVAILABLE and joins every thread. Idempotent.
  void Stop();

 private:
  class Impl;
  explicit StageServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::stage

#endif  // SLUICE_SERVICES_STAGE_STAGE_SERVER_H_
