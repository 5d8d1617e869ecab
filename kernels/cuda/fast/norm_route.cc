#include "kernels/cuda/fast/norm_route.h"

#include <cuda_device/launch.h>

#include "common/base/check.h"
#include "kernels/cuda/fast/norm_kernel.h"
#include "kernels/cuda/shared/math.h"
#include "kernels/cuda/shared/route_warp.h"
#include "kernels/cuda/shared/router_product.h"
#include "kernels/cuda/shared/row_quads.h"

namespace sluice::kernels::cuda {
namespace {

struct NormRouteArgs {
  TileNormArgs norm;
  const float* w;
  const float* bias;
  float* logits;
  RouteArgs route;
  uint32_t* arrived;
};

// A block per two outputs.
template <int kBlockThreads, int kOwn>
struct NormRouteKernel {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kRows = 2;
  static constexpr bool kWaitsItself = true;
  using Norm = TileNormKernel<kThreads>;
  using Router = RouteWarp<kOwn>;
  using Args = NormRouteArgs;

  static size_t SharedBytes(int64_t cols, const RouterRule& rule) {
    return Norm::kSharedBytes +
           (kRows + 1) * static_cast<size_t>(FewRowFloats(cols)) *
               sizeof(float) +
           Router::SharedBytes(rule);
  }
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int cols = a.norm.cols;
    const int step = FewRowFloats(cols);
    const auto partials = block.Allocate<float>(Norm::kWarps);
    const auto rows = block.Allocate<float>((kRows + 1) * step);
    const auto first = static_cast<int>(block.index()) * kRows;
    const int experts = a.route.rule.num_experts;
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = first + r < experts ? first + r : first;
      BringRow(block, a.w + row * cols, cols, rows, r * step);
    }
    typename Norm::Piece weights;
    Norm::Load(block, a.norm, a.norm.weight, 0, weights);
    typename Router::Corrections corrections;
    Router::Load(block, a.route, corrections);
    const int half = block.lane() / 16;
    const bool stores = first + half < experts && block.lane() % 16 == 0;
    const float bias =
        stores && a.bias != nullptr ? a.bias[first + half] : 0.0f;
    block.WaitForInputs();
    NormRow(block, a.norm, partials, weights, {rows, kRows * step});
    block.WaitCopies();
    block.Sync();
    if (block.warp() > 0) return;
    const float sum = SumLanes(
        block, LaneOfDot(block, rows, half * step, kRows * step, cols));
    if (stores) a.logits[first + half] = a.bias == nullptr ? sum : sum + bias;
    if (!block.ArriveLast(a.arrived, static_cast<uint32_t>(block.count()))) {
      return;
    }
    Router::Run(block, a.route, 0, corrections);
  }

  // Where a row is in shared memory.
  struct RowAt {
    const Shared<float>& rows;
    int at;
  };
  // The normed row to shared memory, and to that of the device by one block.
  static SLUICE_DEVICE void NormRow(Block& block, const TileNormArgs& a,
                                    const Shared<float>& partials,
                                    const typename Norm::Piece& weights,
                                    const RowAt& to) {
    typename Norm::Piece own;
    Norm::Load(block, a, a.x.data, 0, own);
    const float scale = Norm::ScaleOf(
        a, Norm::SumOfBlock(block, partials, Norm::AddSquares(own, 0.0f)));
    if (block.index() == 0) {
      Norm::Store(block, a, {own, weights, scale}, 0, a.y.data);
    }
    SLUICE_UNROLL
    for (int j = 0; j < Norm::kQuads; ++j) {
      const int column = Norm::ColumnOf(block, 0, j);
      if (column >= a.cols) continue;
      const Quad values = Norm::ScaledQuad({own, weights, scale}, j);
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        to.rows.Set(to.at + column + i, values.values[i]);
      }
    }
  }
};

template <int kThreads, int kOwn>
bool StartNormRoute(Stream stream, const NormRouteArgs& args) {
  using Kernel = NormRouteKernel<kThreads, kOwn>;
  const RouterRule& rule = args.route.rule;
  const size_t shared = Kernel::SharedBytes(args.norm.cols, rule);
  if (shared > LimitsOf(stream).shared_bytes) return false;
  Launch<Kernel>(stream, (rule.num_experts + Kernel::kRows - 1) / Kernel::kRows,
                 shared, args);
  return true;
}

template <int kThreads>
bool StartWith(Stream stream, const NormRouteArgs& args) {
  if (args.route.rule.num_experts <= kWarpLanes) {
    return StartNormRoute<kThreads, 1>(stream, args);
  }
  return StartNormRoute<kThreads, 8>(stream, args);
}

}  // namespace

bool NormRoute(Stream stream, const NormRouteCall& call) {
  const RouterRule& rule = call.rule;
  const int64_t cols = call.x.cols;
  SLUICE_CHECK(call.w.cols == cols && call.normed.cols == cols);
  SLUICE_CHECK(call.normed.data != call.x.data);
  SLUICE_CHECK(call.w.rows == rule.num_experts &&
               call.logits.cols == rule.num_experts);
  if (!LimitsOf(stream).asked.Has(Unconfirmed::kNormRoute)) return false;
  const bool quads = HasQuads(call.x) && HasQuads(call.normed) &&
                     HasQuads({call.norm_weight, 1, cols, cols});
  if (call.x.rows != 1 || call.w.type != WeightType::kF32 || !quads ||
      rule.num_groups > 1 || rule.num_experts > 8 * kWarpLanes ||
      rule.per_token > kWarpLanes || cols > TileNormKernel<512>::kPiece) {
    return false;
  }
  const NormRouteArgs args = {{call.x, nullptr, call.norm_weight, call.normed,
                               call.eps, static_cast<int32_t>(cols), 1},
                              static_cast<const float*>(call.w.data),
                              call.bias,
                              call.logits.data,
                              {call.logits, rule, call.correction, call.to},
                              call.arrived};
  return WithNormThreads(cols, [&](auto norm) {
    return StartWith<decltype(norm)::kThreads>(stream, args);
  });
}

}  // namespace sluice::kernels::cuda
