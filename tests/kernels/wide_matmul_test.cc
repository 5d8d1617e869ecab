// Products of widened blocks: the bits of the same weights as F32, for every
// format, instruction set, batch, split and number of threads.
#include "kernels/wide_matmul.h"

#include <cmath>
#include <limits>

#include "common/concurrency/thread_team.h"
#include "gtest/gtest.h"
#include "kernels/experts.h"
#include "tests/kernels/block_reference.h"
#include "tests/kernels/block_tester.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

constexpr auto kF32 = BlockActivations::kF32;

// The elements of stored rows as F32.
std::vector<float> WidenAll(BlockFormat format,
                            const std::vector<uint8_t>& stored, int64_t rows,
                            int64_t cols) {
  std::vector<float> wide(static_cast<size_t>(rows * cols));
  WidenBlocks(format, stored.data(), rows * cols / BlockElements(format),
              wide.data());
  return wide;
}

// The products with columns cut at `bounds` into leaves of one tree.
std::vector<float> Want(const std::vector<float>& wide, int64_t rows,
                        const std::vector<float>& x, int64_t tokens,
                        const std::vector<int32_t>& bounds) {
  const int64_t cols = bounds.back();
  const auto leaves = static_cast<int32_t>(bounds.size()) - 1;
  std::vector<float> want;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < rows; ++r) {
      want.push_back(ReduceTree(
          0, leaves,
          [&](int32_t s) {
            return CanonicalDot(x.data() + t * cols + bounds[s],
                                wide.data() + r * cols + bounds[s],
                                bounds[s + 1] - bounds[s]);
          },
          [](float a, float b) { return a + b; }));
    }
  }
  return want;
}

class WideMatMulTest : public testing::TestWithParam<BlockFormat> {};

TEST_P(WideMatMulTest, ProductsHaveTheBitsOfTheSameWeightAsF32) {
  const BlockFormat format = GetParam();
  ThreadTeam team({.num_threads = 3});
  for (const int64_t blocks : {1, 2, 11}) {
    const int64_t cols = blocks * BlockElements(format);
    for (const int64_t rows : {1, 16, 17, 100}) {
      const auto stored = RandomBlockRows(format, 41, rows, cols);
      const auto wide = WidenAll(format, stored, rows, cols);
      const OwnedBlocks w(format, stored, rows, cols);
      const auto bias = RandomFloats(42, rows);
      for (const int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 66}) {
        if (tokens == 66 && rows > 17) continue;
        const auto x = SpreadActivations(43, tokens, cols);
        const OwnedMatrix in(tokens, cols, x);
        const auto plain =
            Want(wide, rows, x, tokens, {0, static_cast<int32_t>(cols)});
        auto biased = plain;
        for (size_t i = 0; i < biased.size(); ++i) {
          biased[i] += bias[i % static_cast<size_t>(rows)];
        }
        for (const DotSet& set : AllDotSets()) {
          for (Executor* executor : {static_cast<Executor*>(nullptr),
                                     static_cast<Executor*>(&team)}) {
            OwnedMatrix y(tokens, rows, 3);
            WideMatMul({executor, set.ops}, in.view(), w.view(), nullptr,
                       y.view());
            ASSERT_TRUE(y.MarkIntact());
            ASSERT_TRUE(SameBits(y.values(), plain))
                << NameOf(format) << " " << set.name << " " << rows << "x"
                << cols << ", " << tokens << " tokens"
                << (executor == nullptr ? "" : ", a team");
          }
          OwnedMatrix y(tokens, rows);
          WideMatMul({nullptr, set.ops}, in.view(), w.view(), bias.data(),
                     y.view());
          ASSERT_TRUE(SameBits(y.values(), biased)) << set.name << ", a bias";
        }
      }
    }
  }
}

TEST_P(WideMatMulTest, ShardsAreJoinedInTheTree) {
  const BlockFormat format = GetParam();
  const auto e = static_cast<int32_t>(BlockElements(format));
  const std::vector<int32_t> bounds = {0, e, e, 3 * e, 4 * e, 13 * e};
  const int64_t cols = bounds.back();
  const int64_t rows = 40;
  const auto stored = RandomBlockRows(format, 44, rows, cols);
  const OwnedBlocks w(format, stored, rows, cols);
  for (const int64_t tokens : {1, 3, 8, 70}) {
    const auto x = SpreadActivations(45, tokens, cols);
    const OwnedMatrix in(tokens, cols, x);
    const auto want =
        Want(WidenAll(format, stored, rows, cols), rows, x, tokens, bounds);
    for (const DotSet& set : AllDotSets()) {
      const DotContext context = {nullptr, set.ops};
      OwnedMatrix y(tokens, rows);
      const std::vector<TreeNode> whole = {{0, 5}};
      const Matrix one[] = {y.view()};
      WideMatMulSharded(context, in.view(), w.view(),
                        {.bounds = bounds, .nodes = whole}, one);
      ASSERT_TRUE(SameBits(y.values(), want)) << NameOf(format) << set.name;
      // A rank's nodes, joined behind the product.
      OwnedMatrix first(tokens, rows);
      OwnedMatrix last(tokens, rows);
      const std::vector<TreeNode> nodes = {{0, 4}, {4, 5}};
      const Matrix two[] = {first.view(), last.view()};
      WideMatMulSharded(context, in.view(), w.view(),
                        {.bounds = bounds, .nodes = nodes}, two);
      auto sums = first.values();
      const auto rest = last.values();
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += rest[i];
      ASSERT_TRUE(SameBits(sums, want)) << NameOf(format) << set.name;
    }
  }
}

