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
#include "common/model/packed_weights.h"
#include "common/model_config/expert_range.h"
#include "common/model_config/model_config.h"
#include "common/model_config/weights_mode.h"
#include "common/weights/model_file.h"
#include "kernels/block_format.h"

namespace sluice {

// Experts of one layer on a host: ranges that rise and do not touch.
struct LayerRanges {
  int32_t layer = 0;
  std::vector<ExpertRange> ranges;
  bool operator==(const LayerRanges&) const = default;
};

struct HostedExpertsOptions {
  std::string model_path;
  std::vector<LayerRanges> held;  // layers rising
  WeightsMode weights = WeightsMode::kAuto;
  int32_t threads = 0;  // 0: as many as this process has cores
  // Pins each compute thread to its own core if there are enough.
  bool pin_threads = false;
  std::string isa = "auto";       // see ParseIsa in cpu_options.h
  std::string device = "cpu";     // see ParseDevice in device_choice.h
  std::string numerics = "auto";  // see ParseNumerics there
  kernels::BlockActivations activations = kernels::BlockActivations::kEightBits;
  PackedOptions packed;  // packed weights on disk
  BackendFactory make_backends = MakeBackends;
  // Called while loading with bytes done and total bytes; may be empty.
  std::function<void(uint64_t done, uint64_t total)> progress;
};

// The facts of a host, for the handshake and for people.
struct HostedExpertsInfo {
  std::string model_name;
  std::string model_digest;
  std::string numerics;
  WeightsMode weights = WeightsMode::kAuto;
  std::string weights_dtype;  // "f32", "bf16", "mxfp4": for the computation
  int32_t num_layers = 0;     // of the whole model
  int32_t hidden_size = 0;
  int32_t num_experts = 0;
  int32_t experts_per_token = 0;
  std::vector<LayerRanges> held;
  int32_t threads = 0;
  std::string gpu;  // id of the one it computes on; empty: a CPU
  std::string isa;
  uint64_t weights_bytes = 0;
  uint64_t bytes_read = 0;  // of tensor data, while loading
  double load_seconds = 0;
};

// INVALID_ARGUMENT unless `held` has sparse layers of the model, rising, with
// ranges of their experts, rising, not empty and apart.
Status CheckHeld(const ModelConfig& config,
                 const std::vector<LayerRanges>& held);

// Some experts of some layers of one model, with the threads that compute them.
// Reads their bytes alone. Not thread-safe: one thread owns the calls to Run;
// info() is const after Load.
class HostedExperts {
 public:
  // Returns what HostedExpertsOptions::device is for a device's name, as
  // ChooseDevice of device_choice.h. INVALID_ARGUMENT for several GPUs.
  static StatusOr<std::string> ChooseDevice(const std::string& device);
  // Returns an error unless the device has their numerics, as device_choice.h's
  // function.
  static Status CheckNumerics(const std::string& device,
                              const std::string& numerics);
  // INVALID_ARGUMENT for activations that the options' numerics lack.
  static Status CheckActivations(const HostedExpertsOptions& options);
  // Errors as Stage::Load's and CheckHeld's.
  static StatusOr<std::unique_ptr<HostedExperts>> Load(
      const HostedExpertsOptions& options);
  ~HostedExperts();
  HostedExperts(const HostedExperts&) = delete;
  HostedExperts& operator=(const HostedExperts&) = delete;

  const HostedExpertsInfo& info() const { return info_; }

  // parts[i] [T, H] = node nodes[i] of layer routed.layer for every row of
  // routed.x; see kernels::ExpertNodes. Needs rising nodes that do not overlap,
  // each within one held range. Ids of other hosts' experts are allowed outside
  // of the nodes.
  void Run(const RoutedRows& routed, std::span<const kernels::TreeNode> nodes,
           std::span<const kernels::Matrix> parts);

 private:
  HostedExperts() = default;
  Status LoadAll(const HostedExpertsOptions& options, weights::ModelFile& file);
  // Returns the device's view of the host's packed matrix: the same memory, or
  // staging_[slot].
  DeviceMatrix OnDevice(size_t slot, DeviceMatrix host);

  HostedExpertsInfo info_;
  ModelConfig config_;
  std::unique_ptr<Backend> backend_;
  const StepInputs no_tokens_{StepLimits()};
  // Copies of Run's x, ids, weights and parts, for a device that does not share
  // the host's memory.
  std::vector<DeviceMemory> staging_;
  std::vector<DeviceMatrix> parts_;
  // By layer: one entry per held range.
  std::map<int32_t, std::vector<ExpertWeights>> layers_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_HOSTED_EXPERTS_H_
