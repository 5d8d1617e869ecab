#ifndef SLUICE_COMMON_DEVICE_CUDA_ROUTE_PLANS_H_
#define SLUICE_COMMON_DEVICE_CUDA_ROUTE_PLANS_H_

#include <cstdint>

#include "common/device/cuda/cuda_memory.h"
#include "common/device/weight.h"
#include "kernels/cuda/shared/expert_groups.h"
#include "kernels/cuda/shared/gather.h"
#include "kernels/route.h"

namespace sluice {

// The plan that the router of a token alone makes for the products of its
// experts, and for whose ids it is. Used by one thread.
class RoutePlans {
 public:
  explicit RoutePlans(kernels::cuda::Runtime* runtime)
      : memory_(runtime), arrived_(runtime) {
    kernels::cuda::Fill(runtime->stream(), 0.0f,
                        {arrived_.AtLeast<float>(1), 1, 1, 1});
  }

  // What a router of `rows` tokens is to make beside `ids`; the plan before it
  // is gone.
  kernels::cuda::ExpertPlan NewPlan(int64_t rows,
                                    const kernels::RouterRule& rule,
                                    const void* ids) {
    Forget();
    if (rows != 1 || rule.per_token > kernels::cuda::kMostPlanned) return {};
    ids_ = ids;
    num_experts_ = rule.num_experts;
    return Plan();
  }
  // The plan of `ids` of `rows` tokens, if there is one: all of a layer's
  // experts are at hand.
  kernels::cuda::ExpertPlan Find(int64_t rows, const ExpertWeights& experts,
                                 const void* ids) {
    if (rows != 1 || ids_ == nullptr || ids != ids_ || experts.first != 0 ||
        experts.size() != num_experts_) {
      return {};
    }
    return Plan();
  }
  // The blocks of a router that have arrived: zero between launches.
  uint32_t* arrived() { return arrived_.AtLeast<uint32_t>(1); }
  // The ids may be others than the router's.
  void Forget() { ids_ = nullptr; }

 private:
  kernels::cuda::ExpertPlan Plan() {
    using kernels::cuda::ExpertGroup;
    using kernels::cuda::kMostPlanned;
    auto* const groups = memory_.AtLeast<ExpertGroup>(2 * kMostPlanned);
    auto* const words = reinterpret_cast<int32_t*>(groups + kMostPlanned);
    return {groups, words, words + 1, words + 1 + kMostPlanned};
  }

  GrowingMemory memory_;
  GrowingMemory arrived_;
  const void* ids_ = nullptr;
  int32_t num_experts_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_ROUTE_PLANS_H_
