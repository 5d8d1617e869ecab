#include "kernels/cuda/fast/products.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "common/tensor/weight_format.h"
#include "gtest/gtest.h"
#include "kernels/cuda/shared/row_ops.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/cuda/fast/tiled_weights.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

// Returns fewer columns for long units: as many whole blocks as `cols` has
// leaves, and twice as many units of runs. Units of 32 columns keep `cols`.
int64_t BoundaryCols(WeightType type, int64_t cols) {
  const int64_t unit = CutColumns(type);
  if (unit == kRunCols) return cols;
  return (cols / 128 + 1) * unit * (IsInUnits(type) ? 1 : 2);
}

class TileProductsTest : public testing::TestWithParam<WeightType> {};

TEST_P(TileProductsTest, ElementsAreTheirChainsAtEveryBoundary) {
  struct ProductShape {
    int64_t tokens, rows, cols;
  };
  for (const ProductShape& s :
       {ProductShape{1, 1, 32}, ProductShape{2, 16, 96},
        ProductShape{7, 17, 64}, ProductShape{8, 15, 32},
        ProductShape{9, 33, 288}, ProductShape{33, 3, 1056},
        ProductShape{66, 135, 160}}) {
    // Columns of BF16 need not be whole steps.
    const int64_t cols = GetParam() == WeightType::kBf16
                             ? s.cols - 5
                             : BoundaryCols(GetParam(), s.cols);
    SCOPED_TRACE(testing::Message()
                 << s.tokens << " x " << s.rows << " x " << cols);
    const TiledWeights w(GetParam(), 3, s.rows, cols);
    const OwnedMatrix x(s.tokens, cols, RandomFloats(1, s.tokens * cols));
    const auto bias = RandomFloats(2, s.rows);
    const auto got = BothWays([&](Stream stream) {
      OwnedMatrix y(s.tokens, s.rows, 3);
      TileMatMul(stream, x.view(), w.view(), bias.data(), y.view());
      EXPECT_TRUE(y.MarkIntact());
      return y.values();
    });
    const auto leaves = LeavesOf(cols, CutColumns(GetParam()));
    const TreeNode root = {0, static_cast<int32_t>(leaves.size()) - 1};
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (int64_t r = 0; r < s.rows; ++r) {
        ASSERT_EQ(got[t * s.rows + r],
                  TileElementOf(w, x.view().row(t), r, leaves, root) + bias[r])
            << t << ", " << r;
      }
    }
  }
}

// A row has the same bits alone, among others, and through groups of experts.
TEST_P(TileProductsTest, ARowsBitsAreItsOwn) {
  constexpr int64_t kTokens = 41;
  constexpr int64_t kOutputs = 20;
  const int64_t cols = BoundaryCols(GetParam(), 160);
  const TiledWeights w(GetParam(), 4, kOutputs, cols);
  const OwnedMatrix x(kTokens, cols, RandomFloats(5, kTokens * cols));
  Machine machine(Schedule::kForward);
  OwnedMatrix all(kTokens, kOutputs);
  TileMatMul(&machine, x.view(), w.view(), nullptr, all.view());
  OwnedMatrix one(kTokens, kOutputs);
  for (int64_t t = 0; t < kTokens; ++t) {
    TileMatMul(&machine, {x.view().row(t), 1, cols, cols}, w.view(), nullptr,
               {one.view().row(t), 1, kOutputs, kOutputs});
  }
  EXPECT_TRUE(SameBits(one.values(), all.values()));
  std::vector<int32_t> rows(kTokens);
  std::iota(rows.rbegin(), rows.rend(), 0);
  const void* const weights[] = {w.view().data};
  for (const int32_t most : {4, 8, kTileGroupRows}) {
    std::vector<ExpertGroup> groups;
    for (int32_t slot = 0; slot < kTokens; slot += most) {
      groups.push_back(
          {0, slot, std::min(most, static_cast<int32_t>(kTokens) - slot)});
    }
    const auto count = static_cast<int32_t>(groups.size());
    ExpertRun run = {{groups.data(), &count, rows.data(), weights, 0, 1, most},
                     count + 2};
    OwnedMatrix grouped(kTokens, kOutputs);
    TileMatMulGroups(&machine, x.view(), w.view(), nullptr, run,
                     grouped.view());
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t r = 0; r < kOutputs; ++r) {
        ASSERT_EQ(grouped.view().row(kTokens - 1 - t)[r], all.view().row(t)[r])
            << "groups of " << most;
      }
    }
  }
  EXPECT_THAT(machine.faults(), testing::IsEmpty());
}

