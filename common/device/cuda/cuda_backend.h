#ifndef SLUICE_COMMON_DEVICE_CUDA_CUDA_BACKEND_H_
#define SLUICE_COMMON_DEVICE_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "common/device/backend.h"
#include "common/device/cuda/device_communicator.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/weight_type.h"

namespace sluice {

struct CudaBackendOptions {
  std::unique_ptr<kernels::cuda::Runtime> runtime;
  kernels::WeightType kv_type = kernels::WeightType::kF32;  // BF16, Q8_0
  // This rank's, made with the runtime.
  std::unique_ptr<DeviceCommunicator> communicator;
  int memory = 0;  // see BackendInfo
  // Products with weights that have tiles, and attention, on matrix units, with
  // numerics of their own (kernels/cuda/fast/products.h, fast/attention.h).
  bool fast = false;
  bool alone = true;  // the stage's only rank
};

// The GPU's number, name and id, for people.
std::string NameOf(const kernels::cuda::DeviceFacts& device);
// Of the memory that was free when the device was opened, what weights and KV
// cache may take: nine tenths. The rest is for the buffers of a step.
uint64_t AvailableOf(const kernels::cuda::DeviceFacts& device);
// The rest of it.
uint64_t ReserveOf(const kernels::cuda::DeviceFacts& device);

// Returns the backend over kernels/cuda on the runtime's device: in the CPU's
// arithmetic to the bit, or fast, with an id of the device's architecture,
// since the order of sums inside a matrix unit is its own. Operations are
// enqueued on one stream. The inputs of a step stand in buffers whose addresses
// stay from step to step.
std::unique_ptr<Backend> MakeCudaBackend(CudaBackendOptions options);

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_CUDA_BACKEND_H_
