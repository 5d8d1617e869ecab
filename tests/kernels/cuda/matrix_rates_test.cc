#include "tests/cuda_machine/probes/matrix_rates.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/both_ways.h"

namespace sluice::kernels::cuda {
namespace {

constexpr MatrixUnits kAll[] = {MatrixUnits::kTiles, MatrixUnits::kCodes,
                                MatrixUnits::kGroups};

// By row and column, whichever thread has it: every element as often as there
// are warps that multiply it.
TEST(CudaMatrixRatesTest, EveryBlockHasTheSumsOfPlainProducts) {
  constexpr int64_t kBlocks = 2;
  for (const MatrixUnits units : kAll) {
    SCOPED_TRACE(static_cast<int>(units));
    const RateShape shape = RateShapeOf(units);
    const std::vector<uint32_t> operands = RateOperands(units);
    for (const int32_t times : {0, 1, 3}) {
      const auto got = BothWays([&](Stream stream) {
        std::vector<float> out(kBlocks * kRateResults * shape.threads, -1.0f);
        RateMultiply(units, stream, operands.data(), kBlocks, times,
                     reinterpret_cast<uint32_t*>(out.data()));
        return out;
      });
      std::vector<int> seen(kRateRows * shape.columns);
      for (size_t i = 0; i < got.size(); ++i) {
        const int thread = static_cast<int>(i) % shape.threads;
        const int result = static_cast<int>(i) / shape.threads % kRateResults;
        const int row = RateRow(units, thread, result);
        const int column = RateColumn(units, thread, result);
        ++seen.at(row * shape.columns + column);
        int want = 0;
        for (int k = 0; k < shape.k; ++k) {
          want += RateElementA(row, k, shape.k / 2) *
                  RateElementB(k, column, shape.k / 2);
        }
        want *= times;
        const float sum =
            units == MatrixUnits::kCodes
                ? static_cast<float>(std::bit_cast<int32_t>(got[i]))
                : got[i];
        ASSERT_EQ(sum, static_cast<float>(want)) << row << ", " << column;
      }
      const int groups = shape.threads / 32 / shape.warps;
      EXPECT_EQ(seen, std::vector<int>(seen.size(), kBlocks * groups));
    }
  }
}

// Sums of as many products as may be asked for are exact in F32, whatever is
// added first: also those within a product.
TEST(CudaMatrixRatesTest, SumsAreExactInAnyOrder) {
  for (const MatrixUnits units : kAll) {
    const RateShape shape = RateShapeOf(units);
    for (int row = 0; row < kRateRows; ++row) {
      for (int column = 0; column < shape.columns; ++column) {
        int whole = 0;
        int positive = 0;
        int negative = 0;
        for (int k = 0; k < shape.k; ++k) {
          const int a = RateElementA(row, k, shape.k / 2);
          const int b = RateElementB(k, column, shape.k / 2);
          EXPECT_TRUE(0 <= a && a < 256 && -128 <= b && b < 128);
          whole += a * b;
          (a * b > 0 ? positive : negative) += a * b;
        }
        EXPECT_NE(whole, 0);
        EXPECT_EQ(whole, RateSum(units, row, column));
        const int64_t sum = int64_t{std::abs(whole)} * kMostRateTimes;
        EXPECT_LE(sum + std::max(positive, -negative), 1 << 24);
      }
    }
  }
}

TEST(CudaMatrixRatesTest, OperationsAreThoseOfTheBlocksOfADevice) {
  Machine machine(Schedule::kForward);
  machine.Limit({227 * 1024, 5, false});
  EXPECT_TRUE(HasMatrixUnits(MatrixUnits::kTiles, &machine));
  EXPECT_TRUE(HasMatrixUnits(MatrixUnits::kCodes, &machine));
  EXPECT_FALSE(HasMatrixUnits(MatrixUnits::kGroups, &machine));
  EXPECT_EQ(RateBlocks(MatrixUnits::kTiles, &machine), 10);
  EXPECT_EQ(RateBlocks(MatrixUnits::kGroups, &machine), 20);
  // A warp's sixteen products of 16 x 8 x 16, eight warps.
  EXPECT_EQ(RateOperations(MatrixUnits::kTiles, 3), 3 * 8 * 16 * 2.0 * 2048);
  EXPECT_EQ(RateOperations(MatrixUnits::kCodes, 3), 3 * 8 * 16 * 2.0 * 4096);
  // Four warps' four products of 64 x 128 x 16.
  EXPECT_EQ(RateOperations(MatrixUnits::kGroups, 3), 3 * 4 * 2.0 * 131072);
}

}  // namespace
}  // namespace sluice::kernels::cuda
