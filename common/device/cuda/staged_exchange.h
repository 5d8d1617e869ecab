#ifndef SLUICE_COMMON_DEVICE_CUDA_STAGED_EXCHANGE_H_
#define SLUICE_COMMON_DEVICE_CUDA_STAGED_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/concurrency/meeting_point.h"
#include "common/device/cuda/device_exchange.h"

namespace sluice {

// Copies through the host's memory, for devices that reach each other in no
// other way. A rank waits for its stream, then for the others.
class StagedExchange final : public DeviceExchange {
 public:
  explicit StagedExchange(int num_ranks)
      : meeting_(num_ranks), slabs_(static_cast<size_t>(num_ranks)) {}

  void AllGather(int rank, kernels::cuda::Runtime& runtime, const float* send,
                 float* recv, int64_t count) override;
  bool waits() const override { return true; }

 private:
  // One rank's floats on the host, where its device copies fast.
  struct alignas(64) Slab {
    std::shared_ptr<void> data;
    int64_t floats = 0;
  };
  MeetingPoint meeting_;
  std::vector<Slab> slabs_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_STAGED_EXCHANGE_H_
