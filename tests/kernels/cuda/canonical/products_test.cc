#include "kernels/cuda/canonical/products.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/block_matmul.h"
#include "kernels/matmul.h"
#include "tests/kernels/block_reference.h"
#include "tests/kernels/block_tester.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

struct Shape {
  int64_t tokens;
  int64_t rows;
  int64_t cols;
};

// Runs op(stream, y) on marked outputs [tokens, rows] both ways; expects the
// bits of on_cpu(y).
template <typename OnDevice, typename OnCpu>
void ExpectSameProducts(const Shape& shape, size_t outputs,
                        const OnDevice& on_device, const OnCpu& on_cpu) {
  const auto run = [&](const auto& op) {
    std::vector<OwnedMatrix> owned(outputs,
                                   OwnedMatrix(shape.tokens, shape.rows, 3));
    std::vector<Matrix> y;
    for (OwnedMatrix& matrix : owned) y.push_back(matrix.view());
    op(y);
    std::vector<float> all;
    for (const OwnedMatrix& matrix : owned) {
      EXPECT_TRUE(matrix.MarkIntact());
      const auto values = matrix.values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const auto got = BothWays([&](Stream stream) {
    return run([&](std::vector<Matrix>& y) { on_device(stream, y); });
  });
  EXPECT_TRUE(SameBits(got, run(on_cpu)));
}

void ExpectPlainProducts(const Shape& shape, const WeightView& w) {
  SCOPED_TRACE(testing::Message()
               << shape.tokens << " x " << shape.rows << " x " << shape.cols);
  const OwnedMatrix x(shape.tokens, shape.cols,
                      RandomFloats(1, shape.tokens * shape.cols));
  const auto bias = RandomFloats(2, shape.rows);
  for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
    ExpectSameProducts(
        shape, 1,
        [&](Stream stream, std::vector<Matrix>& y) {
          MatMul(stream, x.view(), w, b, y[0]);
        },
        [&](std::vector<Matrix>& y) {
          kernels::MatMul({}, x.view(), w, b, y[0]);
        });
  }
}

TEST(CudaMatMulTest, HasTheCpusBitsAtEveryBoundary) {
  for (const Shape& shape :
       {Shape{1, 1, 1}, Shape{1, 8, 16}, Shape{2, 7, 15}, Shape{3, 9, 17},
        Shape{4, 16, 31}, Shape{5, 17, 160}, Shape{9, 3, 33}}) {
    const int64_t n = shape.rows * shape.cols;
    const OwnedWeight f32(WeightType::kF32, shape.rows, shape.cols,
                          RandomFloats(3, n));
    ExpectPlainProducts(shape, f32.view());
    const OwnedWeight bf16(WeightType::kBf16, shape.rows, shape.cols,
                           RandomBf16(3, n));
    ExpectPlainProducts(shape, bf16.view());
  }
  const CodedWeight e4m3(4, 10, 96);
  ExpectPlainProducts({5, 10, 96}, e4m3.view());
  const CodedWeight wide(WeightType::kE4m3Wide, 4, 10, 384);
  ExpectPlainProducts({5, 10, 384}, wide.view());
}

// A lane's columns: a batch and all numbers of columns beyond it.
TEST(CudaMatMulTest, ColumnsBeyondWholeBatchesHaveTheCpusBits) {
  for (const int64_t steps : {7, 8, 9, 15, 16, 17, 25, 31, 32, 33, 41, 72}) {
    for (const int64_t cols : {16 * steps, 16 * steps + 5}) {
      const OwnedWeight f32(WeightType::kF32, 3, cols,
                            RandomFloats(3, 3 * cols));
      ExpectPlainProducts({2, 3, cols}, f32.view());
    }
  }
  const CodedWeight e4m3(4, 3, 16 * 42);
  ExpectPlainProducts({2, 3, 16 * 42}, e4m3.view());
  const CodedWeight wide(WeightType::kE4m3Wide, 4, 3, 16 * 40);
  ExpectPlainProducts({2, 3, 16 * 40}, wide.view());
}

// So many that a thread takes several rows for a token: the last rows and
// tokens are fewer than others.
TEST(CudaMatMulTest, ManyTokensHaveTheCpusBits) {
  for (const Shape& shape : {Shape{1021, 32, 16}, Shape{341, 67, 131}}) {
    const int64_t n = shape.rows * shape.cols;
    const OwnedWeight f32(WeightType::kF32, shape.rows, shape.cols,
                          RandomFloats(3, n));
    ExpectPlainProducts(shape, f32.view());
  }
  const OwnedWeight bf16(WeightType::kBf16, 33, 24, RandomBf16(3, 33 * 24));
  ExpectPlainProducts({509, 33, 24}, bf16.view());
  const CodedWeight e4m3(4, 33, 96);
  ExpectPlainProducts({509, 33, 96}, e4m3.view());
  const CodedWeight wide(WeightType::kE4m3Wide, 4, 33, 128);
  ExpectPlainProducts({509, 33, 128}, wide.view());
}

// What routers have: columns below a batch that is read ahead, of one, of two
// and beyond, tokens and rows at the bounds of such products.
TEST(CudaMatMulTest, FewTokensAndRowsHaveTheCpusBits) {
  for (const int64_t cols : {4, 20, 176, 192, 196, 384, 404, 580}) {
    const OwnedWeight w(WeightType::kF32, 5, cols, RandomFloats(3, 5 * cols));
    for (const int64_t tokens : {1, 3, 4, 5}) {
      ExpectPlainProducts({tokens, 5, cols}, w.view());
    }
  }
  for (const Shape& shape : {Shape{32, 2, 32}, Shape{33, 2, 32},
                             Shape{1, 512, 32}, Shape{1, 513, 32},
                             // More than shared memory has.
                             Shape{1, 2, 20000}}) {
    const OwnedWeight w(WeightType::kF32, shape.rows, shape.cols,
                        RandomFloats(3, shape.rows * shape.cols));
    ExpectPlainProducts(shape, w.view());
  }
}

TEST(CudaMatMulTest, IsCloseToDouble) {
  const int64_t rows = 3;
  const int64_t cols = 500;
  const auto x = RandomFloats(5, cols);
  const auto w = RandomFloats(6, rows * cols);
  const OwnedMatrix input(1, cols, x);
  const OwnedWeight weight(WeightType::kF32, rows, cols, w);
  const auto got = BothWays([&](Stream stream) {
    OwnedMatrix y(1, rows);
    MatMul(stream, input.view(), weight.view(), nullptr, y.view());
    return y.values();
  });
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = w.data() + r * cols;
    ASSERT_NEAR(got[r], DotInDouble(x.data(), row, cols),
                AbsDot(x.data(), row, cols) * Gamma(cols / 16 + 5));
  }
}

