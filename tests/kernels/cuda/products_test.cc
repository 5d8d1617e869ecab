#include "kernels/cuda/products.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/matmul.h"
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

}  // namespace
}  // namespace sluice::kernels::cuda
