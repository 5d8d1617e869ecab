// Products of quantised weights: the bits of the arithmetic written out, for
// every format, instruction set, batch, split and number of threads.
#include "kernels/block_matmul.h"

#include <cmath>
#include <limits>

#include "common/concurrency/thread_team.h"
#include "gtest/gtest.h"
#include "tests/kernels/block_reference.h"
#include "tests/kernels/block_tester.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

std::vector<float> RowOf(const std::vector<float>& x, int64_t row,
                         int64_t cols) {
  return {x.begin() + row * cols, x.begin() + (row + 1) * cols};
}

class BlockFormatTest : public testing::TestWithParam<BlockFormat> {
 protected:
  // What the products must be, with columns cut at `bounds` into leaves of one
  // tree.
  std::vector<float> Want(const std::vector<uint8_t>& stored, int64_t rows,
                          const std::vector<float>& x, int64_t tokens,
                          const std::vector<int32_t>& bounds) const {
    const BlockFormat format = GetParam();
    const int64_t elements = BlockElements(format);
    const int64_t cols = bounds.back();
    const auto leaves = static_cast<int32_t>(bounds.size()) - 1;
    std::vector<float> want;
    for (int64_t t = 0; t < tokens; ++t) {
      const auto row = QuantizeReference(RowOf(x, t, cols), elements);
      for (int64_t r = 0; r < rows; ++r) {
        const uint8_t* blocks =
            stored.data() + r * (cols / elements * BlockBytes(format));
        want.push_back(ReduceTree(
            0, leaves,
            [&](int32_t s) {
              return CanonicalBlockDot(format, blocks, row,
                                       bounds[s] / elements,
                                       bounds[s + 1] / elements);
            },
            [](float a, float b) { return a + b; }));
      }
    }
    return want;
  }
};

TEST_P(BlockFormatTest, ProductsHaveTheBitsOfTheArithmetic) {
  const BlockFormat format = GetParam();
  const int64_t elements = BlockElements(format);
  ThreadTeam team({.num_threads = 3});
  for (const int64_t blocks : {1, 2, 5}) {
    const int64_t cols = blocks * elements;
    const auto bounds = std::vector<int32_t>{0, static_cast<int32_t>(cols)};
    for (const int64_t rows : {1, 15, 16, 17, 33, 100}) {
      const auto stored = RandomBlockRows(format, 21, rows, cols);
      const OwnedBlocks w(format, stored, rows, cols);
      for (const int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 13, 19, 25}) {
        const auto x = SpreadActivations(22, tokens, cols);
        const auto want = Want(stored, rows, x, tokens, bounds);
        for (const DotSet& set : AllDotSets()) {
          for (Executor* executor : {static_cast<Executor*>(nullptr),
                                     static_cast<Executor*>(&team)}) {
            const DotContext context = {executor, set.ops};
            const OwnedRows q(context, x, tokens, cols,
                              ActivationBlock(format));
            OwnedMatrix y(tokens, rows, 3);
            BlockMatMul(context, q.view(), w.view(), nullptr, y.view());
            ASSERT_TRUE(y.MarkIntact());
            ASSERT_TRUE(SameBits(y.values(), want))
                << NameOf(format) << " " << set.name << " " << rows << "x"
                << cols << ", " << tokens << " tokens"
                << (executor == nullptr ? "" : ", a team");
          }
        }
      }
    }
  }
}

TEST_P(BlockFormatTest, ShardsAreJoinedInTheTree) {
  const BlockFormat format = GetParam();
  const auto e = static_cast<int32_t>(BlockElements(format));
  const std::vector<int32_t> bounds = {0, e, e, 3 * e, 4 * e, 5 * e};
  const int64_t cols = bounds.back();
  const int64_t rows = 40;
  const auto stored = RandomBlockRows(format, 23, rows, cols);
  const OwnedBlocks w(format, stored, rows, cols);
  for (const int64_t tokens : {1, 3, 8, 20}) {
    const auto x = SpreadActivations(24, tokens, cols);
    const auto want = Want(stored, rows, x, tokens, bounds);
    for (const DotSet& set : AllDotSets()) {
      const DotContext context = {nullptr, set.ops};
      const OwnedRows q(context, x, tokens, cols, ActivationBlock(format));
      OwnedMatrix y(tokens, rows);
      const std::vector<TreeNode> whole = {{0, 5}};
      const Matrix one[] = {y.view()};
      BlockMatMulSharded(context, q.view(), w.view(),
                         {.bounds = bounds, .nodes = whole}, one);
      ASSERT_TRUE(SameBits(y.values(), want)) << NameOf(format) << set.name;
      // A rank's nodes, joined behind the product.
      OwnedMatrix first(tokens, rows);
      OwnedMatrix last(tokens, rows);
      const std::vector<TreeNode> nodes = {{0, 4}, {4, 5}};
      const Matrix two[] = {first.view(), last.view()};
      BlockMatMulSharded(context, q.view(), w.view(),
                         {.bounds = bounds, .nodes = nodes}, two);
      auto sums = first.values();
      const auto rest = last.values();
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += rest[i];
      ASSERT_TRUE(SameBits(sums, want)) << NameOf(format) << set.name;
    }
  }
}

