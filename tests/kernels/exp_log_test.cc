#include "kernels/exp_log.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/dispatch.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

// Distance of `got` from `want` in units of got's last place.
double UlpsOff(float got, double want) {
  const float next = std::nextafter(got, kInf);
  return std::abs(static_cast<double>(got) - want) /
         (static_cast<double>(next) - static_cast<double>(got));
}

TEST(ExpTest, IsWithinTheBoundOverAllNormalResults) {
  double worst_ulp = 0;
  double worst_relative = 0;
  // Every 257th float of both signs, where the result is normal.
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 257) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!(x > -87.3f && x < 88.72f)) continue;
    const double want = std::exp(static_cast<double>(x));
    const float got = Exp(x);
    worst_relative = std::max(worst_relative, std::abs(got - want) / want);
    worst_ulp = std::max(worst_ulp, UlpsOff(got, want));
  }
  RecordProperty("max_ulp", std::to_string(worst_ulp));
  printf("Exp: at most %.3f ulp, relative 2^%.2f\n", worst_ulp,
         std::log2(worst_relative));
  EXPECT_LT(worst_relative, 0x1p-22);
  EXPECT_LT(worst_ulp, 1.5);
}

TEST(ExpTest, RoundsDenormalResultsOnce) {
  for (float x = -87.3f; x > -103.9f; x -= 0.013f) {
    const double want = std::exp(static_cast<double>(x));
    ASSERT_NEAR(Exp(x), want, 0x1p-149 * 0.501 + want * 0x1p-22) << x;
  }
}

TEST(ExpTest, EndsAreZeroInfinityAndNan) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(-104.1f), 0.0f);
  EXPECT_EQ(Exp(-1e30f), 0.0f);
  EXPECT_EQ(Exp(-kInf), 0.0f);
  EXPECT_EQ(Exp(88.74f), kInf);
  EXPECT_EQ(Exp(1e30f), kInf);
  EXPECT_EQ(Exp(kInf), kInf);
  EXPECT_TRUE(std::isnan(Exp(kNan)));
  EXPECT_TRUE(std::isfinite(Exp(88.72f)));
}

TEST(ExpTest, EveryIsaHasTheSameBits) {
  for (Isa isa : AvailableIsas()) {
    const cpu::Ops& ops = cpu::OpsFor(isa);
    for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 65537) {
      const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
      if (std::isnan(x)) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(ops.exp(x)),
                std::bit_cast<uint32_t>(Exp(x)))
          << ToString(isa) << " " << x;
    }
  }
}

TEST(LogTest, IsWithinOneUlpOfTheLibrary) {
  double worst = 0;
  for (int e = -1074; e < 1024; ++e) {
    for (float f : RandomFloats(static_cast<uint64_t>(e + 2000), 50)) {
      const double x = std::ldexp(1.5 + 0.5 * static_cast<double>(f), e);
      const double want = std::log(x);
      const double got = Log(x);
      worst = std::max(worst, std::abs(got - want) / std::abs(want));
    }
  }
  EXPECT_LT(worst, 0x1p-52 * 2);
  EXPECT_EQ(Log(1.0), 0.0);
  for (double d = 0x1p-50; d < 0.5; d *= 1.7) {
    EXPECT_NEAR(Log(1 + d), std::log(1 + d), std::log(1 + d) * 0x1p-51);
    EXPECT_NEAR(Log(1 - d), std::log(1 - d), -std::log(1 - d) * 0x1p-51);
  }
}

}  // namespace
}  // namespace sluice::kernels