TEST_P(TileProductsTest, ShardsAreJoinedInTheTreeWhereverTheyBegin) {
  // Cuts of BF16 may fall within a step: heads of 12 or 20 elements.
  std::vector<std::vector<int32_t>> cuts = {{0, 64, 96, 96, 192, 224, 320}};
  if (GetParam() == WeightType::kBf16) cuts.push_back({0, 12, 24, 60, 61, 80});
  if (CutColumns(GetParam()) > kRunCols) {
    cuts[0] = {0, 1, 2, 2, 4, 5, 6};
    for (int32_t& bound : cuts[0]) bound *= CutColumns(GetParam());
  }
  // Few rows, and as many as share a panel, without and with memory.
  for (size_t i = 0; i < 4 * cuts.size(); ++i) {
    const int64_t tokens = i % 2 == 0 ? 10 : 34;
    const bool has_memory = i / 2 % 2 == 1;
    const std::vector<int32_t>& bounds = cuts[i / 4];
    const int64_t cols = bounds.back();
    const auto leaves = static_cast<int32_t>(bounds.size()) - 1;
    const std::vector<TreeNode> nodes = {{0, 4}, {4, leaves}};
    const TiledWeights w(GetParam(), 6, 18, cols);
    const OwnedMatrix x(tokens, cols, RandomFloats(7, tokens * cols));
    const auto got = BothWays([&](Stream stream) {
      std::vector<OwnedMatrix> y(2, OwnedMatrix(tokens, 18, 1));
      const Matrix views[] = {y[0].view(), y[1].view()};
      KeptMemory kept;
      TileMatMulSharded(stream, x.view(), w.view(), {bounds, nodes}, views,
                        has_memory ? kept.memory() : TileMemory());
      auto values = y[0].values();
      const auto more = y[1].values();
      values.insert(values.end(), more.begin(), more.end());
      return values;
    });
    const int64_t each = tokens * 18;
    for (int64_t n = 0; n < 2 * each; ++n) {
      ASSERT_EQ(got[n], TileElementOf(w, x.view().row(n % each / 18), n % 18,
                                      bounds, nodes[n / each]))
          << n;
    }
  }
}

// Trees of every count of leaves that a panel takes, and of one more.
TEST(TileShardsTest, APanelJoinsAsManyLeavesAsThereAre) {
  for (int32_t leaves = 1; leaves <= 17; ++leaves) {
    const int64_t cols = leaves * 16;
    const TiledWeights w(WeightType::kBf16, 13, 3, cols);
    const OwnedMatrix x(33, cols, RandomFloats(14, 33 * cols));
    std::vector<int32_t> bounds;
    for (int32_t i = 0; i <= leaves; ++i) bounds.push_back(i * 16);
    const TreeNode root = {0, leaves};
    Machine machine(Schedule::kForward);
    OwnedMatrix y(33, 3);
    const Matrix out = y.view();
    TileMatMulSharded(&machine, x.view(), w.view(), {bounds, {&root, 1}},
                      {&out, 1});
    EXPECT_THAT(machine.faults(), testing::IsEmpty());
    for (int64_t n = 0; n < 99; ++n) {
      ASSERT_EQ(y.values()[n],
                TileElementOf(w, x.view().row(n / 3), n % 3, bounds, root))
          << leaves;
    }
  }
}

