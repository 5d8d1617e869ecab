#include "tests/kernels/block_avxvnni_emulated.h"

#include <immintrin.h>

#include <cstdint>

namespace sluice::kernels::cpu {
namespace {

#include "kernels/cpu/block_x86.inc"
//
#include "kernels/cpu/block_vec_256.inc"

// What vpdpbusd does: even bytes and odd ones, as words.
inline I DotBytes(I sum, B codes, B x) {
  const __m256i w = __builtin_bit_cast(__m256i, codes);
  const __m256i a = __builtin_bit_cast(__m256i, x);
  const __m256i even =
      _mm256_madd_epi16(_mm256_and_si256(w, _mm256_set1_epi16(255)),
                        _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8));
  const __m256i odd =
      _mm256_madd_epi16(_mm256_srli_epi16(w, 8), _mm256_srai_epi16(a, 8));
  return sum + __builtin_bit_cast(I, even) + __builtin_bit_cast(I, odd);
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

const BlockOps kEmulatedAvxVnniBlockOps = OpsOfSet(kAvx2WideOps);

}  // namespace sluice::kernels::cpu
