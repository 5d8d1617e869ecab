#ifndef SLUICE_COMMON_CORE_STAGE_IDENTITY_H_
#define SLUICE_COMMON_CORE_STAGE_IDENTITY_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "common/core/ids.h"
#include "common/core/stage_room.h"
#include "common/core/step_plan.h"

namespace sluice {

// A place in a pipeline: layers [first_layer, last_layer). Empty: unknown.
struct StagePlace {
  int32_t first_layer = 0;
  int32_t last_layer = 0;
  bool empty() const { return first_layer >= last_layer; }
  bool operator==(const StagePlace&) const = default;
};

// The model, layers and arithmetic of a stage.
struct StageIdentity {
  std::string model_name;    // weights::ModelName
  std::string model_digest;  // hex SHA-256, weights::ComputeIdentity
  // The arithmetic: equal ids give equal bits. "f32-canonical-3".
  std::string numerics;
  std::string weights_dtype;  // "f32", "bf16": for the computation
  int32_t first_layer = 0;
  int32_t last_layer = 0;  // one past the last
  int32_t num_layers = 0;  // of the whole model
  int32_t hidden_size = 0;
  int32_t ranks = 0;
  int32_t threads = 0;  // of the stage, over all ranks
  std::string isa;
  uint64_t weights_bytes = 0;
  uint64_t kv_bytes = 0;
  // Loads the layers that its gateway names; empty place(): none yet.
  bool assignable = false;
  StageRoom room = {};  // of an assignable stage; else empty
  // Keeps what it hands on, for a successor that loses its KV cache.
  bool replay_log = false;
  // The config that the digest covers (weights::ComputedParts); empty: unknown.
  std::string model_config = {};
  StagePlace place() const { return {first_layer, last_layer}; }
  bool is_first() const { return first_layer == 0; }
  bool is_last() const { return last_layer == num_layers; }
  bool operator==(const StageIdentity&) const = default;
};

// Returns how to name what differs between the numerics of two stages: with its
// option where only keys and values do.
inline const char* NumericsKey(std::string_view a, std::string_view b) {
  const auto of_products = [](std::string_view numerics) {
    return numerics.substr(0, numerics.find("+kv-"));
  };
  return of_products(a) == of_products(b) ? "numerics (--kv-type)" : "numerics";
}

// The bounds of plans, and of the steps under way on one stream.
struct PipelineLimits {
  PlanLimits plan;
  int32_t block_tokens = kBlockTokens;
  int32_t max_steps_in_flight = 0;
};

// The gateway's facts of a stage: one value from the handshake to the pages for
// people. Of a pipeline: the facts that its stages share, the least of their
// limits, and all layers.
struct StageFacts : StageIdentity {
  std::string address;  // empty: of a pipeline
  PipelineLimits limits;
  uint64_t term = 0;  // the highest that the stage knew at its latest Welcome
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_STAGE_IDENTITY_H_
