#ifndef SLUICE_KERNELS_CUDA_SHARED_ROUTE_H_
#define SLUICE_KERNELS_CUDA_SHARED_ROUTE_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/shared/expert_groups.h"
#include "kernels/route.h"

namespace sluice::kernels::cuda {

// What a router of T tokens makes, k for each. The plan, if it has groups, is
// what PlanExperts makes of the ids where all experts are at hand: of one token
// with at most kMostPlanned.
struct RoutedRows {
  int32_t* ids = nullptr;    // [T, k]
  float* weights = nullptr;  // [T, k]
  ExpertPlan plan;
};
// route.h's Route on a stream, with its contract and its bits. The rule is the
// host's, all other memory the device's.
void Route(Stream stream, ConstMatrix logits, const RouterRule& rule,
           const float* correction, const RoutedRows& to);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_ROUTE_H_
