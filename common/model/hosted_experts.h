#ifndef SLUICE_COMMON_MODEL_HOSTED_EXPERTS_H_
#define SLUICE_COMMON_MODEL_HOSTED_EXPERTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/device/make_backends.h"
#include "common/model/expert_transport.h"
#include "common/model_config/expert_range.h"
#include "common/model_config/model_config.h"
#include "common/model_config/weights_mode.h"
#include "common/weights/model_file.h"

namespace sluice {

// Experts of one layer that a host has: ranges that rise and do not touch.
struct LayerRanges {
  int32_t layer = 0;
  std::vector<ExpertRange> ranges;
  bool operator==(const LayerRanges&) const = default;
};

struct HostedExpertsOptions {
  std::string model_path;
  std::vector<LayerRanges> held;  // layers rising
  WeightsMode weights = WeightsMode::kAuto;
  int32_t threads = 0;       // 0: as many as this process has cores
  std::string isa = "auto";  // see ParseIsa in cpu_options.h
  BackendFactory make_backends = MakeBackends;
  // Called while loading with bytes done and in all; may be empty.
  std::function<void(uint64_t done, uint64_t total)> progress;
};

// What a host has, for the handshake and for people.
struct HostedExpertsInfo {
  std::string model_name;
  std::string model_digest;
  std::string numerics;
  WeightsMode weights = WeightsMode::kAuto;
  std::string weights_dtype;  // "f32", "bf16", "mxfp4": as computed with
  int32_t num_layers = 0;     // of the whole model
  int32_t hidden_size = 0;
  int32_t num_experts = 0;
  int32_t experts_per_token = 0;
  std::vector<LayerRanges> held;
  int32_t threads = 0;
  std::string isa;
  uint64_t weights_bytes = 0;
  uint64_t bytes_read = 0;  // of tensor data, while loading
  double load_seconds = 0;
};

// INVALID_ARGUMENT unless every layer of `held` is a sparse one of the model,
// rising, and its ranges are of its experts, rising, not empty and apart.
Status CheckHeld(const ModelConfig& config,
                 const std::vector<LayerRanges>& held);

// Some experts of some layers of one model, with the threads that compute
// them. Their bytes alone are read, and no file stays mapped or cached here.
// Not thread-safe: one thread owns the calls to Run; info() is const after
// Load.
class HostedExperts {
 public:
  // Errors as Stage::Load's, and those of CheckHeld.
  static StatusOr<std::unique_ptr<HostedExperts>> Load(
      const HostedExpertsOptions& options);
  ~HostedExperts();
  HostedExperts(const HostedExperts&) = delete;
  HostedExperts& operator=(const HostedExperts&) = delete;

  const HostedExpertsInfo& info() const { return info_; }

  // parts[i] [T, H] = node nodes[i] of layer routed.layer for every row of
  // routed.x; see kernels::ExpertNodes. The nodes are rising and apart, each
  // within one held range; ids may be others' too, but only where no node has
  // them.
  void Run(const RoutedRows& routed, std::span<const kernels::TreeNode> nodes,
           std::span<const kernels::Matrix> parts);

 private:
  HostedExperts() = default;
  Status LoadAll(const HostedExpertsOptions& options, weights::ModelFile& file);
  // The host's packed matrix as the device has it: the same memory, or that
  // of staging_[slot].
  DeviceMatrix OnDevice(size_t slot, DeviceMatrix host);

  HostedExpertsInfo info_;
  ModelConfig config_;
  std::unique_ptr<Backend> backend_;
  const StepInputs no_tokens_{StepLimits()};
  // What Run takes and gives, where the device does not share the host's
  // memory: x, ids, weights, parts.
  std::vector<DeviceMemory> staging_;
  std::vector<DeviceMatrix> parts_;
  // By layer: one entry per held range.
  std::map<int32_t, std::vector<ExpertWeights>> layers_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_HOSTED_EXPERTS_H_