// Six shards, one of them empty, and the nodes of two ranks.
const int32_t kBounds[] = {0, 256, 512, 512, 768, 1024, 1280};
const TreeNode kNodes[] = {{0, 4}, {4, 6}};

TEST(CudaMatMulTest, ShardsAreJoinedInTheTree) {
  const Shape shape = {3, 10, 1280};
  const OwnedMatrix x(3, 1280, RandomFloats(7, 3 * 1280));
  const OwnedWeight w(WeightType::kBf16, 10, 1280, RandomBf16(8, 12800));
  ExpectSameProducts(
      shape, 2,
      [&](Stream stream, std::vector<Matrix>& y) {
        MatMulSharded(stream, x.view(), w.view(), {kBounds, kNodes}, y);
      },
      [&](std::vector<Matrix>& y) {
        kernels::MatMulSharded({}, x.view(), w.view(), {kBounds, kNodes}, y);
      });
}

TEST(CudaQuantizeTest, RowsHaveTheCpusCodesScalesAndSums) {
  const DotContext cpu = {nullptr, &BlockOpsFor(DotIsaFor(Isa::kPortable))};
  for (const int32_t block : {32, 256}) {
    // Fewer blocks than pieces, and pieces of several blocks for a warp.
    for (const int64_t count : {1, 5, 140}) {
      const int64_t cols = count * block;
      auto x = SpreadActivations(9, 4, cols);
      x[static_cast<size_t>(cols) + 3] = INFINITY;
      x[static_cast<size_t>(2 * cols) + 31] = NAN;
      const OwnedRows want(cpu, x, 4, cols, block);
      const OwnedMatrix input(4, cols, x);
      BothWays([&](Stream stream) {
        std::vector<int8_t> codes(4 * cols, 99);
        std::vector<float> scales(4 * cols / block, -1);
        std::vector<int16_t> sums(4 * cols / 16, 77);
        const auto finite = std::make_unique<bool[]>(4 * kFinitePieces);
        FlaggedRows to;
        to.rows = {codes.data(), scales.data(), sums.data(), 4, cols, block};
        to.finite = finite.get();
        QuantizeRows(stream, input.view(), to);
        EXPECT_EQ(codes, want.codes());
        EXPECT_EQ(sums, want.sums());
        for (int t = 0; t < 4; ++t) {
          const bool* const own = finite.get() + t * kFinitePieces;
          const bool all =
              std::all_of(own, own + kFinitePieces, [](bool f) { return f; });
          EXPECT_EQ(all, want.finite(t));
        }
        EXPECT_TRUE(SameBits(scales, want.scales()));
        return scales;
      });
    }
  }
}

