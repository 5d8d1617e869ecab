#ifndef SLUICE_COMMON_DEVICE_CUDA_CUDA_BACKEND_H_
#define SLUICE_COMMON_DEVICE_CUDA_CUDA_BACKEND_H_

#include <memory>

#include "common/device/backend.h"
#include "common/device/cuda/virtual_ranks.h"
#include "kernels/cuda/runtime.h"
#include "kernels/weight_type.h"

namespace sluice {

struct CudaBackendOptions {
  std::unique_ptr<kernels::cuda::Runtime> runtime;
  kernels::WeightType kv_type = kernels::WeightType::kF32;  // BF16, Q8_0
  // Shared by the stage's backends, which have one device, with this one's
  // number among them.
  std::shared_ptr<VirtualRankTable> ranks;
  int rank = 0;
  // Products with weights that have tiles, and attention, on matrix units, with
  // numerics of their own (kernels/cuda/tile_products.h, tile_attention.h).
  bool fast = false;
};

// Returns the backend over kernels/cuda on the runtime's device: in the CPU's
// arithmetic to the bit, or fast, with an id of the device's architecture,
// since the order of sums inside a matrix unit is its own. Operations are
// enqueued on one stream. The inputs of a step stand in buffers whose addresses
// stay from step to step.
std::unique_ptr<Backend> MakeCudaBackend(CudaBackendOptions options);

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_CUDA_BACKEND_H_
