#include "kernels/cuda/shared/route.h"

#include <cuda_device/launch.h>

#include "common/base/check.h"
#include "kernels/cuda/shared/route_warp.h"

namespace sluice::kernels::cuda {
namespace {

// A warp per token.
template <int kOwn>
struct RouteKernel {
  static constexpr int kThreads = kWarpLanes;
  static constexpr bool kWaitsItself = true;
  using Router = RouteWarp<kOwn>;
  using Args = RouteArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    typename Router::Corrections corrections;
    Router::Load(block, a, corrections);
    block.WaitForInputs();
    Router::Run(block, a, block.index(), corrections);
  }
};

}  // namespace

void Route(Stream stream, ConstMatrix logits, const RouterRule& rule,
           const float* correction, const RoutedRows& to) {
  SLUICE_CHECK(logits.cols == rule.num_experts);
  SLUICE_CHECK(1 <= rule.per_token && rule.per_token <= rule.num_experts);
  SLUICE_CHECK(rule.per_token <= kMaxExpertsPerToken);
  SLUICE_CHECK(1 <= rule.groups_per_token &&
               rule.groups_per_token <= rule.num_groups);
  SLUICE_CHECK(rule.num_groups == 1 ||
               (rule.num_experts % rule.num_groups == 0 &&
                rule.num_experts >= 2 * rule.num_groups));
  SLUICE_CHECK(to.plan.groups == nullptr ||
               (logits.rows == 1 && rule.per_token <= kMostPlanned));
  static_assert(kMostPlanned == kWarpLanes);
  const auto start = [&](auto kernel) {
    using Kernel = decltype(kernel);
    Launch<Kernel>(stream, logits.rows, Kernel::Router::SharedBytes(rule),
                   {logits, rule, correction, to});
  };
  const int32_t lanes = (rule.num_experts + kWarpLanes - 1) / kWarpLanes;
  if (lanes > 8 || rule.num_groups > 1 || rule.per_token > kWarpLanes) {
    return start(RouteKernel<0>());
  }
  if (lanes <= 1) return start(RouteKernel<1>());
  if (lanes <= 4) return start(RouteKernel<4>());
  start(RouteKernel<8>());
}

}  // namespace sluice::kernels::cuda
