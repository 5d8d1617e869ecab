#include <bit>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/ops.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

// Sixteen numbers whose bits are drawn at random: all exponents.
std::vector<float> AnyFloats(uint64_t seed, int64_t n) {
  std::vector<float> values;
  for (float x : RandomFloats(seed, 2 * n)) {
    const auto draw =
        static_cast<uint32_t>(static_cast<int32_t>(x * 0x1p23f) + (1 << 23));
    if (values.size() % 2 == 0) {
      values.push_back(std::bit_cast<float>(draw << 8));
    } else {
      values.push_back(std::bit_cast<float>((draw << 9) | (draw >> 15)));
    }
    if (static_cast<int64_t>(values.size()) == n) break;
  }
  return values;
}

// fma(b, eb, a * ea) of every set against the library's.
void ExpectExact(const std::vector<float>& a, float ea,
                 const std::vector<float>& b, float eb) {
  const auto n = static_cast<int64_t>(a.size());
  std::vector<const cpu::Ops*> all = {&cpu::kScalarOps};
  for (Isa isa : AvailableIsas()) all.push_back(&cpu::OpsFor(isa));
  for (const cpu::Ops* ops : all) {
    std::vector<float> got = a;
    ops->join_scaled(got.data(), ea, b.data(), eb, n);
    for (int64_t i = 0; i < n; ++i) {
      const float want = std::fma(b[i], eb, a[i] * ea);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got[i]));
        continue;
      }
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want))
          << a[i] << " " << b[i] << " " << eb;
    }
  }
}

TEST(FmaTest, IsRoundedOnceForNumbersOfAllSizes) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto factors = AnyFloats(seed + 1000, 2);
    ExpectExact(AnyFloats(seed, 160), 1.0f, AnyFloats(seed + 500, 160),
                factors[seed % 2]);
    ExpectExact(RandomFloats(seed, 160), 1.0f, RandomFloats(seed + 7, 160),
                RandomFloats(seed + 9, 1)[0]);
  }
}

TEST(FmaTest, IsRoundedOnceNextToHalfWay) {
  // 1 + 2^-24 is half-way between floats; a product far below the last place
  // of a double must still tip it.
  const std::vector<float> tiny = {0x1p-60f,  -0x1p-60f, 0x1p-90f, -0x1p-90f,
                                   0x1p-120f, 0.0f,      -0.0f,    0x1p-140f};
  for (float base : {1.0f, 1.0f + 0x1p-23f, -1.0f, 0x1p-100f, 0x1p100f}) {
    // a * ea rounds before the fused step, so the half is in the product:
    // b * eb = base * (2^-24 + a little) + base.
    for (float t : tiny) {
      const std::vector<float> a(16, base);
      const std::vector<float> b(16, base * (1.0f + 0x1p-23f));
      ExpectExact(a, 1.0f, b, 0x1p-24f);
      ExpectExact(a, 1.0f, b, -0x1p-24f);
      ExpectExact(a, 1.0f, std::vector<float>(16, base), 0x1p-24f);
      ExpectExact(a, 1.0f, std::vector<float>(16, base * t), 0.75f);
    }
  }
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24 is half-way; a rest that a double
  // cannot hold beside it decides.
  const float x = 1.0f + 0x1p-12f;
  for (float t : tiny) {
    ExpectExact(std::vector<float>(16, t), 1.0f, std::vector<float>(16, x), x);
    ExpectExact(std::vector<float>(16, t), 1.0f, std::vector<float>(16, -x), x);
  }
}

TEST(FmaTest, ScalarAndPortableAgreeOnDotsAndExponentials) {
  const cpu::Ops& portable = cpu::OpsFor(Isa::kPortable);
  for (int64_t n = 0; n < 100; ++n) {
    const auto a = RandomFloats(1, n);
    const auto b = RandomFloats(2, n);
    ASSERT_EQ(cpu::kScalarOps.dot(a.data(), b.data(), n),
              portable.dot(a.data(), b.data(), n));
    ASSERT_EQ(cpu::kScalarOps.sum_exp(a.data(), 1.0f, n),
              portable.sum_exp(a.data(), 1.0f, n));
  }
}

}  // namespace
}  // namespace sluice::kernels