// A rank has a shard's columns at another place of its own weight.
TEST(TileShardsTest, ASlicesShardsHaveTheWholesBits) {
  const int64_t cols = 72;
  const TiledWeights w(WeightType::kBf16, 8, 17, cols);
  const OwnedMatrix x(3, cols, RandomFloats(9, 3 * cols));
  const std::vector<int32_t> whole = {0, 12, 36, 72};
  const std::vector<TreeNode> each = {{0, 1}, {1, 2}, {2, 3}};
  Machine machine(Schedule::kForward);
  std::vector<OwnedMatrix> y(3, OwnedMatrix(3, 17));
  const Matrix outs[] = {y[0].view(), y[1].view(), y[2].view()};
  TileMatMulSharded(&machine, x.view(), w.view(), {whole, each}, outs);
  for (int s = 0; s < 3; ++s) {
    const int64_t begin = whole[s];
    const int32_t own = whole[s + 1] - whole[s];
    std::vector<float> values;
    for (int64_t r = 0; r < 17; ++r) {
      const auto row = w.values.begin() + r * cols + begin;
      values.insert(values.end(), row, row + own);
    }
    const OwnedWeight slice(WeightType::kBf16, 17, own, values);
    const TileWeight tiles(slice.view());
    const std::vector<int32_t> bounds = {0, own};
    OwnedMatrix part(3, 17);
    const Matrix out = part.view();
    TileMatMulSharded(&machine, {x.view().data + begin, 3, own, cols},
                      tiles.view(), {bounds, {each.data(), 1}}, {&out, 1});
    EXPECT_TRUE(SameBits(part.values(), y[s].values())) << s;
  }
  EXPECT_THAT(machine.faults(), testing::IsEmpty());
}

// Products that end in their own way have the bits of one operation after
// another.
TEST_P(TileProductsTest, SumsAreAddedAtOnce) {
  std::vector<int32_t> bounds;
  for (const int64_t bound : {0, 64, 96, 224, 320}) {
    bounds.push_back(static_cast<int32_t>(ColsOf(GetParam(), bound)));
  }
  const TreeNode root = {0, 4};
  const int64_t cols = bounds.back();
  const TiledWeights w(GetParam(), 15, 18, cols);
  const auto bias = RandomFloats(16, 18);
  for (const int64_t tokens : {1, 8}) {
    const OwnedMatrix x(tokens, cols, RandomFloats(17, tokens * cols));
    const auto before = RandomFloats(18, tokens * 18);
    const auto got = BothWays([&](Stream stream) {
      OwnedMatrix y(tokens, 18, before);
      EXPECT_TRUE(TileAddSharded(stream, x.view(), w.view(),
                                 {bounds, {&root, 1}}, bias.data(), y.view()));
      return y.values();
    });
    for (int64_t n = 0; n < tokens * 18; ++n) {
      const float sum =
          TileElementOf(w, x.view().row(n / 18), n % 18, bounds, root);
      ASSERT_EQ(got[n], before[n] + (sum + bias[n % 18])) << n;
    }
  }
}

TEST_P(TileProductsTest, RowsAreGatedAtOnce) {
  constexpr int64_t kHalf = 32;
  const int64_t cols = BoundaryCols(GetParam(), 288);
  const TiledWeights w(GetParam(), 19, 2 * kHalf, cols);
  const auto bias = RandomFloats(20, 2 * kHalf);
  const void* const weights[] = {w.view().data};
  const ExpertGroup group = {0, 0, 7};
  const int32_t count = 1;
  const ExpertRun run = {{&group, &count, nullptr, weights, 0, 1, 8}, 2};
  const OwnedMatrix x(7, cols, RandomFloats(21, 7 * cols));
  for (const bool clamps : {false, true}) {
    const Activation activation = {
        clamps ? Activation::Kind::kClampedSwiGlu : Activation::Kind::kSilu,
        0.4f};
    for (const bool grouped : {false, true}) {
      const auto want = BothWays([&](Stream stream) {
        OwnedMatrix both(7, 2 * kHalf);
        TileMatMul(stream, x.view(), w.view(), grouped ? bias.data() : nullptr,
                   both.view());
        OwnedMatrix y(7, kHalf);
        if (clamps) {
          kernels::ClampedSwiGlu({}, both.view(), 0.4f, y.view());
        } else {
          kernels::SiluMul({}, both.view(), y.view());
        }
        return y.values();
      });
      const auto got = BothWays([&](Stream stream) {
        OwnedMatrix y(7, kHalf);
        EXPECT_TRUE(grouped ? TileGatedGroups(stream, x.view(), w.view(),
                                              bias.data(), activation, run,
                                              y.view())
                            : TileGatedMatMul(stream, x.view(), w.view(),
                                              activation, y.view()));
        return y.values();
      });
      EXPECT_TRUE(SameBits(got, want)) << clamps << grouped;
    }
  }
}

