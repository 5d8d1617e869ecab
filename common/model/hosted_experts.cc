#include "common/model/hosted_experts.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/device/device_choice.h"
#include "common/model/expert_weights.h"
#include "common/model/gpu_support.h"
#include "common/model/local_experts.h"
#include "common/model_config/config_report.h"
#include "common/model_config/open_model.h"
#include "common/weights/model_file.h"
#include "common/weights/model_name.h"
#include "common/weights/weight_sums.h"

namespace sluice {

Status CheckHeld(const ModelConfig& config,
                 const std::vector<LayerRanges>& held) {
  const int32_t experts = config.moe().num_experts;
  if (experts == 0) {
    return InvalidArgument("model type ", config.model_type,
                           " with these sizes has no experts");
  }
  SLUICE_RETURN_IF_ERROR(CheckSameExperts(config));
  if (held.empty()) return InvalidArgument("no experts are named");
  int32_t before = -1;
  for (const LayerRanges& layer : held) {
    if (layer.layer < 0 || layer.layer >= config.num_layers()) {
      return InvalidArgument("layer ", layer.layer,
                             ": the model has layers 0 to ",
                             config.num_layers() - 1);
    }
    if (!config.is_sparse(layer.layer)) {
      return InvalidArgument("layer ", layer.layer, " has no experts, layers ",
                             SparseLayers(config), " have");
    }
    if (layer.layer <= before) {
      return InvalidArgument("layer ", layer.layer, " stands after layer ",
                             before);
    }
    before = layer.layer;
    int32_t lowest = 0;
    for (const ExpertRange& range : layer.ranges) {
      if (range.begin < lowest || range.begin >= range.end ||
          range.end > experts) {
        return InvalidArgument("experts [", range.begin, ", ", range.end,
                               ") of layer ", layer.layer, ": must be within [",
                               lowest, ", ", experts, ") and not empty");
      }
      lowest = range.end + 1;
    }
    if (layer.ranges.empty()) {
      return InvalidArgument("layer ", layer.layer,
                             " is named without experts");
    }
  }
  return OkStatus();
}

HostedExperts::~HostedExperts() = default;

StatusOr<std::string> HostedExperts::ChooseDevice(const std::string& device) {
  SLUICE_ASSIGN_OR_RETURN(std::string chosen, sluice::ChooseDevice(device));
  SLUICE_ASSIGN_OR_RETURN(const DeviceChoice choice, ParseDevice(chosen));
  if (choice.gpus.size() <= 1) return chosen;
  return InvalidArgument("device '", device,
                         "': a host of experts computes on ",
                         "one GPU; start a host for each");
}

Status HostedExperts::CheckNumerics(const std::string& device,
                                    const std::string& numerics) {
  return sluice::CheckNumerics(device, numerics);
}

Status HostedExperts::CheckActivations(const HostedExpertsOptions& options) {
  return sluice::CheckActivations(options.activations, options.device,
                                  options.numerics);
}

StatusOr<std::unique_ptr<HostedExperts>> HostedExperts::Load(
    const HostedExpertsOptions& options) {
  const TimePoint start = Clock::now();
  if (options.threads < 0 || options.threads > 1024) {
    return InvalidArgument("threads must be between 0 and 1024, got ",
                           options.threads);
  }
  SLUICE_ASSIGN_OR_RETURN(auto file, OpenModel(options.model_path));
  auto hosted = std::unique_ptr<HostedExperts>(new HostedExperts());
  SLUICE_ASSIGN_OR_RETURN(hosted->config_, ParseModelConfig(file->config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(hosted->config_, *file));
  SLUICE_RETURN_IF_ERROR(CheckHeld(hosted->config_, options.held));
  SLUICE_ASSIGN_OR_RETURN(
      auto backends,
      options.make_backends({.threads = options.threads,
                             .pin_threads = options.pin_threads,
                             .isa = options.isa,
                             .name = "expert",
                             .device = options.device,
                             .numerics = options.numerics,
                             .activations = options.activations}));
  hosted->backend_ = std::move(backends[0]);
  const BackendInfo& device = hosted->backend_->info();
  if (!device.gpu.empty()) {
    SLUICE_RETURN_IF_ERROR(CheckGpuHasExperts(hosted->config_));
  }
  hosted->info_.numerics = device.numerics;
  hosted->info_.threads = device.threads;
  hosted->info_.isa = device.isa;
  hosted->info_.gpu = device.gpu;
  SLUICE_RETURN_IF_ERROR(hosted->LoadAll(options, *file));
  HostedExpertsInfo& info = hosted->info_;
  info.bytes_read = file->bytes_read();
  // Returns to the system the memory of reading, beside the weights.
  file.reset();
  malloc_trim(0);
  info.load_seconds = Seconds(Clock::now() - start);
  return hosted;
}

Status HostedExperts::LoadAll(const HostedExpertsOptions& options,
                              weights::ModelFile& file) {
  SLUICE_ASSIGN_OR_RETURN(const auto digest, weights::ComputeIdentity(file));
  SLUICE_RETURN_IF_ERROR(weights::UseWeightSums(file, digest));
  LogUnreadKeys(file);
  info_.model_name = weights::ModelName(file);
  info_.model_digest = digest.Hex();
  info_.weights = options.weights;
  info_.num_layers = config_.num_layers();
  info_.hidden_size = config_.hidden_size;
  info_.num_experts = config_.moe().num_experts;
  info_.experts_per_token = config_.moe().experts_per_token;
  info_.held = options.held;

  const WeightFormatSet formats = FormatsOf(config_, file, options.weights);
  SLUICE_RETURN_IF_ERROR(CheckWidened(options.activations, formats, info_.gpu));
  PackedWeights packed(BoundFor(options.packed, config_, file, options.weights),
                       options.threads, file, digest.Hex());
  ExpertLoader loader(file, config_, options.weights, &packed);
  uint64_t total = 0;
  uint64_t loaded = 0;
  for (const LayerRanges& layer : options.held) {
    for (const ExpertRange& range : layer.ranges) {
      total += loader.StoredBytes(layer.layer, range);
      loaded += loader.LoadedBytes(layer.layer, range);
    }
  }
  const BackendInfo& device = backend_->info();
  if (!device.device.empty() && loaded > device.available_memory) {
    return ResourceExhausted(device.device, ": the experts take ", loaded,
                             " bytes, free beside the reserve are ",
                             device.available_memory);
  }
  uint64_t done = 0;
  const BytesRead read = [&](uint64_t bytes) {
    done += bytes;
    if (options.progress) options.progress(done, total);
  };
  for (const LayerRanges& layer : options.held) {
    for (const ExpertRange& range : layer.ranges) {
      SLUICE_ASSIGN_OR_RETURN(ExpertWeights experts,
                              loader.Load(layer.layer, range, *backend_, read));
      info_.weights_bytes += experts.bytes();
      layers_[layer.layer].push_back(std::move(experts));
    }
  }
  packed.LogUse();
  info_.weights_dtype = formats.names();
  info_.numerics = formats.numerics(info_.numerics, options.activations);
  return OkStatus();
}

DeviceMatrix HostedExperts::OnDevice(size_t slot, DeviceMatrix host) {
  SLUICE_CHECK(host.stride == host.cols);
  if (backend_->info().shares_host_memory) return host;
  if (staging_.size() <= slot) staging_.resize(slot + 1);
  const size_t bytes = BytesOf(host.type) * host.rows * host.cols;
  if (staging_[slot].bytes() < bytes) {
    staging_[slot] = backend_->Allocate(bytes);
  }
  host.data = staging_[slot].data();
  return host;
}

void HostedExperts::Run(const RoutedRows& routed,
                        std::span<const kernels::TreeNode> nodes,
                        std::span<const kernels::Matrix> parts) {
  SLUICE_CHECK(nodes.size() == parts.size());
  const int64_t rows = routed.x.rows;
  const int64_t k = routed.routing.per_token;
  auto* const host_x = const_cast<float*>(routed.x.data);  // only read
  const DeviceMatrix x =
      OnDevice(0, {host_x, rows, routed.x.cols, routed.x.stride});
  const DeviceRouting routing = {
      OnDevice(1, {routed.routing.ids, rows, k, k, ElementType::kInt32}),
      OnDevice(2, {routed.routing.weights, rows, k, k})};
  parts_.clear();
  for (const kernels::Matrix& part : parts) {
    parts_.push_back(OnDevice(3 + parts_.size(),
                              {part.data, part.rows, part.cols, part.stride}));
  }
  const bool copies = !backend_->info().shares_host_memory;
  backend_->BeginStep(no_tokens_);
  if (copies) {
    backend_->CopyIn(routed.x.data, x);
    backend_->CopyIn(routed.routing.ids, routing.ids);
    backend_->CopyIn(routed.routing.weights, routing.weights);
  }
  size_t first = 0;
  for (const ExpertWeights& experts : layers_.at(routed.layer)) {
    size_t last = first;
    while (last < nodes.size() &&
           nodes[last].end <= experts.first + experts.size()) {
      ++last;
    }
    if (last == first) continue;
    backend_->ExpertNodes(x, routing, experts,
                          config_.layers[routed.layer].moe.activation,
                          nodes.subspan(first, last - first),
                          std::span(parts_).subspan(first, last - first));
    first = last;
  }
  SLUICE_CHECK(first == nodes.size());
  for (size_t i = 0; copies && i < parts.size(); ++i) {
    backend_->CopyOut(parts_[i], parts[i].data);
  }
  backend_->EndStep();
}

}  // namespace sluice
