// Products of heads against matmul.h's and block_matmul.h's, head by head.
#include "kernels/head_matmul.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "common/tensor/buffer.h"
#include "common/tensor/weight_format.h"
#include "gtest/gtest.h"
#include "kernels/block_pack.h"
#include "kernels/matmul.h"
#include "kernels/quantized_buffer.h"
#include "tests/kernels/block_reference.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

struct Shape {
  int64_t heads = 3;
  int64_t rows = 20;
  int64_t cols = 32;
  int64_t x_step = 32;
  int64_t y_step = 20;
};

// Random weights of heads, and what holds them.
class Heads {
 public:
  Heads(WeightType type, const Shape& shape) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const auto seed = static_cast<uint64_t>(10 + h);
      if (FormatOf(type).is_plain()) {
        plain_.emplace_back(type, shape.rows, shape.cols,
                            RandomBf16(seed, shape.rows * shape.cols, 0.3f));
        continue;
      }
      const BlockFormat format = BlockFormatOf(type);
      const auto stored = RandomBlockRows(format, seed, shape.rows, shape.cols);
      Buffer packed(
          static_cast<size_t>(PackedBytes(format, shape.rows, shape.cols)));
      PackRows({format, stored.data(), shape.rows, shape.cols,
                StoredRowBytes(format, shape.cols)},
               packed.as<uint8_t>());
      views_.push_back(
          {{}, {format, packed.as<uint8_t>(), shape.rows, shape.cols}});
      packed_.push_back(std::move(packed));
    }
    for (const OwnedWeight& weight : plain_) {
      views_.push_back({weight.view(), {}});
    }
  }
  const std::vector<ExpertWeight>& views() const { return views_; }

 private:
  std::vector<OwnedWeight> plain_;
  std::vector<Buffer> packed_;
  std::vector<ExpertWeight> views_;
};

// The columns of head h.
template <typename M>
M HeadOf(M x, int64_t h, int64_t step, int64_t cols) {
  return {x.data + h * step, x.rows, cols, x.stride};
}

std::vector<float> OneByOne(const Context& context, const Heads& heads,
                            const Shape& shape, ConstMatrix x) {
  OwnedMatrix out(x.rows, shape.heads * shape.y_step,
                  std::vector<float>(static_cast<size_t>(x.rows * shape.heads *
                                                         shape.y_step)));
  const DotContext dot = {nullptr, &BlockOpsFor(DotIsaFor(context.isa))};
  for (int64_t h = 0; h < shape.heads; ++h) {
    const ExpertWeight& weight = heads.views()[static_cast<size_t>(h)];
    const ConstMatrix from = HeadOf(x, h, shape.x_step, shape.cols);
    const Matrix to = HeadOf(out.view(), h, shape.y_step, shape.rows);
    if (weight.is_plain()) {
      MatMul(context, from, weight.plain, nullptr, to);
      continue;
    }
    QuantizedBuffer quantized;
    BlockMatMul(
        dot,
        quantized.Quantize(dot, from, ActivationBlock(weight.blocks.format)),
        weight.blocks, nullptr, to);
  }
  return out.values();
}

class HeadMatMulTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!HasIsa(GetParam())) {
      GTEST_SKIP() << "this machine has no " << ToString(GetParam());
    }
  }
};

TEST_P(HeadMatMulTest, EqualsTheProductsOfEachHeadOnAnyTeam) {
  const Shape shapes[] = {{3, 20, 32, 32, 20},
                          {4, 48, 64, 72, 60},
                          {2, 100, 96, 96, 128},
                          {1, 16, 32, 32, 16}};
  ThreadTeam team({.num_threads = 3});
  for (const WeightType type : {WeightType::kF32, WeightType::kBf16,
                                WeightType::kQ8_0, WeightType::kQ4_0}) {
    for (const Shape& shape : shapes) {
      const Heads heads(type, shape);
      for (const int64_t tokens : {1, 2, 7, 40}) {
        const Context alone = {nullptr, GetParam()};
        const int64_t x_cols = shape.heads * shape.x_step;
        const OwnedMatrix x(tokens, x_cols, RandomFloats(5, tokens * x_cols));
        const auto want = OneByOne(alone, heads, shape, x.view());
        for (Executor* executor :
             {static_cast<Executor*>(nullptr), static_cast<Executor*>(&team)}) {
          OwnedMatrix y(tokens, shape.heads * shape.y_step,
                        std::vector<float>(want.size()));
          HeadMatMul(
              {executor, GetParam()},
              {executor, &BlockOpsFor(DotIsaFor(GetParam()))},
              {heads.views(), HeadOf(std::as_const(x).view(), 0, 0, shape.cols),
               shape.x_step, HeadOf(y.view(), 0, 0, shape.rows), shape.y_step});
          ASSERT_TRUE(SameBits(y.values(), want))
              << FormatOf(type).name << ", " << shape.heads << " heads of "
              << shape.rows << " x " << shape.cols << ", " << tokens
              << " tokens";
        }
      }
    }
  }
}

// Rows of other heads and tokens stay as they are.
TEST_P(HeadMatMulTest, AHeadThatIsNotFiniteFailsAlone) {
  const Shape shape = {2, 16, 32, 32, 16};
  const Heads heads(WeightType::kQ8_0, shape);
  auto values = RandomFloats(5, 2 * 64);
  values[64 + 40] = std::numeric_limits<float>::infinity();
  const OwnedMatrix x(2, 64, values);
  OwnedMatrix y(2, 32);
  HeadMatMul({nullptr, GetParam()},
             {nullptr, &BlockOpsFor(DotIsaFor(GetParam()))},
             {heads.views(), HeadOf(std::as_const(x).view(), 0, 0, 32), 32,
              HeadOf(y.view(), 0, 0, 16), 16});
  const auto out = y.values();
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(std::isnan(out[i]), i >= 48) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, HeadMatMulTest, ::testing::ValuesIn(kAllIsas),
                         [](const auto& tested) {
                           return std::string(ToString(tested.param));
                         });

}  // namespace
}  // namespace sluice::kernels
