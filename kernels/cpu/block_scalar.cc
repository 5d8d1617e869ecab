#include <cstdint>

#include "kernels/cpu/block_ops.h"

// Everything below is private to this source: it is compiled with flags of
// its own, so no symbol may be shared with code for other CPUs.
namespace sluice::kernels::cpu {
namespace {

inline void Fetch(const uint8_t*) {}
inline void FetchLater(const uint8_t*) {}
inline int16_t SumOfSixteen(const int8_t* codes) {
  int sum = 0;
  for (int i = 0; i < 16; ++i) sum += codes[i];
  return static_cast<int16_t>(sum);
}
//
#include "kernels/cpu/block_vec_scalar.inc"
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

const BlockOps kScalarBlockOps = OpsOfSet(kScalarWideOps);

}  // namespace sluice::kernels::cpu
