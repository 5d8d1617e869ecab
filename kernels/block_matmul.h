#ifndef SLUICE_KERNELS_BLOCK_MATMUL_H_
#define SLUICE_KERNELS_BLOCK_MATMUL_H_

#include <cstdint>
#include <span>

#include "kernels/block_pack.h"
#include "kernels/context.h"
#include "kernels/matmul.h"
#include "kernels/views.h"

namespace sluice::kernels {
namespace cpu {
struct BlockOps;
}

// The arithmetic "q8-canonical-1": products of quantised weights with
// activations of eight bits.
//
// Activations. A row is cut into blocks of 32 or 256 elements. amax is the
// largest magnitude of a block. amax < 2^-100: codes and scale are 0.
// Otherwise scale = amax / 127, r = 127 / amax, code = x * r rounded half to
// even; every step is one IEEE F32 operation, and a code is within +-127.
//
// Products. An output element and shard has one F32 accumulator, +0 at first.
// For every block in rising k: i is the exact integer sum of weight times
// activation code, integer sub-scales and zero points inside; s = d_w * d_a,
// rounded once; acc = fma(float(i), s, acc). Formats with minima then add
// acc = fma(float(j), m_w * d_a, acc): j is the exact sum of activation code
// times integer sub-minimum (1 in short blocks), m_w the signed minimum (minus
// the stored one in long blocks). float() rounds to nearest even. MXFP4's
// codes count twice their values, its scale is 2^(e - 128). Shards are joined
// in the tree of reduction_tree.h. So the bits depend neither on the batch,
// nor on the split of rows, nor on the instruction set.

// Instruction sets with code of their own for these products. All give the
// same bits.
enum class DotIsa : uint8_t {
  kPortable,
  kAvx2,
  kAvxVnni,
  kAvx512,
  kAvx512Vnni,
  kNeon,
  kNeonDot,
  kNeonI8mm,
};
inline constexpr int kNumDotIsas = 8;

const char* ToString(DotIsa isa);
// Whether this CPU has `isa`.
bool HasDotIsa(DotIsa isa);
// The best set of this CPU within the vectors of `isa`.
DotIsa DotIsaFor(Isa isa);
// The functions of `isa`; of the portable set where this build has no code
// for `isa`.
const cpu::BlockOps& BlockOpsFor(DotIsa isa);

// What these products are handed.
struct DotContext {
  Executor* executor = nullptr;        // null: the calling thread alone
  const cpu::BlockOps* ops = nullptr;  // of a set that this CPU has
  BlockActivations activations = BlockActivations::kEightBits;
};

// Quantised activations [rows, cols] that somebody else owns, rows packed.
// `block` is 32 or 256 and divides cols.
struct QuantizedRows {
  int8_t* codes = nullptr;  // [rows, cols]
  float* scales = nullptr;  // [rows, cols / block]
  int16_t* sums = nullptr;  // [rows, cols / 16], of sixteen codes each
  int64_t rows = 0;
  int64_t cols = 0;
  int32_t block = kShortBlock;
};

// The block of activations that products with `format` read.
inline int32_t ActivationBlock(BlockFormat format) {
  return LayoutOf(format).elements;
}

// Quantises x [rows, cols] into `to`. finite[t] = false where row t has a NaN
// or an infinity; such blocks become zeros.
void QuantizeRows(const DotContext& context, ConstMatrix x,
                  const QuantizedRows& to, bool* finite);

// y[t, r] = dot(x[t, :], w[r, :]) + bias[r]; bias may be null (nothing is
// added). x [T, w.cols] has w's ActivationBlock; y [T, w.rows].
void BlockMatMul(const DotContext& context, const QuantizedRows& x,
                 const BlockWeight& w, const float* bias, Matrix y);

// As matmul.h's MatMulSharded; the bounds are multiples of w's block.
void BlockMatMulSharded(const DotContext& context, const QuantizedRows& x,
                        const BlockWeight& w, const ShardedCols& shards,
                        std::span<const Matrix> y);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_BLOCK_MATMUL_H_
