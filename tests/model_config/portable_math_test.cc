#include "common/model_config/portable_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <random>

namespace sluice {
namespace {

// How far `value` is from `exact`, in units of the last place of a double.
double UlpsBetween(double value, long double exact) {
  const double nearest = static_cast<double>(exact);
  const double ulp =
      std::nextafter(std::fabs(nearest), HUGE_VAL) - std::fabs(nearest);
  return static_cast<double>(
      std::fabs((static_cast<long double>(value) - exact) / ulp));
}

// These came from a calculation with 60 decimal digits.
TEST(OwnMathTest, BitsAreTheOnesThatManyDigitsGive) {
  EXPECT_EQ(OwnPow(10000.0, -0.03125), 0x1.7ff2224115d9ap-1);
  EXPECT_EQ(OwnPow(10000.0, -0.025), 0x1.96b230bcdc434p-1);
  EXPECT_EQ(OwnPow(500000.0, -0.03125), 0x1.53c38a9afaca0p-1);
  EXPECT_EQ(OwnPow(500000.0, -0.025), 0x1.70cdd7d9b0699p-1);
  EXPECT_EQ(OwnPow(1000000.0, -0.03125), 0x1.4c7bbfcc7c63cp-1);
  EXPECT_EQ(OwnPow(1000000.0, -0.025), 0x1.6a77deae8ab8ap-1);
  EXPECT_EQ(OwnPow(150000.0, -0.03125), 0x1.60ca6a4e91c1cp-1);
  EXPECT_EQ(OwnPow(150000.0, -0.025), 0x1.7c12d604ac786p-1);
  EXPECT_EQ(OwnPow(100000.0, -0.03125), 0x1.654a0ce83e4cbp-1);
  EXPECT_EQ(OwnPow(100000.0, -0.025), 0x1.7ff2224115d99p-1);
  EXPECT_EQ(OwnLog(32.0), 0x1.bb9d3beb8c86bp+1);
  EXPECT_EQ(OwnLog(150000.0), 0x1.7d6374a08a71dp+3);
  EXPECT_EQ(OwnLog(0.75), -0x1.269621134db92p-2);
  EXPECT_EQ(OwnLog(1.0000000001), 0x1.b7cdffffa18d8p-34);
  EXPECT_EQ(OwnLog(1e-300), -0x1.5963447f87fb5p+9);
  EXPECT_EQ(OwnLog(1e+300), 0x1.5963447f87fb5p+9);
  EXPECT_EQ(OwnLog(10000.0), 0x1.26bb1bbb55516p+3);
}

TEST(OwnMathTest, WholePowersAndOneAreExact) {
  EXPECT_EQ(OwnLog(1.0), 0.0);
  EXPECT_EQ(OwnPow(10000.0, 0.0), 1.0);
  EXPECT_EQ(OwnPow(10000.0, -0.0), 1.0);
  EXPECT_EQ(OwnPow(10000.0, -0.5), 0.01);
  EXPECT_EQ(OwnPow(10000.0, 0.25), 10.0);
  EXPECT_EQ(OwnPow(2.0, -10.0), 0x1p-10);
  EXPECT_EQ(OwnPow(500000.0, 1.0), 500000.0);
}

TEST(OwnMathTest, WhatIsOutOfRangeIsInfiniteOrZero) {
  EXPECT_EQ(OwnPow(1e-300, -16.0), HUGE_VAL);
  EXPECT_EQ(OwnPow(1e-300, 16.0), 0.0);
}

// Where long doubles have more bits than doubles they are the yardstick.
TEST(OwnMathTest, ResultsAreTheNearestDoublesOrAllBut) {
  if (LDBL_MANT_DIG <= DBL_MANT_DIG) GTEST_SKIP() << "no wider type here";
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> magnitude(-20.0, 20.0);
  std::uniform_real_distribution<double> exponent(-3.0, 3.0);
  double worst = 0.0;
  for (int i = 0; i < 20000; ++i) {
    const double base = std::exp2(magnitude(random));
    const double power = exponent(random);
    worst = std::max(
        worst,
        UlpsBetween(OwnLog(base), std::log(static_cast<long double>(base))));
    worst =
        std::max(worst, UlpsBetween(OwnPow(base, power),
                                    std::pow(static_cast<long double>(base),
                                             static_cast<long double>(power))));
  }
  // The yardstick itself is wrong by 2^-11 of such a unit, or somewhat more.
  EXPECT_LT(worst, 0.502);
}

}  // namespace
}  // namespace sluice
