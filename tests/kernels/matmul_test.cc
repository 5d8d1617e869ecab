#include "kernels/matmul.h"

#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "gtest/gtest.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

using Parameters = std::tuple<Isa, WeightType>;

class MatMulTest : public testing::TestWithParam<Parameters> {
 protected:
  void SetUp() override {
    if (!HasIsa(isa())) {
      GTEST_SKIP() << "this machine has no " << ToString(isa());
    }
  }
  Isa isa() const { return std::get<0>(GetParam()); }
  WeightType type() const { return std::get<1>(GetParam()); }
  Context context() const { return {.executor = nullptr, .isa = isa()}; }

  std::vector<float> Multiply(const Context& context,
                              const std::vector<float>& x, int64_t tokens,
                              const OwnedWeight& w,
                              const float* bias = nullptr) const {
    const WeightView view = w.view();
    const OwnedMatrix input(tokens, view.cols, x);
    OwnedMatrix y(tokens, view.rows, 3);
    MatMul(context, input.view(), view, bias, y.view());
    EXPECT_TRUE(y.MarkIntact());
    return y.values();
  }
};

TEST_P(MatMulTest, EqualsTheCanonicalDotAtEveryRemainder) {
  for (int64_t cols = 0; cols <= 70; ++cols) {
    for (int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 17}) {
      const int64_t tokens = 1 + (cols + rows) % 14;
      const auto x = RandomFloats(1, tokens * cols);
      const auto values = RandomBf16(2, rows * cols);
      const OwnedWeight w(type(), rows, cols, values);
      const auto y = Multiply(context(), x, tokens, w);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t r = 0; r < rows; ++r) {
          const float want =
              CanonicalDot(x.data() + t * cols, values.data() + r * cols, cols);
          ASSERT_EQ(y[t * rows + r], want)
              << "cols " << cols << " rows " << rows << " token " << t;
        }
      }
    }
  }
}

// So many that a tile's rows are read in runs of an odd number of them.
TEST_P(MatMulTest, ManyRowsAreTheCanonicalDot) {
  constexpr int64_t kCols = 40;
  for (const int64_t rows : {1023, 1024, 1030, 1031}) {
    const auto x = RandomFloats(1, kCols);
    const auto values = RandomBf16(2, rows * kCols);
    const OwnedWeight w(type(), rows, kCols, values);
    const OwnedMatrix input(1, kCols, x);
    OwnedMatrix y(1, rows, 3);
    MatMul(context(), input.view(), w.view(), nullptr, y.view());
    EXPECT_TRUE(y.MarkIntact());
    const auto got = y.values();
    for (int64_t r = 0; r < rows; ++r) {
      ASSERT_EQ(got[r],
                CanonicalDot(x.data(), values.data() + r * kCols, kCols))
          << "row " << r << " of " << rows;
    }
  }
}

TEST_P(MatMulTest, IsCloseToDoubleWithBias) {
  for (int64_t cols : {16, 100, 576, 2048}) {
    const int64_t rows = 37;
    const int64_t tokens = 9;
    const auto x = RandomFloats(3, tokens * cols);
    const auto values = RandomBf16(4, rows * cols, 0.1f);
    const auto bias = RandomFloats(5, rows);
    const OwnedWeight w(type(), rows, cols, values);
    const auto y = Multiply(context(), x, tokens, w, bias.data());
    // A lane rounds cols / 16 times, the lane tree 4 times, the bias once.
    const double gamma = Gamma((cols + 15) / 16 + 5);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < rows; ++r) {
        const float* xr = x.data() + t * cols;
        const float* wr = values.data() + r * cols;
        const double want = DotInDouble(xr, wr, cols) + double{bias[r]};
        const double bound =
            gamma * (AbsDot(xr, wr, cols) + std::abs(double{bias[r]}));
        ASSERT_NEAR(y[t * rows + r], want, bound) << "cols " << cols;
      }
    }
  }
}

TEST_P(MatMulTest, ATokenAloneHasTheBitsOfTheTokenInABatch) {
  const int64_t rows = 53;
  const int64_t cols = 200;
  const int64_t tokens = 67;
  const auto x = RandomFloats(6, tokens * cols);
  const OwnedWeight w(type(), rows, cols, RandomBf16(7, rows * cols));
  const auto all = Multiply(context(), x, tokens, w);
  for (int64_t batch : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 31}) {
    for (int64_t t = 0; t + batch <= tokens; t += batch) {
      const std::vector<float> some(x.begin() + t * cols,
                                    x.begin() + (t + batch) * cols);
      const std::vector<float> want(all.begin() + t * rows,
                                    all.begin() + (t + batch) * rows);
      ASSERT_TRUE(SameBits(Multiply(context(), some, batch, w), want))
          << "batch " << batch << " token " << t;
    }
  }
}

TEST_P(MatMulTest, AnyThreadCountGivesTheSameBits) {
  const int64_t rows = 515;
  const int64_t cols = 333;
  for (int64_t tokens : {1, 9}) {
    const auto x = RandomFloats(8, tokens * cols);
    const OwnedWeight w(type(), rows, cols, RandomBf16(9, rows * cols));
    const auto alone = Multiply(context(), x, tokens, w);
    for (int threads : {1, 2, 3, 5}) {
      ThreadTeam team({.num_threads = threads});
      const Context with_team = {.executor = &team, .isa = isa()};
      EXPECT_TRUE(SameBits(Multiply(with_team, x, tokens, w), alone))
          << threads << " threads, " << tokens << " tokens";
    }
  }
}

TEST_P(MatMulTest, KeepsTheSignOfZeroAndTinyNumbers) {
  // Products that underflow to -0 in a lane without further elements.
  const int64_t cols = 17;
  std::vector<float> x(cols, 0x1p-100f);
  std::vector<float> values(cols, -0x1p-100f);
  const OwnedWeight w(type(), 1, cols, values);
  const auto y = Multiply(context(), x, 1, w);
  const float want = CanonicalDot(x.data(), values.data(), cols);
  EXPECT_TRUE(SameBits(y, {want}));
  // A denormal result stays one.
  values.assign(cols, 0x1p-30f);
  const OwnedWeight tiny(type(), 1, cols, values);
  EXPECT_EQ(Multiply(context(), x, 1, tiny)[0], 17 * 0x1p-130f);
}

// What a tree over leaves [begin, end) of `partials` gives.
float JoinInTree(const std::vector<float>& partials, const TreeNode& node) {
  return ReduceTree(
      node.begin, node.end, [&](int32_t i) { return partials[i]; },
      [](float a, float b) { return a + b; });
}

struct Product {
  std::vector<float> x;
  std::vector<float> w;
  int64_t tokens;
  int64_t rows;
  int64_t cols;
};

// Multiplies columns of shards [first, last) and returns one vector per node.
std::vector<std::vector<float>> MultiplyShards(
    const Context& context, WeightType type, const Product& p,
    const std::vector<int32_t>& bounds, int32_t first, int32_t last) {
  const auto shards = static_cast<int32_t>(bounds.size()) - 1;
  const int32_t low = bounds[first];
  const int32_t cols = bounds[last] - low;
  std::vector<float> x;
  for (int64_t t = 0; t < p.tokens; ++t) {
    const float* row = p.x.data() + t * p.cols + low;
    x.insert(x.end(), row, row + cols);
  }
  std::vector<float> values;
  for (int64_t r = 0; r < p.rows; ++r) {
    const float* row = p.w.data() + r * p.cols + low;
    values.insert(values.end(), row, row + cols);
  }
  std::vector<int32_t> own(bounds.begin() + first, bounds.begin() + last + 1);
  for (int32_t& bound : own) bound -= low;
  std::vector<TreeNode> nodes = AlignedNodes(first, last, shards);
  for (TreeNode& node : nodes) {
    node.begin -= first;
    node.end -= first;
  }
  const OwnedWeight w(type, p.rows, cols, values);
  const OwnedMatrix input(p.tokens, cols, x);
  std::vector<OwnedMatrix> outputs(nodes.size(),
                                   OwnedMatrix(p.tokens, p.rows, 1));
  std::vector<Matrix> views;
  for (OwnedMatrix& output : outputs) views.push_back(output.view());
  MatMulSharded(context, input.view(), w.view(),
                {.bounds = own, .nodes = nodes}, views);
  std::vector<std::vector<float>> results;
  for (const OwnedMatrix& output : outputs) {
    EXPECT_TRUE(output.MarkIntact());
    results.push_back(output.values());
  }
  return results;
}

TEST_P(MatMulTest, ShardsAreCanonicalDotsJoinedInTheTree) {
  const std::vector<int32_t> bounds = {0,   16,  16,  40,  41,
                                       100, 164, 164, 200, 231};
  const auto shards = static_cast<int32_t>(bounds.size()) - 1;
  for (int64_t tokens : {1, 5, 8}) {
    Product p = {.tokens = tokens, .rows = 23, .cols = bounds.back()};
    p.x = RandomFloats(10, p.tokens * p.cols);
    p.w = RandomBf16(11, p.rows * p.cols);
    const auto y = MultiplyShards(context(), type(), p, bounds, 0, shards);
    ASSERT_EQ(y.size(), 1u);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < p.rows; ++r) {
        std::vector<float> partials;
        for (int32_t s = 0; s < shards; ++s) {
          partials.push_back(CanonicalDot(p.x.data() + t * p.cols + bounds[s],
                                          p.w.data() + r * p.cols + bounds[s],
                                          bounds[s + 1] - bounds[s]));
        }
        ASSERT_EQ(y[0][t * p.rows + r], JoinInTree(partials, {0, shards}));
      }
    }
  }
}

TEST_P(MatMulTest, AnySplitIntoRanksGivesTheSameBits) {
  for (int32_t shards : {1, 2, 3, 9, 16}) {
    std::vector<int32_t> bounds;
    for (int32_t s = 0; s <= shards; ++s) bounds.push_back(s * 24);
    Product p = {.tokens = 3, .rows = 21, .cols = bounds.back()};
    p.x = RandomFloats(12, p.tokens * p.cols);
    p.w = RandomBf16(13, p.rows * p.cols);
    const auto whole = MultiplyShards(context(), type(), p, bounds, 0, shards);
    for (int32_t ranks = 2; ranks <= shards; ++ranks) {
      // Every rank finishes its nodes; whoever has all joins them.
      std::vector<TreeNode> nodes;
      std::vector<std::vector<float>> parts;
      for (int32_t rank = 0; rank < ranks; ++rank) {
        const int32_t first = shards * rank / ranks;
        const int32_t last = shards * (rank + 1) / ranks;
        for (const TreeNode& node : AlignedNodes(first, last, shards)) {
          nodes.push_back(node);
        }
        for (auto& part :
             MultiplyShards(context(), type(), p, bounds, first, last)) {
          parts.push_back(std::move(part));
        }
      }
      ASSERT_EQ(nodes.size(), parts.size());
      for (size_t i = 0; i < whole[0].size(); ++i) {
        // Join from the nodes: a leaf of the outer tree is a whole node.
        const auto join = [&](const auto& self, int32_t begin,
                              int32_t end) -> float {
          for (size_t n = 0; n < nodes.size(); ++n) {
            if (nodes[n] == TreeNode{begin, end}) return parts[n][i];
          }
          const int32_t middle = begin + SplitPoint(end - begin);
          const float left = self(self, begin, middle);
          return left + self(self, middle, end);
        };
        ASSERT_EQ(join(join, 0, shards), whole[0][i])
            << shards << " shards, " << ranks << " ranks";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    EveryIsaAndType, MatMulTest,
    testing::Combine(testing::ValuesIn(kAllIsas),
                     testing::Values(WeightType::kF32, WeightType::kBf16)),
    [](const testing::TestParamInfo<Parameters>& parameter) {
      const bool f32 = std::get<1>(parameter.param) == WeightType::kF32;
      return std::string(ToString(std::get<0>(parameter.param))) +
             (f32 ? "_f32" : "_bf16");
    });

}  // namespace
}  // namespace sluice::kernels
