#include <arm_neon.h>

#include <cstdint>

#include "kernels/cpu/block_ops.h"

// Everything below is private to this source: it is compiled with flags of
// its own, so no symbol may be shared with code for other CPUs.
namespace sluice::kernels::cpu {
namespace {

#include "kernels/cpu/block_vec_neon.inc"

inline I DotSignedBytes(I sum, B codes, B x) {
  return __builtin_bit_cast(I, vdotq_s32(__builtin_bit_cast(int32x4_t, sum),
                                         __builtin_bit_cast(int8x16_t, codes),
                                         __builtin_bit_cast(int8x16_t, x)));
}
// sum[2 * i + j] += the product of row i of `rows` with row j of `columns`, two
// rows of eight bytes each.
inline I AddMatrices(I sum, B rows, B columns) {
  return __builtin_bit_cast(I,
                            vmmlaq_s32(__builtin_bit_cast(int32x4_t, sum),
                                       __builtin_bit_cast(int8x16_t, rows),
                                       __builtin_bit_cast(int8x16_t, columns)));
}
inline B ZipLow(B a, B b) {
  return __builtin_bit_cast(B, vzip1q_u32(__builtin_bit_cast(uint32x4_t, a),
                                          __builtin_bit_cast(uint32x4_t, b)));
}
inline B ZipHigh(B a, B b) {
  return __builtin_bit_cast(B, vzip2q_u32(__builtin_bit_cast(uint32x4_t, a),
                                          __builtin_bit_cast(uint32x4_t, b)));
}
// a[0], b[0], a[1], b[1].
inline B ZipWords(const uint32_t* a, const uint32_t* b) {
  const uint32x2x2_t words = vzip_u32(vld1_u32(a), vld1_u32(b));
  return __builtin_bit_cast(B, vcombine_u32(words.val[0], words.val[1]));
}
inline I EvenLanes(I a, I b) {
  return __builtin_bit_cast(I, vuzp1q_s32(__builtin_bit_cast(int32x4_t, a),
                                          __builtin_bit_cast(int32x4_t, b)));
}
inline I OddLanes(I a, I b) {
  return __builtin_bit_cast(I, vuzp2q_s32(__builtin_bit_cast(int32x4_t, a),
                                          __builtin_bit_cast(int32x4_t, b)));
}
//
#include "kernels/cpu/block_dot_signed.inc"
//
#include "kernels/cpu/block_formats_body.inc"
//
#include "kernels/cpu/block_matrix_sums.inc"
//
#include "kernels/cpu/block_quantize_body.inc"
//
#include "kernels/cpu/block_body.inc"

}  // namespace

const BlockOps kNeonI8mmBlockOps = OpsOfSet(kNeonWideOps);

}  // namespace sluice::kernels::cpu
