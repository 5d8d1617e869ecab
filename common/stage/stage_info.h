#ifndef SLUICE_COMMON_STAGE_STAGE_INFO_H_
#define SLUICE_COMMON_STAGE_STAGE_INFO_H_

#include <cstdint>
#include <string>

#include "common/core/step_plan.h"

namespace sluice {

// What a stage is, for the handshake and for people.
struct StageInfo {
  std::string model_name;    // weights::ModelName
  std::string model_digest;  // hex SHA-256, weights::ComputeIdentity
  // Which arithmetic: equal ids give equal bits. "f32-canonical-3".
  std::string numerics;
  std::string weights_dtype;  // "f32", "bf16": as computed with
  int32_t first_layer = 0;
  int32_t last_layer = 0;
  int32_t num_layers = 0;  // of the whole model
  int32_t hidden_size = 0;
  int32_t ranks = 0;
  int32_t threads = 0;
  std::string isa;
  PlanLimits limits;
  // Positions that one sequence can have here, and what says so: "the
  // model's", "--max-context", "what the KV cache holds; the model has 131072",
  // "the most that there can be; the model has 2097152".
  int32_t context = 0;
  std::string context_limit;
  uint64_t weights_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t bytes_read = 0;  // of tensor data, while loading
  double load_seconds = 0;
  bool is_first() const { return first_layer == 0; }
  bool is_last() const { return last_layer == num_layers; }
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_STAGE_INFO_H_
