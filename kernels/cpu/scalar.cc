#include <cstdint>

#include "kernels/cpu/ops.h"

// Everything below is private to this source: it is compiled with flags of
// its own, so no symbol may be shared with code for other CPUs.
namespace sluice::kernels::cpu {
namespace {

#include "kernels/cpu/vec_scalar.inc"
//
#include "kernels/cpu/matmul_body.inc"
//
#include "kernels/cpu/elementwise_body.inc"
//
#include "kernels/cpu/sampling_body.inc"
//
#include "kernels/cpu/attention_body.inc"
//
#include "kernels/cpu/attention_lanes_body.inc"
//
#include "kernels/cpu/recurrence_body.inc"

}  // namespace

const Ops kScalarOps = {
    .of_type = kWeightOps,
    .attention = kAttentionOps,
    .tile_columns = kTileCols,
    .dot = Dot,
    .scale_multiply = ScaleMultiply,
    .rotate = Rotate,
    .silu_multiply = SiluMultiply,
    .clamped_swiglu = ClampedSwiGlu,
    .gelu_multiply = GeluMultiply,
    .soft_cap = SoftCap,
    .sigmoid = Sigmoid,
    .exp_all = ExpAll,
    .add = AddTo,
    .exp = Exp,
    .max = MaxOf,
    .sum_exp = SumExp,
    .piece_maxima = PieceMaxima,
    .weight_sums = WeightSums,
    .weights = Weights,
    .select_not_below = SelectNotBelow,
    .count_above = CountAbove,
    .lane_queries = kLaneQueries,
    .join_lanes = JoinLanes,
    .join_scaled = JoinScaled,
    .convolve = ConvolveRow,
    .state_columns = kStateColumns,
    .recur = Recur,
};

}  // namespace sluice::kernels::cpu
