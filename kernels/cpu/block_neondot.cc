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
//
#include "kernels/cpu/block_dot_signed.inc"
//
#include "kernels/cpu/block_formats_body.inc"
//
#include "kernels/cpu/block_lane_sums.inc"
//
#include "kernels/cpu/block_quantize_body.inc"
//
#include "kernels/cpu/block_body.inc"

}  // namespace

const BlockOps kNeonDotBlockOps = OpsOfSet(kNeonWideOps);

}  // namespace sluice::kernels::cpu