// Leaves of 1,056 columns: more than a warp rounds at once.
TEST_P(TileProductsTest, ATokensLongLeavesHaveTheBitsOfOthers) {
  constexpr int64_t kOutputs = 32;
  constexpr int64_t kCols = 8 * 1056;
  const TiledWeights w(GetParam(), 26, kOutputs, kCols);
  const OwnedMatrix x(2, kCols, RandomFloats(27, 2 * kCols));
  const ConstMatrix first = {x.view().data, 1, kCols, x.view().stride};
  Machine machine(Schedule::kForward);
  OwnedMatrix both(2, kOutputs);
  TileMatMul(&machine, x.view(), w.view(), nullptr, both.view());
  OwnedMatrix want(1, kOutputs / 2);
  SiluMul(&machine, {both.view().data, 1, kOutputs, both.view().stride},
          want.view());
  const auto plain = BothWays([&](Stream stream) {
    OwnedMatrix y(1, kOutputs);
    TileMatMul(stream, first, w.view(), nullptr, y.view());
    return y.values();
  });
  const auto gated = BothWays([&](Stream stream) {
    OwnedMatrix y(1, kOutputs / 2);
    EXPECT_TRUE(TileGatedMatMul(stream, first, w.view(), {}, y.view()));
    return y.values();
  });
  std::vector<float> alone = both.values();
  alone.resize(kOutputs);
  EXPECT_TRUE(SameBits(plain, alone));
  EXPECT_TRUE(SameBits(gated, want.values()));
}

