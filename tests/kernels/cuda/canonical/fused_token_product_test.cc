#include "kernels/cuda/canonical/fused_token_product.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/block_matmul.h"
#include "kernels/elementwise.h"
#include "kernels/rms_norm.h"
#include "tests/kernels/block_reference.h"
#include "tests/kernels/block_tester.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

const DotContext kCpu = {nullptr, &BlockOpsFor(DotIsaFor(Isa::kPortable))};
constexpr float kEps = 1e-5f;

// What a product is made of, and in what: its operands with random values.
struct Tried {
  BlockFormat format = BlockFormat::kQ4_0;
  int64_t rows = 1;
  int64_t blocks = 1;  // of a row
  bool norm = false;
  bool bias = false;
  bool adds = false;
  const Activation* gate = nullptr;
  std::vector<int32_t> ends = {};  // of shards, in blocks
  int32_t begin = 0;               // of the first one
  float first = 0.0f;              // of the row, unless 0
  MachineLimits limits = {227 * 1024, 2, true};

  int64_t outputs() const { return gate != nullptr ? rows / 2 : rows; }
};

class Operands {
 public:
  explicit Operands(const Tried& tried)
      : tried_(tried),
        block_(static_cast<int32_t>(BlockElements(tried.format))),
        cols_(tried.blocks * block_),
        w_(tried.format, RandomBlockRows(tried.format, 1, tried.rows, cols_),
           tried.rows, cols_),
        values_(SpreadActivations(2, 1, cols_)),
        norm_(RandomFloats(3, cols_)),
        bias_(RandomFloats(4, tried.rows)),
        before_(RandomFloats(5, tried.outputs())) {
    if (tried.norm) values_ = RandomFloats(6, cols_);
    if (tried.first != 0.0f) values_[0] = tried.first;
    if (tried.ends.empty()) return;
    const auto leaves = static_cast<int32_t>(tried.ends.size());
    bounds_ = {0, tried.begin * block_};
    for (const int32_t end : tried.ends) bounds_.push_back(end * block_);
    bounds_.push_back(static_cast<int32_t>(cols_));
    whole_ = {{1, 1 + leaves}};
    own_ = {{0, leaves}};
  }

  TokenProduct On(const OwnedMatrix& x, Matrix y) const {
    TokenProduct product;
    product.x = x.view();
    if (tried_.norm) product.norm = norm_.data();
    product.eps = kEps;
    product.w = w_.view();
    if (tried_.bias) product.bias = bias_.data();
    product.gate = tried_.gate;
    product.adds = tried_.adds;
    if (!bounds_.empty()) {
      const std::span<const int32_t> all = bounds_;
      product.shards = {all.subspan(1, tried_.ends.size() + 1), own_};
    }
    product.y = y;
    return product;
  }
  OwnedMatrix X() const { return {1, cols_, values_}; }
  OwnedMatrix Y() const { return {1, tried_.outputs(), before_}; }

  // What the CPU's functions make of them, one after the other.
  std::vector<float> Want() const {
    OwnedMatrix x = X();
    if (tried_.norm) RmsNorm({}, x.view(), norm_.data(), kEps, x.view());
    const OwnedRows rows(kCpu, x.values(), 1, cols_, block_);
    OwnedMatrix sums(1, tried_.rows);
    Matrix of = sums.view();
    if (bounds_.empty()) {
      BlockMatMul(kCpu, rows.view(), w_.view(), nullptr, of);
    } else {
      BlockMatMulSharded(kCpu, rows.view(), w_.view(), {bounds_, whole_},
                         {&of, 1});
    }
    for (int64_t r = 0; r < tried_.rows; ++r) {
      if (!rows.finite(0)) of.data[r] = NAN;
      if (tried_.bias) of.data[r] = of.data[r] + bias_[r];
    }
    OwnedMatrix y = Y();
    if (tried_.gate == nullptr) {
      if (!tried_.adds) return sums.values();
      Add({}, sums.view(), y.view());
    } else if (tried_.gate->kind == Activation::Kind::kSilu) {
      SiluMul({}, sums.view(), y.view());
    } else {
      ClampedSwiGlu({}, sums.view(), tried_.gate->limit, y.view());
    }
    return y.values();
  }