// A flag of any piece fails its row, in a tile and alone, in all outputs.
TEST(CudaQuantizeTest, OutputsOfRowsThatAreNotFiniteBecomeNaN) {
  const DotContext cpu = {nullptr, &BlockOpsFor(DotIsaFor(Isa::kPortable))};
  const OwnedBlocks w(BlockFormat::kQ4_0,
                      RandomBlockRows(BlockFormat::kQ4_0, 21, 19, 1280), 19,
                      1280);
  for (const int64_t tokens : {1, 3}) {
    const OwnedRows x(cpu, SpreadActivations(22, tokens, 1280), tokens, 1280,
                      32);
    for (const int64_t flag : {0, 1, kFinitePieces - 1}) {
      const auto finite = std::make_unique<bool[]>(tokens * kFinitePieces);
      std::fill_n(finite.get(), tokens * kFinitePieces, true);
      const int64_t failed = tokens - 1;
      finite[failed * kFinitePieces + flag] = false;
      BothWays([&](Stream stream) {
        OwnedMatrix y(tokens, 19, 0);
        OwnedMatrix part(tokens, 19, 0);
        const std::vector<Matrix> outputs = {y.view(), part.view()};
        BlockMatMulSharded(stream, {x.view(), finite.get()}, w.view(),
                           {kBounds, kNodes}, outputs);
        std::vector<float> values = y.values();
        for (const OwnedMatrix* of : {&y, &part}) {
          const auto all = of->values();
          for (int64_t i = 0; i < tokens * 19; ++i) {
            EXPECT_EQ(std::isnan(all[i]), i / 19 == failed);
          }
        }
        return values;
      });
    }
  }
}

class CudaBlockTest : public testing::TestWithParam<BlockFormat> {
 protected:
  const DotContext cpu_ = {nullptr, &BlockOpsFor(DotIsaFor(Isa::kPortable))};
};

TEST_P(CudaBlockTest, ProductsHaveTheCpusBitsAtEveryBoundary) {
  const int64_t block = BlockElements(GetParam());
  for (const Shape& shape :
       {Shape{1, 1, block}, Shape{3, 17, 3 * block}, Shape{5, 33, 9 * block},
        // Tiles of matrix units: fewer blocks than a stage has, and more.
        Shape{9, 17, block}, Shape{66, 67, 5 * block}}) {
    const OwnedBlocks w(GetParam(),
                        RandomBlockRows(GetParam(), 11, shape.rows, shape.cols),
                        shape.rows, shape.cols);
    const OwnedRows x(cpu_, SpreadActivations(12, shape.tokens, shape.cols),
                      shape.tokens, shape.cols, static_cast<int32_t>(block));
    const auto bias = RandomFloats(13, shape.rows);
    ExpectSameProducts(
        shape, 1,
        [&](Stream stream, std::vector<Matrix>& y) {
          BlockMatMul(stream, {x.view()}, w.view(), bias.data(), y[0]);
        },
        [&](std::vector<Matrix>& y) {
          kernels::BlockMatMul(cpu_, x.view(), w.view(), bias.data(), y[0]);
        });
  }
}

TEST_P(CudaBlockTest, ShardsAreJoinedInTheTree) {
  const Shape shape = {2, 16, 1280};
  const auto block = static_cast<int32_t>(BlockElements(GetParam()));
  const OwnedBlocks w(GetParam(), RandomBlockRows(GetParam(), 14, 16, 1280), 16,
                      1280);
  const OwnedRows x(cpu_, SpreadActivations(15, 2, 1280), 2, 1280, block);
  ExpectSameProducts(
      shape, 2,
      [&](Stream stream, std::vector<Matrix>& y) {
        BlockMatMulSharded(stream, {x.view()}, w.view(), {kBounds, kNodes}, y);
      },
      [&](std::vector<Matrix>& y) {
        kernels::BlockMatMulSharded(cpu_, x.view(), w.view(), {kBounds, kNodes},
                                    y);
      });
}

