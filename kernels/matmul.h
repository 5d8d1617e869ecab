#ifndef SLUICE_KERNELS_MATMUL_H_
#define SLUICE_KERNELS_MATMUL_H_

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/reduction_tree.h"
#include "kernels/views.h"

namespace sluice::kernels {

// The canonical dot product of n elements: 16 F32 lanes start at +0; element
// k is fused-multiply-added to lane k % 16 in rising k; then
// l[i] += l[i + 8] for i < 8, l[i] += l[i + 4] for i < 4, l[i] += l[i + 2]
// for i < 2, and the result is l[0] + l[1]. Every product below is made of
// these, so its bits depend neither on the batch nor on the instruction set.

// The bytes of `elements` elements of a plain type, whole runs of codes.
int64_t PlainBytes(WeightType type, int64_t elements);

// y[t, r] = dot(x[t, :], w[r, :]) + bias[r]. bias may be null (nothing is
// added). x [T, w.cols], y [T, w.rows]; y must not overlap x.
void MatMul(const Context& context, ConstMatrix x, const WeightView& w,
            const float* bias, Matrix y);

// A product whose input dimension is cut into shards: shard s (a leaf of the
// reduction tree) covers columns [bounds[s], bounds[s+1]) of w and x; a shard
// may be empty and then is +0. nodes[i] names the shards that output i joins
// in tree order, counted from the first shard of this view; nodes rise and do
// not overlap. At most 64 shards.
struct ShardedCols {
  std::span<const int32_t> bounds;  // S+1 rising, 0 .. w.cols
  std::span<const TreeNode> nodes;  // within [0, S), tree of its own shards
};

// y[i][t, r] = tree over s in nodes[i] of dot(x[t, shard s], w[r, shard s]).
// y: nodes.size() matrices [T, w.rows].
void MatMulSharded(const Context& context, ConstMatrix x, const WeightView& w,
                   const ShardedCols& shards, std::span<const Matrix> y);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_MATMUL_H_
