#include "common/model_config/portable_math.h"

#include <cmath>

namespace sluice {
namespace {

// A number of about 106 bits: hi is the nearest double, lo the remainder.
struct Pair {
  double hi = 0.0;
  double lo = 0.0;
};

constexpr Pair kLn2{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
constexpr double kSqrtHalf = 0x1.6a09e667f3bcdp-1;
// Terms of the series; the next term is below 2^-107 of the sum.
constexpr int kLogTerms = 22;
constexpr int kExpTerms = 28;

// a + b without loss (Knuth).
Pair Sum(double a, double b) {
  const double sum = a + b;
  const double part = sum - a;
  return {sum, (a - (sum - part)) + (b - part)};
}

Pair Product(double a, double b) {
  const double product = a * b;
  return {product, std::fma(a, b, -product)};
}

Pair Add(Pair a, Pair b) {
  const Pair high = Sum(a.hi, b.hi);
  const Pair low = Sum(a.lo, b.lo);
  const Pair sum = Sum(high.hi, high.lo + low.hi);
  return Sum(sum.hi, sum.lo + low.lo);
}

Pair Multiply(Pair a, Pair b) {
  const Pair high = Product(a.hi, b.hi);
  return Sum(high.hi, high.lo + (a.hi * b.lo + a.lo * b.hi));
}

Pair Divide(Pair a, Pair b) {
  Pair quotient;
  for (int digits = 0; digits < 3; ++digits) {
    const double next = a.hi / b.hi;
    quotient = Add(quotient, {next, 0.0});
    a = Add(a, Multiply(b, {-next, 0.0}));
  }
  return quotient;
}

// With m in [sqrt(1/2), sqrt(2)), x = m 2^e and s = (m - 1) / (m + 1):
// log x = e log 2 + 2 (s + s^3/3 + s^5/5 + ..).
Pair LogPair(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < kSqrtHalf) {
    m *= 2.0;
    --exponent;
  }
  const Pair s = Divide(Sum(m, -1.0), Sum(m, 1.0));
  const Pair square = Multiply(s, s);
  Pair series;
  for (int term = kLogTerms; term >= 0; --term) {
    series = Add(Multiply(series, square),
                 Divide({1.0, 0.0}, {2.0 * term + 1.0, 0.0}));
  }
  const Pair log_m = Multiply(Multiply(series, s), {2.0, 0.0});
  return Add(Multiply(kLn2, {static_cast<double>(exponent), 0.0}), log_m);
}

// With r = y - k log 2: e^y = 2^k (1 + r (1 + r/2 (1 + r/3 (..)))).
double ExpPair(Pair y) {
  const double k = std::floor(y.hi / kLn2.hi + 0.5);
  if (k > 2000.0) return HUGE_VAL;
  if (k < -2000.0) return 0.0;
  const Pair r = Add(y, Multiply(kLn2, {-k, 0.0}));
  Pair series{1.0, 0.0};
  for (int term = kExpTerms; term >= 1; --term) {
    const Pair step = Divide(r, {static_cast<double>(term), 0.0});
    series = Add({1.0, 0.0}, Multiply(series, step));
  }
  return std::ldexp(series.hi, static_cast<int>(k));
}

}  // namespace

double OwnLog(double x) { return LogPair(x).hi; }

double OwnPow(double base, double exponent) {
  return ExpPair(Multiply(LogPair(base), {exponent, 0.0}));
}

}  // namespace sluice