// Every level of a tree whose sums wait, and a node of one leaf.
TEST_P(CudaBlockTest, ManyTokensShardsAreJoinedInTheTree) {
  const auto block = static_cast<int32_t>(BlockElements(GetParam()));
  const std::vector<int32_t> bounds = {
      0, block, block, 2 * block, 5 * block, 6 * block, 7 * block, 8 * block};
  const std::vector<TreeNode> nodes = {{0, 6}, {6, 7}};
  const Shape shape = {10, 16, 8 * block};
  const OwnedBlocks w(GetParam(),
                      RandomBlockRows(GetParam(), 14, 16, shape.cols), 16,
                      shape.cols);
  const OwnedRows x(cpu_, SpreadActivations(15, 10, shape.cols), 10, shape.cols,
                    block);
  ExpectSameProducts(
      shape, 2,
      [&](Stream stream, std::vector<Matrix>& y) {
        BlockMatMulSharded(stream, {x.view()}, w.view(), {bounds, nodes}, y);
      },
      [&](std::vector<Matrix>& y) {
        kernels::BlockMatMulSharded(cpu_, x.view(), w.view(), {bounds, nodes},
                                    y);
      });
}

// Blocks fewer than a pass of a single token's kernel has, as many and more.
TEST_P(CudaBlockTest, SingleTokensHaveTheCpusBitsAtEveryPass) {
  const int64_t block = BlockElements(GetParam());
  for (const int64_t count : {15, 16, 17, 31, 32, 33, 63, 64, 65, 130}) {
    if (block == kLongBlock && count > 33) break;
    SCOPED_TRACE(count);
    const int64_t cols = count * block;
    const OwnedBlocks w(GetParam(), RandomBlockRows(GetParam(), 17, 17, cols),
                        17, cols);
    const OwnedRows x(cpu_, SpreadActivations(18, 1, cols), 1, cols,
                      static_cast<int32_t>(block));
    const auto bias = RandomFloats(19, 17);
    ExpectSameProducts(
        {1, 17, cols}, 1,
        [&](Stream stream, std::vector<Matrix>& y) {
          BlockMatMul(stream, {x.view()}, w.view(), bias.data(), y[0]);
        },
        [&](std::vector<Matrix>& y) {
          kernels::BlockMatMul(cpu_, x.view(), w.view(), bias.data(), y[0]);
        });
  }
}

// Shards that end within passes and at their ends.
TEST_P(CudaBlockTest, ASingleTokensShardsAreJoinedInTheTree) {
  const auto block = static_cast<int32_t>(BlockElements(GetParam()));
  for (const std::vector<int32_t>& ends :
       {std::vector<int32_t>{1, 4, 4, 32, 64, 67}, {16, 32, 48, 64, 64, 64}}) {
    std::vector<int32_t> bounds = {0};
    for (const int32_t end : ends) bounds.push_back(end * block);
    const int64_t cols = bounds.back();
    const OwnedBlocks w(GetParam(), RandomBlockRows(GetParam(), 17, 17, cols),
                        17, cols);
    const OwnedRows x(cpu_, SpreadActivations(18, 1, cols), 1, cols, block);
    ExpectSameProducts(
        {1, 17, cols}, 2,
        [&](Stream stream, std::vector<Matrix>& y) {
          BlockMatMulSharded(stream, {x.view()}, w.view(), {bounds, kNodes}, y);
        },
        [&](std::vector<Matrix>& y) {
          kernels::BlockMatMulSharded(cpu_, x.view(), w.view(),
                                      {bounds, kNodes}, y);
        });
  }
}

TEST_P(CudaBlockTest, EmbeddedRowsAreTheCpusWidenedOnes) {
  const int64_t block = BlockElements(GetParam());
  // More sub-blocks than a warp has threads.
  const int64_t cols = (block == kLongBlock ? 5 : 33) * block;
  const OwnedBlocks table(GetParam(), RandomBlockRows(GetParam(), 16, 19, cols),
                          19, cols);
  const std::vector<int32_t> ids = {18, 0, 7, 7, 16, 15};
  const auto tokens = static_cast<int64_t>(ids.size());
  std::vector<float> want(static_cast<size_t>(tokens * cols));
  for (int64_t t = 0; t < tokens; ++t) {
    WidenRow(table.view(), ids[t], want.data() + t * cols);
  }
  const auto got = BothWays([&](Stream stream) {
    OwnedMatrix y(tokens, cols, 5);
    EmbedBlocks(stream, table.view(), ids.data(), y.view());
    EXPECT_TRUE(y.MarkIntact());
    return y.values();
  });
  EXPECT_TRUE(SameBits(got, want));
}

INSTANTIATE_TEST_SUITE_P(, CudaBlockTest, testing::ValuesIn(AllBlockFormats()),
                         [](const auto& param) { return NameOf(param.param); });

}  // namespace
}  // namespace sluice::kernels::cuda
