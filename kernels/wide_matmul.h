#ifndef SLUICE_KERNELS_WIDE_MATMUL_H_
#define SLUICE_KERNELS_WIDE_MATMUL_H_

#include <span>

#include "kernels/block_matmul.h"
#include "kernels/block_pack.h"
#include "kernels/matmul.h"
#include "kernels/views.h"

namespace sluice::kernels {

// Products of weights of blocks with F32 activations. Weights stay packed in
// memory; an element is widened, as WidenBlocks has it, when it is multiplied.
// The arithmetic is matmul.h's over the widened elements: the bits are those of
// MatMul and MatMulSharded with the same weight as F32, if its scales are
// finite and below 2^124. Every instruction set gives the same bits. (An
// element of 0 is +0 here, which only a sum that underflowed to -0 could tell.)

// y[t, r] = dot(x[t, :], w[r, :]) + bias[r]; bias may be null (nothing is
// added). x [T, w.cols], y [T, w.rows]; y must not overlap x.
void WideMatMul(const DotContext& context, ConstMatrix x, const BlockWeight& w,
                const float* bias, Matrix y);

// As matmul.h's MatMulSharded; the bounds are multiples of w's block.
void WideMatMulSharded(const DotContext& context, ConstMatrix x,
                       const BlockWeight& w, const ShardedCols& shards,
                       std::span<const Matrix> y);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_WIDE_MATMUL_H_
