// Products that norm a token's row themselves have the bits of the norm and the
// product one after the other.
#include <algorithm>
#include <string>
#include <vector>

#include "common/tensor/weight_format.h"
#include "gtest/gtest.h"
#include "kernels/cuda/fast/norm.h"
#include "kernels/cuda/fast/products.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/cuda/fast/tiled_weights.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

constexpr float kNormedEps = 1e-5f;
constexpr int64_t kNormedOutputs = 64;

// A row among others, with its weight's operands.
struct NormedCase {
  NormedCase(WeightType type, int64_t columns)
      : cols(columns),
        w(type, 1, kNormedOutputs, columns),
        x(3, columns, 4),
        norm(RandomFloats(3, columns)),
        bias(RandomFloats(4, kNormedOutputs)) {
    const auto values = RandomFloats(2, 3 * cols, 3.0f);
    for (int64_t t = 0; t < 3; ++t) {
      std::copy_n(values.data() + t * cols, cols, x.view().row(t));
    }
  }
  // Of row `row`; -1: of the first one, without a list. Plain outputs, then
  // gated ones, each in one launch or two. None: there is no kernel for one.
  std::vector<float> At(Stream stream, int row, bool at_once) const {
    const int32_t rows[] = {row};
    const int32_t* const list = row < 0 ? nullptr : rows;
    OwnedMatrix plain(1, kNormedOutputs, 3);
    OwnedMatrix gated(1, kNormedOutputs / 2, 3);
    const Activation clamped = {Activation::Kind::kClampedSwiGlu, 0.4f};
    const ConstMatrix all = x.view();
    if (at_once) {
      TileNormedProduct product = {all,        list,        norm.data(),
                                   kNormedEps, w.view(),    bias.data(),
                                   nullptr,    plain.view()};
      if (!HasNormedProduct(stream, product)) return {};
      StartNormedProduct(stream, product);
      product.bias = nullptr;
      product.gate = &clamped;
      product.y = gated.view();
      EXPECT_TRUE(HasNormedProduct(stream, product));
      StartNormedProduct(stream, product);
    } else {
      OwnedMatrix normed(1, cols);
      TileRmsNorm(stream, {all.data, row < 0 ? 1 : 3, cols, all.stride}, list,
                  norm.data(), kNormedEps, normed.view());
      TileMatMul(stream, normed.view(), w.view(), bias.data(), plain.view());
      EXPECT_TRUE(TileGatedMatMul(stream, normed.view(), w.view(), clamped,
                                  gated.view()));
    }
    EXPECT_TRUE(plain.MarkIntact() && gated.MarkIntact());
    std::vector<float> values = plain.values();
    const std::vector<float> more = gated.values();
    values.insert(values.end(), more.begin(), more.end());
    return values;
  }

  int64_t cols;
  TiledWeights w;
  OwnedMatrix x;
  std::vector<float> norm;
  std::vector<float> bias;
};

// Columns of whole steps of a type around `cols`, at most 8,192.
std::vector<int64_t> ColsAround(WeightType type, int64_t cols) {
  const int64_t step = type == WeightType::kBf16 ? 16 : CutColumns(type);
  const int64_t below = std::max(cols / step, int64_t{1}) * step;
  if (below + step > 8192) return {below};
  return {below, below + step};
}

class TileStreamNormTest : public testing::TestWithParam<WeightType> {};

// Rows of each number of chains, also of chains that end early.
TEST_P(TileStreamNormTest, HasTheBitsOfTwoLaunches) {
  for (const int64_t about : {32, 528, 2048, 2880, 4096, 6000, 8192}) {
    for (const int64_t cols : ColsAround(GetParam(), about)) {
      SCOPED_TRACE(testing::Message() << cols << " columns");
      const NormedCase op(GetParam(), cols);
      for (const int row : {-1, 2}) {
        const auto at = [&](bool at_once) {
          return BothWays(
              [&](Stream stream) { return op.At(stream, row, at_once); });
        };
        EXPECT_TRUE(SameBits(at(true), at(false))) << "row " << row;
      }
    }
  }
}

// Where the weights have no room beside so many blocks, they come from device
// memory.
TEST_P(TileStreamNormTest, SmallDevicesHaveTheSameBits) {
  for (const int64_t about : {2048, 4096, 8192}) {
    const NormedCase op(GetParam(), ColsAround(GetParam(), about)[0]);
    const auto at = [&](size_t shared) {
      Machine machine(Schedule::kForward);
      machine.Limit({shared * 1024, 1});
      std::vector<float> values = op.At(&machine, -1, true);
      EXPECT_THAT(machine.faults(), testing::IsEmpty());
      return values;
    };
    const std::vector<float> small = at(99);
    if (small.empty()) {
      // Their units are large.
      EXPECT_TRUE(IsInUnits(GetParam()) && about == 8192) << op.cols;
      continue;
    }
    EXPECT_TRUE(SameBits(small, at(227))) << op.cols;
  }
}

INSTANTIATE_TEST_SUITE_P(, TileStreamNormTest, testing::ValuesIn(TiledTypes()),
                         [](const auto& param) {
                           return std::string(FormatOf(param.param).name);
                         });

TEST(TileNormedProductTest, WhatHasNoKernelIsLeft) {
  const auto has = [](int64_t tokens, int64_t rows, int64_t cols, bool gated,
                      int64_t norm_at = 0, size_t shared = 227 * 1024,
                      int64_t x_at = 0, bool asked = true) {
    Machine machine(Schedule::kForward);
    MachineLimits limits = {shared, 1};
    if (!asked) limits.asked.Remove(Unconfirmed::kNormedProduct);
    machine.Limit(limits);
    const std::vector<float> floats(static_cast<size_t>(2 * cols + 1), 1.0f);
    const TiledWeights w(WeightType::kBf16, 1, rows, cols);
    OwnedMatrix y(tokens, gated ? rows / 2 : rows);
    const Activation silu;
    return HasNormedProduct(&machine, {{floats.data() + x_at, tokens, cols, 0},
                                       nullptr,
                                       floats.data() + norm_at,
                                       kNormedEps,
                                       w.view(),
                                       nullptr,
                                       gated ? &silu : nullptr,
                                       y.view()});
  };
  EXPECT_TRUE(has(1, 24, 48, false));
  EXPECT_TRUE(has(1, 32, 48, true));
  EXPECT_TRUE(has(1, 24, 8192, false));
  EXPECT_FALSE(has(2, 24, 48, false));
  EXPECT_FALSE(has(1, 24, 40, false)) << "half a step";
  EXPECT_FALSE(has(1, 24, 48, true)) << "rows of no whole tiles";
  EXPECT_FALSE(has(1, 24, 8208, false));
  EXPECT_FALSE(has(1, 24, 48, false, 1)) << "a norm that is not aligned";
  EXPECT_FALSE(has(1, 24, 8192, false, 0, 40 * 1024));
  EXPECT_FALSE(has(1, 24, 48, false, 0, 227 * 1024, 1)) << "nor is the row";
  EXPECT_FALSE(has(1, 24, 48, false, 0, 227 * 1024, 0, false));
}

}  // namespace
}  // namespace sluice::kernels::cuda
