#include "kernels/rope.h"

#include <cmath>
#include <cstdint>

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {
namespace {

struct SinCos {
  double sin;
  double cos;
};

// Sine and cosine of 0 <= x < 2^20, from plain operations each rounded once.
SinCos SinCosOf(double x) {
  // pi / 2 in parts of 33 bits: a multiple below 2^20 of each is exact.
  constexpr double kHalfPi1 = 0x1.921fb544p+0;
  constexpr double kHalfPi2 = 0x1.0b4611a6p-34;
  constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  const double n = std::floor(x * kTwoOverPi + 0.5);
  const double r = ((x - n * kHalfPi1) - n * kHalfPi2) - n * kHalfPi3;
  const double r2 = r * r;
  // Taylor series at |r| <= pi / 4: the next terms are below 2^-56.
  double s = 1.0;
  for (int k = 17; k >= 3; k -= 2) s = 1.0 - r2 / (k * (k - 1)) * s;
  s *= r;
  double c = 1.0;
  for (int k = 18; k >= 2; k -= 2) c = 1.0 - r2 / (k * (k - 1)) * c;
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

}  // namespace

void MakeRopeTable(std::span<const double> inv_freq, RopeRows rows,
                   double scale, float* cos, float* sin) {
  const auto half = static_cast<int64_t>(inv_freq.size());
  for (int64_t p = rows.first; p < rows.last; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const SinCos both = SinCosOf(static_cast<double>(p) * inv_freq[i]);
      cos[p * half + i] = static_cast<float>(both.cos * scale);
      sin[p * half + i] = static_cast<float>(both.sin * scale);
    }
  }
}

void Rope(const Context& context, Matrix x, int64_t head_dim, RopeStyle style,
          const RopeTable& table, const int32_t* positions) {
  SLUICE_CHECK(head_dim > 0 && x.cols % head_dim == 0);
  SLUICE_CHECK(2 * table.half <= head_dim);
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  const bool split = style == RopeStyle::kHalfSplit;
  const int tasks = cpu::NumTasks(context, x.rows * x.cols);
  ParallelFor(context, tasks, [&](int task) {
    const cpu::Range tokens = cpu::PartOf(x.rows, task, tasks, 1);
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      SLUICE_CHECK(positions[t] >= 0 && positions[t] < table.positions);
      const float* cos = table.cos + positions[t] * table.half;
      const float* sin = table.sin + positions[t] * table.half;
      for (int64_t at = 0; at < x.cols; at += head_dim) {
        float* a = x.row(t) + at;
        ops.rotate(a, a + (split ? table.half : 1), cos, sin, table.half,
                   split ? 1 : 2);
      }
    }
  });
}

}  // namespace sluice::kernels
