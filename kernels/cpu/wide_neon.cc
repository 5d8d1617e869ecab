#include <arm_neon.h>

#include <cstdint>

#include "kernels/cpu/wide_ops.h"

// Everything below is private to this source: it is compiled with flags of
// its own, so no symbol may be shared with code for other CPUs.
namespace sluice::kernels::cpu {
namespace {

#include "kernels/cpu/block_vec_neon.inc"
//
#include "kernels/cpu/block_formats_body.inc"

constexpr bool kFuses = true;
constexpr int kOneLanes = 16;
constexpr int kFewLanes = 4;
constexpr int kFewColumns = 5;
//
#include "kernels/cpu/wide_body.inc"

}  // namespace

const WideOps kNeonWideOps = kWideOpsOfSet;

}  // namespace sluice::kernels::cpu
