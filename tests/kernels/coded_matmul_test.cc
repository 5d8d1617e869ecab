// Products with weights of types kE4m3 and kE4m3Wide have the bits of products
// with the same weights widened to F32, which matmul_test.cc holds to the
// canonical dot.
#include <cstdint>
#include <string>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "common/tensor/weight_format.h"
#include "gtest/gtest.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

struct Tested {
  WeightType type;
  Isa isa;
};

class CodedMatMulTest : public testing::TestWithParam<Tested> {
 protected:
  void SetUp() override {
    if (!HasIsa(GetParam().isa)) {
      GTEST_SKIP() << "this machine has no " << ToString(GetParam().isa);
    }
  }
  Context context() const {
    return {.executor = nullptr, .isa = GetParam().isa};
  }
  static WeightType type() { return GetParam().type; }
  static int run() { return FormatOf(type()).block_elements; }

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
  const CodedWeight coded(type(), 1, 8 * 8, 8 * run(), [&] {
    std::vector<float> all;
    for (int i = 0; i < 8 * 8 * 8; ++i) all.push_back(scales[i % 8]);
    return all;
  }());
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < 8 * 8; ++id) ids.push_back(id);
  OwnedMatrix rows(8 * 8, 8 * run());
  Embed(context(), coded.view(), ids.data(), rows.view());
  EXPECT_TRUE(SameBits(rows.values(), coded.values()));
}

TEST_P(CodedMatMulTest, HasTheBitsOfTheWidenedWeight) {
  for (const int64_t runs : {0, 1, 2, 3, 5, 18, 64}) {
    const int64_t cols = runs * run();
    for (const int64_t rows : {1, 2, 3, 4, 5, 7, 9, 33}) {
      ExpectSameProducts(context(), CodedWeight(type(), 2 + rows, rows, cols),
                         1 + (cols + rows) % 14);
    }
  }
}

TEST_P(CodedMatMulTest, AnyThreadCountGivesTheSameBits) {
  const CodedWeight coded(type(), 3, 515, 10 * run());
  for (const int threads : {1, 2, 3, 5}) {
    ThreadTeam team({.num_threads = threads});
    for (const int64_t tokens : {1, 9}) {
      ExpectSameProducts({.executor = &team, .isa = GetParam().isa}, coded,
                         tokens);
    }
  }
}

TEST_P(CodedMatMulTest, ShardsOfWholeRunsHaveTheBitsOfTheWidenedWeight) {
  std::vector<int32_t> bounds = {0, 1, 1, 4, 5, 7};
  for (int32_t& bound : bounds) bound *= run();
  const std::vector<TreeNode> nodes = {{0, 4}, {4, 5}};
  const int64_t tokens = 6;
  const int64_t rows = 21;
  const CodedWeight coded(type(), 4, rows, bounds.back());
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

// The same elements in runs of both lengths have the same products.
TEST_P(CodedMatMulTest, RunsOfAnyLengthHaveTheSameBits) {
  if (type() == WeightType::kE4m3) return;
  for (const int64_t rows : {1, 6, 17}) {
    const int64_t cols = 3 * kE4m3WideRun;
    const CodedWeight wide(type(), 7, rows, cols);
    std::vector<uint8_t> runs;
    const auto* from = static_cast<const uint8_t*>(wide.view().data);
    for (int64_t i = 0; i < rows * cols; i += kE4m3Run) {
      const uint8_t* run = from + i / kE4m3WideRun * kE4m3WideRunBytes;
      runs.insert(runs.end(), run, run + 4);
      const uint8_t* const codes = run + 4 + i % kE4m3WideRun;
      runs.insert(runs.end(), codes, codes + kE4m3Run);
    }
    const WeightView narrow = {runs.data(), WeightType::kE4m3, rows, cols};
    for (const int64_t tokens : {1, 9}) {
      const OwnedMatrix x(tokens, cols, RandomFloats(9, tokens * cols));
      OwnedMatrix y(tokens, rows);
      OwnedMatrix want(tokens, rows);
      MatMul(context(), x.view(), wide.view(), nullptr, y.view());
      MatMul(context(), x.view(), narrow, nullptr, want.view());
      EXPECT_TRUE(SameBits(y.values(), want.values()));
    }
  }
}

std::vector<Tested> AllTested() {
  std::vector<Tested> all;
  for (const WeightType type : {WeightType::kE4m3, WeightType::kE4m3Wide}) {
    for (const Isa isa : kAllIsas) all.push_back({type, isa});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Types, CodedMatMulTest, testing::ValuesIn(AllTested()),
                         [](const auto& tested) {
                           return std::string(
                                      FormatOf(tested.param.type).name) +
                                  "_" + ToString(tested.param.isa);
                         });

}  // namespace
}  // namespace sluice::kernels
