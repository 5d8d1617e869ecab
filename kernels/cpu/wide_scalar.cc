#include <cstdint>

#include "kernels/cpu/wide_ops.h"

// Everything below is private to this source: it is compiled with flags of
// its own, so no symbol may be shared with code for other CPUs.
namespace sluice::kernels::cpu {
namespace {

inline void Fetch(const uint8_t*) {}
//
#include "kernels/cpu/block_vec_scalar.inc"
//
#include "kernels/cpu/block_formats_body.inc"

constexpr bool kFuses = false;
constexpr int kOneLanes = 8;
constexpr int kFewLanes = 4;
constexpr int kFewColumns = 2;
//
#include "kernels/cpu/wide_body.inc"

}  // namespace

const WideOps kScalarWideOps = kWideOpsOfSet;

}  // namespace sluice::kernels::cpu
