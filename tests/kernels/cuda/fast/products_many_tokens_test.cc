// Products of many rows with memory for their operands.
#include <string>
#include <vector>

#include "common/tensor/weight_format.h"
#include "gtest/gtest.h"
#include "kernels/cuda/fast/products.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/cuda/fast/tiled_weights.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

// Returns fewer columns for long units: as many whole blocks as `cols` has
// leaves, and twice as many units of runs. Units of 32 columns keep `cols`.
int64_t GemmCols(WeightType type, int64_t cols) {
  const int64_t unit = CutColumns(type);
  if (unit == kRunCols) return cols;
  return (cols / 256 + 1) * unit * (IsInUnits(type) ? 1 : 2);
}

// A type, on a device with products of warp groups or on one without.
struct GemmCase {
  WeightType type;
  bool group_products;
};
std::vector<GemmCase> GemmCases() {
  std::vector<GemmCase> cases = {{WeightType::kBf16, false}};
  for (const WeightType type : TiledTypes()) cases.push_back({type, true});
  return cases;
}

class TileGemmTest : public testing::TestWithParam<GemmCase> {
 protected:
  static WeightType Type() { return GetParam().type; }
  static void Limit(Machine& machine) {
    machine.Limit({227 * 1024, 2, GetParam().group_products});
  }
};

// At the boundaries of blocks, of runs and of leaves.
TEST_P(TileGemmTest, ProductsOfManyRowsAreTheirChains) {
  struct ProductShape {
    int64_t tokens, rows, cols;
  };
  for (const ProductShape& s :
       {ProductShape{9, 129, 32}, ProductShape{31, 17, 96},
        ProductShape{32, 16, 288}, ProductShape{33, 128, 64},
        ProductShape{64, 15, 1056}, ProductShape{65, 33, 160},
        ProductShape{127, 130, 64}, ProductShape{128, 3, 288},
        ProductShape{129, 20, 64}, ProductShape{200, 16, 32},
        ProductShape{66, 40, 1056}}) {
    // Columns of BF16 need not be whole steps.
    const int64_t cols = Type() == WeightType::kBf16 ? s.cols - s.tokens % 32
                                                     : GemmCols(Type(), s.cols);
    SCOPED_TRACE(testing::Message()
                 << s.tokens << " x " << s.rows << " x " << cols);
    const TiledWeights w(Type(), 3, s.rows, cols);
    const OwnedMatrix x(s.tokens, cols, RandomFloats(1, s.tokens * cols));
    const auto bias = RandomFloats(2, s.rows);
    const auto got = BothWays([&](Stream stream) {
      Limit(*stream);
      KeptMemory kept;
      OwnedMatrix y(s.tokens, s.rows, 3);
      TileMatMul(stream, x.view(), w.view(), bias.data(), y.view(),
                 kept.memory());
      EXPECT_TRUE(y.MarkIntact());
      return y.values();
    });
    const auto leaves = LeavesOf(cols, CutColumns(Type()));
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

// A row has the bits that it has alone, in calls of every number of rows.
TEST_P(TileGemmTest, ARowsBitsAreItsOwn) {
  constexpr int64_t kTokens = 130;
  constexpr int64_t kOutputs = 20;
  const int64_t cols = GemmCols(Type(), 288);
  const TiledWeights w(Type(), 4, kOutputs, cols);
  const OwnedMatrix x(kTokens, cols, RandomFloats(5, kTokens * cols));
  Machine machine(Schedule::kForward);
  Limit(machine);
  KeptMemory kept;
  OwnedMatrix one(kTokens, kOutputs);
  for (int64_t t = 0; t < kTokens; ++t) {
    TileMatMul(&machine, {x.view().row(t), 1, cols, cols}, w.view(), nullptr,
               {one.view().row(t), 1, kOutputs, kOutputs}, kept.memory());
  }
  const std::vector<float> alone = one.values();
  for (const int64_t tokens : {8, 9, 32, 33, 64, 65, 130}) {
    OwnedMatrix all(tokens, kOutputs);
    TileMatMul(&machine, {x.view().data, tokens, cols, x.view().stride},
               w.view(), nullptr, all.view(), kept.memory());
    const auto begin = alone.begin();
    EXPECT_TRUE(SameBits(all.values(),
                         std::vector<float>(begin, begin + tokens * kOutputs)))
        << tokens;
  }
  EXPECT_THAT(machine.faults(), testing::IsEmpty());
}

// Groups of experts: of one row, of a block's, of none, and of others' experts.
TEST_P(TileGemmTest, GroupsOfExpertsHaveTheBitsOfTheirRows) {
  constexpr int64_t kTokens = 30;
  constexpr int64_t kOutputs = 140;
  const int64_t cols = GemmCols(Type(), 160);
  const TiledWeights first(Type(), 4, kOutputs, cols);
  const TiledWeights second(Type(), 5, kOutputs, cols);
  const void* const weights[] = {first.view().data, second.view().data,
                                 nullptr};
  const OwnedMatrix x(kTokens, cols, RandomFloats(5, kTokens * cols));
  const std::vector<float> bias = RandomFloats(6, 3 * kOutputs);
  for (const int32_t most : {kTileGroupRows, kLargeGroupRows}) {
    const int32_t slots = most + 18;
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < slots; ++i) rows.push_back(i * 7 % kTokens);
    const ExpertGroup groups[] = {
        {0, 0, most}, {0, most, 1}, {1, most + 1, 9}, {2, most + 10, 8}};
    const int32_t count = 4;
    const ExpertRun run = {{groups, &count, rows.data(), weights, 0, 2, most},
                           count + 2};
    const auto got = BothWays([&](Stream stream) {
      Limit(*stream);
      KeptMemory kept;
      OwnedMatrix y(slots, kOutputs, 2);
      TileMatMulGroups(stream, x.view(), first.view(), bias.data(), run,
                       y.view(), kept.memory());
      return y.values();
    });
    Machine machine(Schedule::kForward);
    for (int64_t slot = 0; slot < most + 10; ++slot) {
      const int expert = slot <= most ? 0 : 1;
      OwnedMatrix one(1, kOutputs);
      TileMatMul(&machine, {x.view().row(rows[slot]), 1, cols, x.view().stride},
                 expert == 0 ? first.view() : second.view(),
                 bias.data() + expert * kOutputs, one.view());
      const std::vector<float> want = one.values();
      for (int64_t r = 0; r < kOutputs; ++r) {
        ASSERT_EQ(got[slot * kOutputs + r], want[r]) << slot << ", " << r;
      }
    }
  }
}

// Leaves bytes on the stack, which a later call's variables have at first.
[[gnu::noinline]] void FillStack(int value) {
  volatile char bytes[16384];
  for (volatile char& byte : bytes) byte = static_cast<char>(value);
}

// A step that comes again is a graph: its launches have the same bytes, those
// between members too.
TEST(TileGemmLaunchesTest, AreTheSameBytesForTheSameProduct) {
  const TiledWeights w(WeightType::kE4m3, 4, 20, 288);
  const OwnedMatrix x(40, 288, RandomFloats(5, 40 * 288));
  OwnedMatrix y(40, 20);
  std::vector<float> scratch(1 << 20);
  Machine machine(Schedule::kForward);
  machine.Limit({227 * 1024, 100});
  std::vector<LaunchList> lists;
  for (const int value : {0x55, 0xAA}) {
    LaunchSink sink;
    sink.stream = &machine;
    launch_sink = &sink;
    FillStack(value);
    TileMatMul(&machine, x.view(), w.view(), nullptr, y.view(),
               [&](int64_t) { return scratch.data(); });
    launch_sink = nullptr;
    lists.push_back(sink.list);
  }
  EXPECT_EQ(lists[0].launches().size(), 3u);
  EXPECT_TRUE(lists[0] == lists[1]);
}

TEST(TileGroupRowsTest, GroupsAreLargeWhereExpertsHaveManyRows) {
  Machine machine(Schedule::kForward);
  KeptMemory kept;
  EXPECT_EQ(TileGroupRows(&machine, 80, 10, kept.memory()), 8);
  EXPECT_EQ(TileGroupRows(&machine, 81, 10, kept.memory()), kTileGroupRows);
  EXPECT_EQ(TileGroupRows(&machine, 640, 10, kept.memory()), kTileGroupRows);
  EXPECT_EQ(TileGroupRows(&machine, 641, 10, kept.memory()), kLargeGroupRows);
  EXPECT_EQ(TileGroupRows(&machine, 641, 10, {}), kTileGroupRows);
  machine.Limit({100 * 1024, 1});
  EXPECT_EQ(TileGroupRows(&machine, 641, 10, kept.memory()), kTileGroupRows);
}

INSTANTIATE_TEST_SUITE_P(, TileGemmTest, testing::ValuesIn(GemmCases()),
                         [](const auto& param) {
                           return std::string(FormatOf(param.param.type).name) +
                                  (param.param.group_products ? "" : "_alone");
                         });

// The same for blocks of every shape, which have a whole tree, or a piece of it
// where blocks are few or shared memory is short.
TEST(TileTreeTest, PiecesOfATreeAreTheTree) {
  constexpr MachineLimits kLimits[] = {
      {227 * 1024, 1},       {227 * 1024, 4},       {227 * 1024, 100},
      {100 * 1024, 1},       {227 * 1024, 1, true}, {227 * 1024, 100, true},
      {160 * 1024, 1, true}, {100 * 1024, 1, true}};
  for (const int64_t tokens : {9, 33, 65}) {
    for (const int32_t leaves : {1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 40, 64}) {
      const int64_t cols = leaves * 32 - 3;
      const TiledWeights w(WeightType::kBf16, 13, 3, cols);
      const OwnedMatrix x(tokens, cols, RandomFloats(14, tokens * cols));
      std::vector<int32_t> bounds;
      for (int32_t i = 0; i < leaves; ++i) bounds.push_back(i * 32);
      bounds.push_back(static_cast<int32_t>(cols));
      const TreeNode root = {0, leaves};
      std::vector<float> want;
      for (int64_t n = 0; n < tokens * 3; ++n) {
        want.push_back(
            TileElementOf(w, x.view().row(n / 3), n % 3, bounds, root));
      }
      for (const MachineLimits& limits : kLimits) {
        Machine machine(Schedule::kForward);
        machine.Limit(limits);
        KeptMemory kept;
        OwnedMatrix y(tokens, 3);
        const Matrix out = y.view();
        TileMatMulSharded(&machine, x.view(), w.view(), {bounds, {&root, 1}},
                          {&out, 1}, kept.memory());
        EXPECT_THAT(machine.faults(), testing::IsEmpty());
        ASSERT_TRUE(SameBits(y.values(), want))
            << tokens << " tokens, " << leaves << " leaves, "
            << limits.multiprocessors << ", " << limits.shared_bytes;
      }
    }
  }
}

struct EndedShape {
  int64_t tokens, rows, cols;
};

// Of a product whose leaves are a block each.
void ExpectJoinedEnds(const EndedShape& s, const Activation& activation) {
  SCOPED_TRACE(testing::Message()
               << s.tokens << " x " << s.rows << " x " << s.cols);
  const auto leaves = LeavesOf(s.cols, 32);
  const TreeNode root = {0, static_cast<int32_t>(leaves.size()) - 1};
  const TiledWeights w(WeightType::kBf16, 13, s.rows, s.cols);
  const OwnedMatrix x(s.tokens, s.cols, RandomFloats(14, s.tokens * s.cols));
  const auto bias = RandomFloats(15, s.rows);
  const auto before = RandomFloats(16, s.tokens * s.rows);
  BothWays([&](Stream stream) {
    stream->Limit({227 * 1024, 100});
    KeptMemory kept;
    OwnedMatrix sums(s.tokens, s.rows, before);
    EXPECT_TRUE(TileAddSharded(stream, x.view(), w.view(), {leaves, {&root, 1}},
                               bias.data(), sums.view(), kept.memory()));
    OwnedMatrix gated(s.tokens, s.rows / 2, 1);
    EXPECT_TRUE(TileGatedMatMul(stream, x.view(), w.view(), activation,
                                gated.view(), kept.memory()));
    EXPECT_TRUE(gated.MarkIntact());
    OwnedMatrix y(s.tokens, s.rows);
    TileMatMul(stream, x.view(), w.view(), bias.data(), y.view(),
               kept.memory());
    std::vector<float> want = y.values();
    for (size_t n = 0; n < want.size(); ++n) want[n] = before[n] + want[n];
    EXPECT_TRUE(SameBits(sums.values(), want));
    TileMatMul(stream, x.view(), w.view(), nullptr, y.view(), kept.memory());
    OwnedMatrix want_gated(s.tokens, s.rows / 2);
    if (activation.kind == Activation::Kind::kClampedSwiGlu) {
      kernels::ClampedSwiGlu({}, y.view(), activation.limit, want_gated.view());
    } else {
      kernels::SiluMul({}, y.view(), want_gated.view());
    }
    EXPECT_TRUE(SameBits(gated.values(), want_gated.values()));
    return gated.values();
  });
}

// A pass that joins pieces adds, or gates, with the bits of one operation after
// another.
TEST(TileTreeTest, JoinedPiecesAreAddedAndGatedAtOnce) {
  // Few pieces and many; quads of rows, of y alone, and neither; more than a
  // block has.
  for (const EndedShape& shape :
       {EndedShape{9, 24, 480}, EndedShape{40, 18, 1056},
        EndedShape{33, 20, 1056}, EndedShape{9, 1040, 256}}) {
    ExpectJoinedEnds(shape, {});
    ExpectJoinedEnds(shape, {Activation::Kind::kClampedSwiGlu, 0.4f});
  }
}

TEST(TileTreeTest, WhereNoPassJoinsAnEndOfItsOwnIsLeft) {
  Machine machine(Schedule::kForward);
  machine.Limit({227 * 1024, 1});
  KeptMemory kept;
  const TiledWeights w(WeightType::kBf16, 13, 24, 480);
  const auto leaves = LeavesOf(480, 32);
  const TreeNode root = {0, static_cast<int32_t>(leaves.size()) - 1};
  const OwnedMatrix x(9, 480, RandomFloats(14, 9 * 480));
  OwnedMatrix y(9, 24);
  EXPECT_FALSE(TileAddSharded(&machine, x.view(), w.view(),
                              {leaves, {&root, 1}}, nullptr, y.view(),
                              kept.memory()));
  EXPECT_FALSE(TileGatedMatMul(&machine, x.view(), w.view(), {},
                               {y.view().data, 9, 12, 12}, kept.memory()));
}

// Too little shared memory for blocks of operands: the panel needs less.
TEST(TileTreeTest, ASmallDeviceHasTheBitsToo) {
  const TiledWeights w(WeightType::kBf16, 13, 20, 288);
  const OwnedMatrix x(70, 288, RandomFloats(14, 70 * 288));
  std::vector<std::vector<float>> got;
  for (const size_t shared : {48 * 1024, 227 * 1024}) {
    Machine machine(Schedule::kForward);
    machine.Limit({shared, 1});
    KeptMemory kept;
    OwnedMatrix y(70, 20);
    TileMatMul(&machine, x.view(), w.view(), nullptr, y.view(), kept.memory());
    EXPECT_THAT(machine.faults(), testing::IsEmpty());
    got.push_back(y.values());
  }
  EXPECT_TRUE(SameBits(got[0], got[1]));
}

}  // namespace
}  // namespace sluice::kernels::cuda
