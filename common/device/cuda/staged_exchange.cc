#include "common/device/cuda/staged_exchange.h"

#include "common/base/cat.h"
#include "common/base/end_process.h"

namespace sluice {

void StagedExchange::AllGather(int rank, kernels::cuda::Runtime& runtime,
                               const float* send, float* recv, int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  Slab& own = slabs_[static_cast<size_t>(rank)];
  if (own.floats < count) {
    own.data = runtime.AllocateHost(bytes);
    if (own.data == nullptr) {
      EndToBeReplaced(Cat("the host has no ", bytes,
                          " bytes of pinned memory for rank ", rank));
    }
    own.floats = count;
  }
  runtime.CopyOut(send, own.data.get(), {bytes});
  runtime.Sync();
  meeting_.Arrive();
  for (const Slab& slab : slabs_) {
    runtime.CopyIn(slab.data.get(), recv, {bytes});
    recv += count;
  }
  runtime.Sync();
  meeting_.Arrive();  // slabs may change
}

}  // namespace sluice