 private:
  const Tried tried_;
  const int32_t block_;
  const int64_t cols_;
  const OwnedBlocks w_;
  std::vector<float> values_;
  const std::vector<float> norm_;
  const std::vector<float> bias_;
  const std::vector<float> before_;
  // Of all columns, the shards within; these as nodes of all and of their own.
  std::vector<int32_t> bounds_;
  std::vector<TreeNode> whole_;
  std::vector<TreeNode> own_;
};

std::vector<float> Got(const Tried& tried, const Operands& operands) {
  return BothWays([&](Stream stream) {
    stream->Limit(tried.limits);
    const OwnedMatrix x = operands.X();
    OwnedMatrix y = operands.Y();
    const TokenProduct product = operands.On(x, y.view());
    EXPECT_TRUE(HasTokenProduct(stream, product));
    StartTokenProduct(stream, product);
    return y.values();
  });
}

void ExpectTheCpusBits(const Tried& tried) {
  SCOPED_TRACE(testing::Message() << NameOf(tried.format) << ": " << tried.rows
                                  << " rows of " << tried.blocks << " blocks");
  const Operands operands(tried);
  EXPECT_TRUE(SameBits(Got(tried, operands), operands.Want()));
}

class CudaTokenProductTest : public testing::TestWithParam<BlockFormat> {};

// Blocks around those of a unit, of a run of sums and of a pass, and rows
// around those of a group; more groups than there are blocks for.
TEST_P(CudaTokenProductTest, HasTheCpusBitsAtEveryBoundary) {
  const bool is_long = BlockElements(GetParam()) == kLongBlock;
  for (const int64_t blocks : {1, 7, 8, 9, 16, 17, 33, 128, 129}) {
    if (is_long && blocks > 33) break;
    ExpectTheCpusBits({.format = GetParam(), .rows = 17, .blocks = blocks});
  }
  for (const int64_t rows : {1, 15, 16, 32, 33, 83}) {
    ExpectTheCpusBits({.format = GetParam(), .rows = rows, .blocks = 9});
  }
}

TEST_P(CudaTokenProductTest, WhatComesBeforeAndBehindHasTheCpusBits) {
  const Activation silu;
  const Activation clamped = {Activation::Kind::kClampedSwiGlu, 0.5f};
  Tried tried = {.format = GetParam(), .rows = 96, .blocks = 9};
  tried.bias = true;
  ExpectTheCpusBits(tried);
  tried.norm = true;
  ExpectTheCpusBits(tried);
  tried.adds = true;
  ExpectTheCpusBits(tried);
  tried.adds = false;
  for (const Activation* gate : {&silu, &clamped}) {
    tried.gate = gate;
    ExpectTheCpusBits(tried);
  }
}

// Shards that end within units and passes and at their ends, empty ones, and
// trees that are not whole.
TEST_P(CudaTokenProductTest, ShardsAreJoinedInTheTree) {
  for (const std::vector<int32_t>& ends : std::vector<std::vector<int32_t>>{
           {9}, {4, 8}, {1, 4, 4, 5, 9, 18, 18}, {0, 3, 3, 3, 11}}) {
    Tried tried = {.format = GetParam(), .rows = 35, .blocks = ends.back()};
    tried.ends = ends;
    ExpectTheCpusBits(tried);
    tried.adds = true;
    tried.bias = true;
    ExpectTheCpusBits(tried);
  }
}