// A layer's experts, in blocks or as F32.
class Experts {
 public:
  static constexpr int32_t kCount = 4;
  static constexpr int64_t kHidden = 256;
  static constexpr int64_t kMlp = 512;

  explicit Experts(BlockFormat format) {
    for (uint64_t e = 0; e < 2 * kCount; ++e) {
      const bool is_down = e % 2 == 1;
      const int64_t rows = is_down ? kHidden : 2 * kMlp;
      const int64_t cols = is_down ? kMlp : kHidden;
      const auto stored = RandomBlockRows(format, 50 + e, rows, cols);
      blocks_.emplace_back(format, stored, rows, cols);
      wide_.emplace_back(WeightType::kF32, rows, cols,
                         WidenAll(format, stored, rows, cols));
    }
  }

  std::vector<float> Outputs(const DotContext& dot, bool as_blocks,
                             int64_t tokens) const {
    std::vector<ExpertWeight> weights[2];
    for (size_t i = 0; i < 2 * kCount; ++i) {
      ExpertWeight weight;
      if (as_blocks) weight.blocks = blocks_[i].view();
      if (!as_blocks) weight.plain = wide_[i].view();
      weights[i % 2].push_back(weight);
    }
    const auto bias = RandomFloats(60, kCount * 2 * kMlp, 0.3f);
    const auto down_bias = RandomFloats(61, kCount * kHidden, 0.3f);
    const OwnedMatrix x(tokens, kHidden, RandomFloats(62, tokens * kHidden));
    const auto gates = RandomFloats(63, tokens * 2);
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < tokens; ++t) {
      ids.push_back(static_cast<int32_t>(t % 3));
      ids.push_back(3);
    }
    OwnedMatrix y(tokens, kHidden);
    const TreeNode node = {0, kCount};
    const Matrix out = y.view();
    ExpertNodes({dot.executor, DetectIsa()}, dot,
                {0,
                 weights[0],
                 weights[1],
                 bias.data(),
                 down_bias.data(),
                 {Activation::Kind::kClampedSwiGlu, 0.7f}},
                {x.view(), ids.data(), gates.data(), 2}, {&node, 1}, {&out, 1});
    return y.values();
  }

 private:
  std::vector<OwnedBlocks> blocks_;
  std::vector<OwnedWeight> wide_;
};

TEST_P(WideMatMulTest, ExpertsHaveTheBitsOfTheSameWeightsAsF32) {
  const Experts experts(GetParam());
  ThreadTeam team({.num_threads = 3});
  for (const int64_t tokens : {1, 9}) {
    const DotContext plain = {nullptr, AllDotSets().back().ops};
    const auto want = experts.Outputs(plain, /*as_blocks=*/false, tokens);
    for (const DotSet& set : AllDotSets()) {
      for (Executor* executor :
           {static_cast<Executor*>(nullptr), static_cast<Executor*>(&team)}) {
        EXPECT_TRUE(SameBits(
            experts.Outputs({executor, set.ops, kF32}, true, tokens), want))
            << NameOf(GetParam()) << " " << set.name;
      }
    }
    // Activations of eight bits are others.
    EXPECT_FALSE(SameBits(experts.Outputs(plain, true, tokens), want));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, WideMatMulTest,
                         testing::ValuesIn(TestedBlockFormats()),
                         [](const auto& tested) {
                           return NameOf(tested.param);
                         });

TEST(WideRowsTest, ARowThatIsNotFiniteFailsAlone) {
  constexpr auto kFormat = BlockFormat::kQ4K;
  const auto stored = RandomBlockRows(kFormat, 46, 20, 256);
  const OwnedBlocks w(kFormat, stored, 20, 256);
  auto values = RandomFloats(47, 3 * 256);
  const OwnedMatrix whole(3, 256, values);
  values[256 + 37] = std::numeric_limits<float>::quiet_NaN();
  const OwnedMatrix damaged(3, 256, values);
  for (const DotSet& set : AllDotSets()) {
    OwnedMatrix want(3, 20), got(3, 20);
    WideMatMul({nullptr, set.ops}, whole.view(), w.view(), nullptr,
               want.view());
    WideMatMul({nullptr, set.ops}, damaged.view(), w.view(), nullptr,
               got.view());
    for (size_t i = 0; i < 60; ++i) {
      if (i / 20 == 1) {
        EXPECT_TRUE(std::isnan(got.values()[i])) << set.name;
      } else {
        EXPECT_EQ(got.values()[i], want.values()[i]) << set.name;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels
