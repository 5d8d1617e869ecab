// Products with weights of type kE4m3 have the bits of products with the same
// weights widened to F32, which matmul_test.cc holds to the canonical dot.
#include <cstdint>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "gtest/gtest.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

class CodedMatMulTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!HasIsa(GetParam())) {
      GTEST_SKIP() << "this machine has no " << ToString(GetParam());
    }
  }
  Context context() const { return {.executor = nullptr, .isa = GetParam()}; }

  // Expects equal bits of `coded` and of its elements as F32.
  static void ExpectSameProducts(const Context& context,
                                 const CodedWeight& coded, int64_t tokens) {
    const WeightView view = coded.view();
    const OwnedWeight wide(WeightType::kF32, view.rows, view.cols,
                           coded.values());
    const OwnedMatrix x(tokens, view.cols, RandomFloats(9, tokens * view.cols));
    const auto bias = RandomFloats(10, view.rows);
    OwnedMatrix y(tokens, view.rows, 3);
    OwnedMatrix want(tokens, view.rows, 3);
    MatMul(context, x.view(), view, bias.data(), y.view());
    MatMul(context, x.view(), wide.view(), bias.data(), want.view());
    EXPECT_TRUE(SameBits(y.values(), want.values()))
        << view.rows << " rows, " << view.cols << " columns, " << tokens
        << " tokens";
    EXPECT_TRUE(y.MarkIntact());
  }
};

TEST_P(CodedMatMulTest, EveryCodeWidensExactly) {
  // Products that round, are denormal, are zero, and have a negative scale.
  const std::vector<float> scales = {1.0f,  0.3f, 0x1.fffffep-1f,  0x1p-120f,
                                     -0.7f, 0.0f, 0x1.23456p-133f, 0x1.8p118f};
  const CodedWeight coded(1, 8 * 8, 8 * kE4m3Run, [&] {
    std::vector<float> all;
    for (int i = 0; i < 8 * 8 * 8; ++i) all.push_back(scales[i % 8]);
    return all;
  }());
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < 8 * 8; ++id) ids.push_back(id);
  OwnedMatrix rows(8 * 8, 8 * kE4m3Run);
  Embed(context(), coded.view(), ids.data(), rows.view());
  EXPECT_TRUE(SameBits(rows.values(), coded.values()));
}

TEST_P(CodedMatMulTest, HasTheBitsOfTheWidenedWeight) {
  for (const int64_t cols : {0, 32, 64, 96, 160, 576, 2048}) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 7, 9, 33}) {
      ExpectSameProducts(context(), CodedWeight(2 + rows, rows, cols),
                         1 + (cols + rows) % 14);
    }
  }
}

TEST_P(CodedMatMulTest, AnyThreadCountGivesTheSameBits) {
  const CodedWeight coded(3, 515, 320);
  for (const int threads : {1, 2, 3, 5}) {
    ThreadTeam team({.num_threads = threads});
    for (const int64_t tokens : {1, 9}) {
      ExpectSameProducts({.executor = &team, .isa = GetParam()}, coded, tokens);
    }
  }
}

TEST_P(CodedMatMulTest, ShardsOfWholeRunsHaveTheBitsOfTheWidenedWeight) {
  const std::vector<int32_t> bounds = {0, 32, 32, 128, 160, 224};
  const std::vector<TreeNode> nodes = {{0, 4}, {4, 5}};
  const int64_t tokens = 6;
  const int64_t rows = 21;
  const CodedWeight coded(4, rows, bounds.back());
  const OwnedWeight wide(WeightType::kF32, rows, bounds.back(), coded.values());
  const OwnedMatrix x(tokens, bounds.back(),
                      RandomFloats(11, tokens * bounds.back()));
  std::vector<std::vector<float>> found;
  for (const WeightView& view : {coded.view(), wide.view()}) {
    std::vector<OwnedMatrix> outputs(nodes.size(),
                                     OwnedMatrix(tokens, rows, 1));
    std::vector<Matrix> views;
    for (OwnedMatrix& output : outputs) views.push_back(output.view());
    MatMulSharded(context(), x.view(), view, {.bounds = bounds, .nodes = nodes},
                  views);
    auto& all = found.emplace_back();
    for (const OwnedMatrix& output : outputs) {
      EXPECT_TRUE(output.MarkIntact());
      const auto values = output.values();
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  EXPECT_TRUE(SameBits(found[0], found[1]));
}

INSTANTIATE_TEST_SUITE_P(Isas, CodedMatMulTest, testing::ValuesIn(kAllIsas),
                         [](const auto& tested) {
                           return std::string(ToString(tested.param));
                         });

}  // namespace
}  // namespace sluice::kernels