TEST_P(BlockFormatTest, BiasIsAddedLast) {
  const BlockFormat format = GetParam();
  const int64_t cols = 2 * BlockElements(format);
  const int64_t rows = 37;
  const auto stored = RandomBlockRows(format, 25, rows, cols);
  const OwnedBlocks w(format, stored, rows, cols);
  const auto bias = RandomFloats(26, rows);
  const auto x = SpreadActivations(27, 2, cols);
  auto want = Want(stored, rows, x, 2, {0, static_cast<int32_t>(cols)});
  for (size_t i = 0; i < want.size(); ++i) {
    want[i] += bias[i % static_cast<size_t>(rows)];
  }
  for (const DotSet& set : AllDotSets()) {
    const DotContext context = {nullptr, set.ops};
    const OwnedRows q(context, x, 2, cols, ActivationBlock(format));
    OwnedMatrix y(2, rows);
    BlockMatMul(context, q.view(), w.view(), bias.data(), y.view());
    EXPECT_TRUE(SameBits(y.values(), want)) << set.name;
  }
}

// Codes of all ones against activations of +-127: the largest sums.
TEST_P(BlockFormatTest, ExtremeCodesAreExact) {
  const BlockFormat format = GetParam();
  const int64_t elements = BlockElements(format);
  const int64_t rows = 16;
  const int64_t cols = 2 * elements;
  for (const uint8_t fill : {0x00, 0x80, 0x7F, 0xFF}) {
    std::vector<uint8_t> stored(
        static_cast<size_t>(rows * 2 * BlockBytes(format)), fill);
    // Blocks of all zeros or ones with finite scales, as RandomBlockRows makes
    // them; of Q8_0 also -128 and 127 everywhere.
    const auto known = RandomBlockRows(format, 28, 1, 4 * elements);
    const auto bytes = static_cast<size_t>(BlockBytes(format));
    const size_t pick = fill == 0x00 ? 3 * bytes : 2 * bytes;
    if (fill == 0x00 || fill == 0xFF) {
      for (size_t b = 0; b < stored.size() / bytes; ++b) {
        std::copy_n(known.begin() + static_cast<int64_t>(pick), bytes,
                    stored.begin() + static_cast<int64_t>(b * bytes));
      }
    } else if (format != BlockFormat::kQ8_0) {
      continue;
    } else {
      for (size_t b = 0; b < stored.size() / bytes; ++b) {
        stored[b * bytes] = 0;
        stored[b * bytes + 1] = 0x3C;
      }
    }
    const OwnedBlocks w(format, stored, rows, cols);
    for (const float sign : {1.0f, -1.0f}) {
      const std::vector<float> x(static_cast<size_t>(cols), sign);
      const auto want =
          Want(stored, rows, x, 1, {0, static_cast<int32_t>(cols)});
      for (const DotSet& set : AllDotSets()) {
        const DotContext context = {nullptr, set.ops};
        const OwnedRows q(context, x, 1, cols, ActivationBlock(format));
        OwnedMatrix y(1, rows);
        BlockMatMul(context, q.view(), w.view(), nullptr, y.view());
        EXPECT_TRUE(SameBits(y.values(), want))
            << set.name << " " << int{fill} << " " << sign;
      }
    }
  }
}

