#ifndef SLUICE_KERNELS_ROPE_H_
#define SLUICE_KERNELS_ROPE_H_

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/views.h"

namespace sluice::kernels {

// Which two dimensions of a head rotate together.
enum class RopeStyle : uint8_t {
  kHalfSplit,    // (i, i + R/2): Hugging Face's rotate_half
  kInterleaved,  // (2i, 2i + 1)
};

// cos and sin of position * inv_freq, [positions, R/2] each, made from
// float64 (see MakeRopeTable). R = rotary dimensions, at most head_dim.
struct RopeTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t positions = 0;
  int64_t half = 0;  // R / 2
};

// Rows of a table: positions [first, last).
struct RopeRows {
  int64_t first = 0;
  int64_t last = 0;
};

// Fills these rows of cos and sin [positions, inv_freq.size()], `scale`
// multiplied in (YaRN's attention factor; 1 otherwise). Computed in float64
// with our own range reduction and polynomials, then rounded once, so that
// every machine has the same table. The error is about one bit for angles below
// 2^20.
void MakeRopeTable(std::span<const double> inv_freq, RopeRows rows,
                   double scale, float* cos, float* sin);

// Rotates every head of x [T, num_heads * head_dim] in place by its token's
// position: a' = fma(a, cos, -(b * sin)), b' = fma(b, cos, a * sin).
// positions [T], each below table.positions.
void Rope(const Context& context, Matrix x, int64_t head_dim, RopeStyle style,
          const RopeTable& table, const int32_t* positions);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_ROPE_H_
