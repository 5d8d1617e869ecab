#ifndef SLUICE_COMMON_DEVICE_MAKE_BACKENDS_H_
#define SLUICE_COMMON_DEVICE_MAKE_BACKENDS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/device/backend.h"
#include "kernels/block_format.h"
#include "kernels/weight_type.h"

namespace sluice {

struct BackendOptions {
  int32_t ranks = 1;
  // Compute threads of all ranks together, shared out evenly, at least one
  // per rank; 0: as many as this process has cores.
  int32_t threads = 0;
  // Pins each compute thread to a core of its own if there are enough.
  bool pin_threads = false;
  std::string isa = "auto";  // see ParseIsa in cpu_options.h
  std::string name;          // of the teams; empty: rank0, rank1, ...
  // What keys and values are kept in: F32, BF16 or Q8_0.
  kernels::WeightType kv_type = kernels::WeightType::kF32;
  // See ParseDevice in device_choice.h. On one GPU ranks are virtual: they
  // share it; on several, each has its own (RanksOn). Threads, pins and the isa
  // have no meaning there.
  std::string device = "cpu";
  std::string numerics = "auto";  // see ParseNumerics in device_choice.h
  // F32: blocks are widened; see CheckActivations and CheckWidened there.
  kernels::BlockActivations activations = kernels::BlockActivations::kEightBits;
  // Of a stage whose ranks are of several processes: this one has ranks
  // [first_rank, first_rank + ranks) of all_ranks; 0: it has all. They need
  // GPUs, one for each rank, and NCCL.
  int32_t first_rank = 0;
  int32_t all_ranks = 0;
  // Returns, on every process, the id by which the ranks' devices connect: the
  // process of rank 0 passes what NCCL made, others pass nothing and wait for
  // it.
  std::function<StatusOr<std::string>(std::string own)> share_id;
};

// One memory that a stage's ranks compute in.
struct FoundDevice {
  std::string name;  // for people
  // Bytes that weights and KV cache may take: see BackendInfo.
  uint64_t available = 0;
  // What a GPU's memory allows by its clock and bus; 0: not known.
  double bytes_per_second = 0;
};

// Returns the devices of ParseDevice's `text`, of the same errors as
// MakeBackends. Opens each GPU: CUDA then keeps some hundred MiB of it for this
// process until it ends.
StatusOr<std::vector<FoundDevice>> FindDevices(const std::string& text);

// Tokens of a step, unless --max-step-tokens gives them. A prompt's products
// fill a large GPU from some 1,000 on; a step's buffers take the tenth of a
// GPU's memory that weights and KV cache leave: 2,048 tokens of the largest
// models take 2.2 GB.
inline constexpr int32_t kStepTokens = 512;
inline constexpr int32_t kGpuStepTokens = 2048;
// `available`: a rank's bytes of weights and KV cache.
constexpr int32_t StepTokensOfGpu(uint64_t available) {
  return available >= uint64_t{32} << 30 ? kGpuStepTokens : kStepTokens;
}
// Returns the tokens of a step of `ranks` ranks on ParseDevice's `text`: those
// of the GPU with the least memory for each rank. Errors and cost as
// FindDevices'.
StatusOr<int32_t> StepTokensOn(const std::string& text, int32_t ranks);

// Returns the number of GPUs that the process sees, at least 1;
// FAILED_PRECONDITION if there is none, or if this build has no CUDA.
StatusOr<int> CountGpus();

// Makes one backend per rank, in order, connected to each other.
using BackendFactory =
    std::function<StatusOr<std::vector<std::unique_ptr<Backend>>>(
        const BackendOptions& options)>;

// Makes backends of this machine's devices. INVALID_ARGUMENT for an isa that
// does not exist or that this machine lacks, and for a device or numerics that
// do not exist, or do not go together, and for ranks that a process cannot
// have; FAILED_PRECONDITION for a GPU that is not there, that is too old, or
// that this build has no code for; for ranks of several processes UNAVAILABLE
// where NCCL does not connect them, FAILED_PRECONDITION where it is not there.
StatusOr<std::vector<std::unique_ptr<Backend>>> MakeBackends(
    const BackendOptions& options);

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_MAKE_BACKENDS_H_