// Rounding activations costs half a step each, the sums their roundings.
TEST_P(BlockFormatTest, ProductsAreCloseToDouble) {
  const BlockFormat format = GetParam();
  const int64_t elements = BlockElements(format);
  const int64_t cols = 2048;
  const int64_t rows = 20;
  const auto stored = RandomBlockRows(format, 29, rows, cols);
  const OwnedBlocks w(format, stored, rows, cols);
  const auto x = RandomFloats(30, cols);
  const DotContext context = {nullptr, AllDotSets().back().ops};
  const OwnedRows q(context, x, 1, cols, ActivationBlock(format));
  OwnedMatrix y(1, rows);
  BlockMatMul(context, q.view(), w.view(), nullptr, y.view());
  const auto got = y.values();
  for (int64_t r = 0; r < rows; ++r) {
    const auto values = BlockValues(
        format, stored.data() + r * StoredRowBytes(format, cols), cols);
    double want = 0;
    double bound = 0;
    for (int64_t k = 0; k < cols; ++k) {
      const auto i = static_cast<size_t>(k);
      const double step = q.scales()[static_cast<size_t>(k / elements)];
      want += values[i] * double{x[i]};
      bound += std::abs(values[i]) * step * 0.5001;
    }
    // The terms of scale and minimum may cancel: their sizes count.
    double sizes = 0;
    for (int64_t b = 0; b < cols / elements; ++b) {
      const BlockNumbers n =
          ReadBlock(format, stored.data() + r * StoredRowBytes(format, cols) +
                                b * BlockBytes(format));
      for (int64_t k = 0; k < elements; ++k) {
        sizes += std::abs(double{n.scale} * n.sub_scale[k / 16] * n.code[k]) +
                 std::abs(double{n.minimum} * n.sub_minimum[k / 16]);
      }
    }
    bound += Gamma(2 * cols / elements + 4) * sizes;
    EXPECT_NEAR(got[static_cast<size_t>(r)], want, bound) << "row " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockFormatTest,
                         testing::ValuesIn(TestedBlockFormats()),
                         [](const auto& tested) {
                           return NameOf(tested.param);
                         });

TEST(QuantizeRowsTest, CodesScalesAndSumsAreThoseOfTheArithmetic) {
  for (const int32_t block : {kShortBlock, kLongBlock}) {
    const int64_t cols = 3 * kLongBlock;
    const int64_t rows = 9;
    const auto x = SpreadActivations(31, rows, cols);
    ThreadTeam team({.num_threads = 2});
    for (const DotSet& set : AllDotSets()) {
      const OwnedRows q({&team, set.ops}, x, rows, cols, block);
      for (int64_t t = 0; t < rows; ++t) {
        const auto want = QuantizeReference(RowOf(x, t, cols), block);
        EXPECT_TRUE(q.finite(t));
        for (int64_t k = 0; k < cols; ++k) {
          const auto at = static_cast<size_t>(t * cols + k);
          ASSERT_EQ(q.codes()[at], want.codes[static_cast<size_t>(k)])
              << set.name << " " << x[at];
          ASSERT_EQ(q.scales()[at / static_cast<size_t>(block)],
                    want.scales[static_cast<size_t>(k / block)]);
          if (k % 16 != 0) continue;
          int sum = 0;
          for (int i = 0; i < 16; ++i) {
            sum += want.codes[static_cast<size_t>(k + i)];
          }
          ASSERT_EQ(q.sums()[at / 16], sum);
        }
      }
    }
  }
}

TEST(QuantizeRowsTest, HalvesGoToEvenAndTheLargestIs127) {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;  // steps of one
  x[1] = 0.5f;
  x[2] = 1.5f;
  x[3] = 2.5f;
  x[4] = -0.5f;
  x[5] = -126.5f;
  x[6] = -127.0f;
  for (const DotSet& set : AllDotSets()) {
    const OwnedRows q({nullptr, set.ops}, x, 1, 32, kShortBlock);
    EXPECT_EQ(std::vector<int8_t>(q.codes().begin(), q.codes().begin() + 7),
              (std::vector<int8_t>{127, 0, 2, 2, 0, -126, -127}))
        << set.name;
    for (float size : {std::numeric_limits<float>::max(), 0x1p-100f, 3e-30f}) {
      const OwnedRows edge({nullptr, set.ops}, std::vector<float>(32, -size), 1,
                           32, kShortBlock);
      EXPECT_EQ(edge.codes()[31], -127) << set.name << " " << size;
      EXPECT_EQ(edge.sums()[0], -127 * 16);
    }
    const OwnedRows tiny({nullptr, set.ops}, std::vector<float>(32, 0x1p-101f),
                         1, 32, kShortBlock);
    EXPECT_EQ(tiny.codes()[0], 0);
    EXPECT_EQ(tiny.scales()[0], 0.0f);
  }
}

TEST(QuantizeRowsTest, ARowWithoutAValueIsToldAndTheOthersAreNotTouched) {
  const int64_t cols = 64;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    auto x = RandomFloats(32, 3 * cols);
    x[cols + 37] = bad;
    for (const DotSet& set : AllDotSets()) {
      const OwnedRows q({nullptr, set.ops}, x, 3, cols, kShortBlock);
      EXPECT_TRUE(q.finite(0)) << set.name;
      EXPECT_FALSE(q.finite(1)) << set.name;
      EXPECT_TRUE(q.finite(2)) << set.name;
      EXPECT_EQ(q.scales()[3], 0.0f);
      EXPECT_EQ(q.codes()[static_cast<size_t>(cols) + 37], 0);
      EXPECT_NE(q.scales()[2], 0.0f);
      EXPECT_NE(q.scales()[4], 0.0f);
    }
  }
}

TEST(DotIsaTest, EverySetIsWithinItsVectors) {
  EXPECT_EQ(DotIsaFor(Isa::kPortable), DotIsa::kPortable);
  EXPECT_LE(DotIsaFor(Isa::kAvx2), DotIsa::kAvxVnni);
  for (const Isa isa : AvailableIsas()) EXPECT_TRUE(HasDotIsa(DotIsaFor(isa)));
}

}  // namespace
}  // namespace sluice::kernels
