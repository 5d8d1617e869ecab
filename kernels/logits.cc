#include "kernels/logits.h"

#include <bit>
#include <cmath>

#include "common/base/check.h"
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

int64_t ArgMax(const Context& context, std::span<const float> logits) {
  SLUICE_CHECK(!logits.empty());
  const auto n = static_cast<int64_t>(logits.size());
  const float max = cpu::OpsFor(context.isa).max(logits.data(), n);
  for (int64_t i = 0; i < n; ++i) {
    if (logits[i] == max) return i;
  }
  return 0;  // NaN alone
}

float LogSumExp(const Context& context, std::span<const float> logits) {
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  const auto n = static_cast<int64_t>(logits.size());
  const float max = ops.max(logits.data(), n);
  if (std::isinf(max)) return max;
  const float sum = ops.sum_exp(logits.data(), max, n);
  if (std::isnan(sum)) return sum;
  return static_cast<float>(static_cast<double>(max) +
                            Log(static_cast<double>(sum)));
}

}  // namespace sluice::kernels