// As a rank has them whose columns are several nodes of the tree.
TEST_P(CudaTokenProductTest, ShardsMayBeginBehindTheFirstColumns) {
  const int32_t unit =
      kLongBlock / static_cast<int32_t>(BlockElements(GetParam()));
  for (const int32_t units : {1, 2, 17}) {
    Tried tried = {.format = GetParam(), .rows = 33, .blocks = 18 * unit + 1};
    tried.begin = units * unit;
    tried.ends = {tried.begin + 1, 18 * unit};
    ExpectTheCpusBits(tried);
  }
}

// The least shared memory of a block that a product has a kernel for.
size_t LeastSharedBytes(const Tried& tried) {
  const Operands operands(tried);
  const OwnedMatrix x = operands.X();
  OwnedMatrix y = operands.Y();
  const TokenProduct product = operands.On(x, y.view());
  size_t less = 0;
  size_t enough = tried.limits.shared_bytes;
  while (enough - less > 1) {
    const size_t middle = (less + enough) / 2;
    Machine machine(Schedule::kForward);
    machine.Limit({middle, 2, true});
    (HasTokenProduct(&machine, product) ? enough : less) = middle;
  }
  return enough;
}

// A GPU that leaves a block no more than that, which is too little for as many
// warps as others have; 99 KB are enough for rows of a model's width.
TEST_P(CudaTokenProductTest, FewerWarpsHaveTheCpusBitsInLessMemory) {
  const auto block = static_cast<int64_t>(BlockElements(GetParam()));
  for (const int64_t cols : {block, 9 * block, int64_t{4096}}) {
    Tried tried = {.format = GetParam(), .rows = 83, .blocks = cols / block};
    for (const bool norm : {false, true}) {
      tried.norm = norm;
      tried.limits = {227 * 1024, 2, true};
      tried.limits.shared_bytes = LeastSharedBytes(tried);
      EXPECT_LE(tried.limits.shared_bytes, size_t{99} * 1024);
      ExpectTheCpusBits(tried);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaTokenProductTest,
                         testing::ValuesIn(AllBlockFormats()),
                         [](const auto& param) { return NameOf(param.param); });

TEST(CudaTokenProductsTest, AsManyShardsAsThereMayBeAreJoined) {
  Tried tried = {.rows = 16, .blocks = 150};
  for (int32_t s = 0; s < 16; ++s) tried.ends.push_back(s * 9 + 2);
  tried.ends.back() = 150;
  ExpectTheCpusBits(tried);
  tried.ends.insert(tried.ends.begin(), 1);
  const Operands operands(tried);
  Machine machine(Schedule::kForward);
  const OwnedMatrix x = operands.X();
  OwnedMatrix y = operands.Y();
  EXPECT_FALSE(HasTokenProduct(&machine, operands.On(x, y.view())));
}

// A row of a warp's elements, of all threads' at once, and beyond.
TEST(CudaTokenProductsTest, LongRowsHaveTheCpusBits) {
  for (const int64_t blocks : {4, 5, 64, 128, 129, 256, 257}) {
    ExpectTheCpusBits({.rows = 5, .blocks = blocks});
    ExpectTheCpusBits({.rows = 5, .blocks = blocks, .norm = true});
  }
  for (const BlockFormat format : {BlockFormat::kQ4K, BlockFormat::kQ6K}) {
    for (const int64_t blocks : {16, 17, 33}) {
      ExpectTheCpusBits(
          {.format = format, .rows = 5, .blocks = blocks, .norm = true});
    }
  }
}

TEST(CudaTokenProductsTest, ABlockMayHaveAllGroups) {
  for (const int blocks : {1, 3, 100}) {
    Tried tried = {.rows = 160, .blocks = 40, .norm = true};
    tried.limits.multiprocessors = blocks;
    ExpectTheCpusBits(tried);
    const Activation silu;
    tried.gate = &silu;
    ExpectTheCpusBits(tried);
  }
}

TEST(CudaTokenProductsTest, TheRowMayBeOneOfMany) {
  const Tried tried = {.rows = 19, .blocks = 9, .norm = true};
  const Operands operands(tried);
  const std::vector<float> row = operands.X().values();
  std::vector<float> rows = RandomFloats(9, 3 * std::ssize(row));
  std::copy(row.begin(), row.end(), rows.begin() + 2 * std::ssize(row));
  const OwnedMatrix x(3, std::ssize(row), rows);
  const int32_t taken = 2;
  const auto got = BothWays([&](Stream stream) {
    OwnedMatrix y = operands.Y();
    TokenProduct product = operands.On(x, y.view());
    product.rows = &taken;
    EXPECT_TRUE(HasTokenProduct(stream, product));
    StartTokenProduct(stream, product);
    return y.values();
  });
  EXPECT_TRUE(SameBits(got, operands.Want()));
}

TEST(CudaTokenProductsTest, OutputsOfARowThatIsNotFiniteAreNaN) {
  for (const float first : {INFINITY, -INFINITY, NAN}) {
    for (const bool norm : {false, true}) {
      Tried tried = {.rows = 19, .blocks = 9, .norm = norm};
      tried.first = first;
      const Operands operands(tried);
      for (const float value : operands.Want()) EXPECT_TRUE(std::isnan(value));
      Machine machine(Schedule::kForward);
      const OwnedMatrix x = operands.X();
      OwnedMatrix y = operands.Y();
      StartTokenProduct(&machine, operands.On(x, y.view()));
      for (const float value : y.values()) EXPECT_TRUE(std::isnan(value));
    }
  }
}

TEST(CudaTokenProductsTest, WhatHasNoKernelIsTold) {
  const Tried tried = {.rows = 48, .blocks = 33};
  const Operands operands(tried);
  Machine machine(Schedule::kForward);
  const OwnedMatrix x = operands.X();
  OwnedMatrix y = operands.Y();
  const TokenProduct whole = operands.On(x, y.view());
  EXPECT_TRUE(HasTokenProduct(&machine, whole));
  Machine unasked(Schedule::kForward);
  DeviceLimits limits = unasked.limits();
  limits.asked.Remove(Unconfirmed::kTokenProduct);
  unasked.Limit(limits);
  EXPECT_FALSE(HasTokenProduct(&unasked, whole));
  const std::vector<float> norm(static_cast<size_t>(whole.w.cols) + 1);
  TokenProduct other = whole;
  other.norm = norm.data();
  EXPECT_TRUE(HasTokenProduct(&machine, other));
  other.norm = norm.data() + 1;
  EXPECT_FALSE(HasTokenProduct(&machine, other));
  const Activation silu;
  other = whole;
  other.gate = &silu;  // half a group
  EXPECT_FALSE(HasTokenProduct(&machine, other));
  other = whole;
  other.y.rows = 2;
  EXPECT_FALSE(HasTokenProduct(&machine, other));
  other = whole;
  other.x.data = x.view().data + 1;
  EXPECT_FALSE(HasTokenProduct(&machine, other));
  const std::vector<int32_t> bounds = {0, 32, 33 * 32};
  const std::vector<TreeNode> part = {{0, 1}};
  other = whole;
  other.shards = {bounds, part};
  EXPECT_FALSE(HasTokenProduct(&machine, other));
  const std::vector<TreeNode> two = {{0, 1}, {1, 2}};
  other.shards = {bounds, two};
  EXPECT_FALSE(HasTokenProduct(&machine, other));
  const std::vector<int32_t> empty = {0, 0, 0};
  const std::vector<TreeNode> all = {{0, 2}};
  other.shards = {empty, all};
  EXPECT_FALSE(HasTokenProduct(&machine, other));
  const std::vector<int32_t> late = {32, 33 * 32};
  const std::vector<TreeNode> one = {{0, 1}};
  other.shards = {late, one};
  EXPECT_FALSE(HasTokenProduct(&machine, other));
  machine.Limit({kPlainSharedBytes, 2, true});
  EXPECT_FALSE(HasTokenProduct(&machine, whole));
}

}  // namespace
}  // namespace sluice::kernels::cuda