// Blocks of small devices have less shared memory: other kernels, or the same
// ones, and the same bits.
TEST_P(TileProductsTest, SmallDevicesHaveTheSameBits) {
  std::vector<int32_t> bounds;
  for (const int64_t bound : {0, 64, 96, 224, 320}) {
    bounds.push_back(static_cast<int32_t>(ColsOf(GetParam(), bound)));
  }
  const TreeNode root = {0, 4};
  const int64_t cols = bounds.back();
  const TiledWeights w(GetParam(), 24, 64, cols);
  for (const int64_t tokens : {1, 2, 8}) {
    const OwnedMatrix x(tokens, cols, RandomFloats(25, tokens * cols));
    std::vector<std::vector<float>> got;
    for (const size_t shared : {227, 99, 48}) {
      Machine machine(Schedule::kForward);
      machine.Limit({shared * 1024, 1});
      OwnedMatrix plain(tokens, 64);
      TileMatMul(&machine, x.view(), w.view(), nullptr, plain.view());
      OwnedMatrix sums(tokens, 64);
      const Matrix out = sums.view();
      TileMatMulSharded(&machine, x.view(), w.view(), {bounds, {&root, 1}},
                        {&out, 1});
      OwnedMatrix gated(tokens, 32);
      if (!TileGatedMatMul(&machine, x.view(), w.view(), {}, gated.view())) {
        SiluMul(&machine, plain.view(), gated.view());
      }
      EXPECT_THAT(machine.faults(), testing::IsEmpty()) << shared;
      std::vector<float>& all = got.emplace_back(plain.values());
      for (const OwnedMatrix* more : {&sums, &gated}) {
        const std::vector<float> values = more->values();
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    EXPECT_TRUE(SameBits(got[1], got[0])) << tokens;
    EXPECT_TRUE(SameBits(got[2], got[0])) << tokens;
  }
}

TEST(TileShardsTest, WhatCannotEndInItsOwnWayIsLeft) {
  const TiledWeights w(WeightType::kBf16, 22, 24, 40);
  const OwnedMatrix x(1, 40, RandomFloats(23, 40));
  OwnedMatrix y(1, 24);
  Machine machine(Schedule::kForward);
  const std::vector<int32_t> bounds = {0, 12, 40};  // within a step
  const TreeNode root = {0, 2};
  EXPECT_FALSE(TileAddSharded(&machine, x.view(), w.view(),
                              {bounds, {&root, 1}}, nullptr, y.view()));
  // Twelve rows are no whole tiles.
  EXPECT_FALSE(TileGatedMatMul(&machine, x.view(), w.view(), {},
                               {y.view().data, 1, 12, 12}));
}

TEST_P(TileProductsTest, IsCloseToDouble) {
  constexpr int64_t kCols = 512;
  const TiledWeights w(GetParam(), 10, 5, kCols);
  const auto x = RandomFloats(11, kCols);
  const OwnedMatrix input(1, kCols, x);
  Machine machine(Schedule::kForward);
  OwnedMatrix y(1, 5);
  TileMatMul(&machine, input.view(), w.view(), nullptr, y.view());
  for (int64_t r = 0; r < 5; ++r) {
    const float* row = w.values.data() + r * kCols;
    // Activations have eight bits; sums add little to that.
    ASSERT_NEAR(y.values()[r], DotInDouble(x.data(), row, kCols),
                AbsDot(x.data(), row, kCols) * (0x1p-9 + Gamma(40)));
  }
}

void ExpectEmbedded(WeightType type, int64_t cols, int64_t pad) {
  const TiledWeights table(type, 12, 21, cols);
  const std::vector<int32_t> ids = {20, 0, 8, 15, 16, 7, 7};
  const auto tokens = static_cast<int64_t>(ids.size());
  const auto got = BothWays([&](Stream stream) {
    OwnedMatrix y(tokens, cols, pad);
    TileEmbed(stream, table.view(), ids.data(), y.view());
    EXPECT_TRUE(y.MarkIntact());
    return y.values();
  });
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < cols; ++i) {
      ASSERT_EQ(got[t * cols + i], table.values[ids[t] * cols + i]);
    }
  }
}

TEST_P(TileProductsTest, EmbeddedRowsAreTheWeightsElements) {
  // Rows of y of one piece and of two, aligned and not.
  const int64_t cols =
      GetParam() == WeightType::kBf16 ? 70 : ColsOf(GetParam(), 96);
  ExpectEmbedded(GetParam(), cols, 5);
  const int64_t wide = CutColumns(GetParam()) == kRunCols ? 544 : 768;
  ExpectEmbedded(GetParam(), wide, 4);
  ExpectEmbedded(GetParam(), wide, 1);
}

INSTANTIATE_TEST_SUITE_P(, TileProductsTest, testing::ValuesIn(TiledTypes()),
                         [](const auto& param) {
                           return std::string(FormatOf(param.param).name);
                         });

TEST(ProductLeavesTest, ComeFromTheColumnsAlone) {
  EXPECT_EQ(LeavesOf(20), (std::vector<int32_t>{0, 20}));
  EXPECT_EQ(LeavesOf(255), (std::vector<int32_t>{0, 128, 255}));
  EXPECT_EQ(LeavesOf(4096).size(), 9u);
  EXPECT_EQ(LeavesOf(14340).back(), 14340);
  EXPECT_EQ(LeavesOf(768, 256), (std::vector<int32_t>{0, 256, 512, 768}));
  EXPECT_EQ(LeavesOf(11008, 256),
            (std::vector<int32_t>{0, 1280, 2560, 4096, 5376, 6656, 8192, 9472,
                                  11008}));
}

}  // namespace
}  // namespace sluice::kernels::cuda
