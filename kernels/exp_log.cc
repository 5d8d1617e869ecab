#include "kernels/exp_log.h"

#include <bit>
#include <cstdint>

#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {

float Exp(float x) { return cpu::OpsFor(Isa::kPortable).exp(x); }

double Log(double x) {
  // Plain operations, each rounded once: no fused ones, no library. x = m *
  // 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh((m - 1) / (m + 1)).
  int exponent = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    exponent = -54;
  }
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD;
  const uint64_t bits = std::bit_cast<uint64_t>(x) - kSqrtHalf;
  exponent += static_cast<int>(static_cast<int64_t>(bits) >> 52);
  const double m =
      std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFF) + kSqrtHalf);
  const double f = (m - 1.0) / (m + 1.0);
  const double f2 = f * f;
  double series = 1.0 / 21;
  for (int n = 19; n >= 3; n -= 2) series = series * f2 + 1.0 / n;
  const double log_m = 2.0 * f + 2.0 * f * f2 * series;
  // ln 2 in two parts; a whole number times the first is exact.
  const double e = exponent;
  return e * 0x1.62e42feep-1 + (e * 0x1.a39ef35793c76p-33 + log_m);
}

}  // namespace sluice::kernels
