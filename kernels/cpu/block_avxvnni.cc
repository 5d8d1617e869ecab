#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/block_ops.h"

// Everything below is private to this source: it is compiled with flags of
// its own, so no symbol may be shared with code for other CPUs.
namespace sluice::kernels::cpu {
namespace {

#include "kernels/cpu/block_x86.inc"
//
#include "kernels/cpu/block_vec_256.inc"

inline I DotBytes(I sum, B codes, B x) {
  return __builtin_bit_cast(
      I, _mm256_dpbusd_avx_epi32(__builtin_bit_cast(__m256i, sum),
                                 __builtin_bit_cast(__m256i, codes),
                                 __builtin_bit_cast(__m256i, x)));
}
//
#include "kernels/cpu/block_dot_bytes.inc"
//
#include "kernels/cpu/block_formats_body.inc"
//
#include "kernels/cpu/block_lane_sums.inc"
//
#include "kernels/cpu/block_quantize_body.inc"
//
#include "kernels/cpu/block_body.inc"

}  // namespace

const BlockOps kAvxVnniBlockOps = OpsOfSet(kAvx2WideOps);

}  // namespace sluice::kernels::cpu
