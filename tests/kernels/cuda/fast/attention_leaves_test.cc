// Attention on matrix units over heads of 64 and 128 elements: one kernel for a
// token alone, one for prompts, the same bits.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/fast/attention.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/cuda/fast/tile_attended.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

using Call = TileAttended::Call;

constexpr WeightType kTypes[] = {WeightType::kF32, WeightType::kBf16,
                                 WeightType::kQ8_0};

// A token of `call` alone, as a decode step has it.
Call Alone(const Call& call, size_t token) {
  Call one = call;
  one.positions = {call.positions[token]};
  one.offsets = {call.offsets[token]};
  one.tokens_at_once = 1;
  return one;
}

// Each token of `call` has the bits that it has alone.
void ExpectOwnBits(const TileAttended& attended, const Call& call) {
  Machine machine(Schedule::kForward);
  const auto all = attended.Run(&machine, call);
  const int64_t cols = attended.num_heads() * attended.head_dim;
  for (size_t t = 0; t < call.positions.size(); ++t) {
    const auto at = all.begin() + static_cast<int64_t>(t) * cols;
    ASSERT_TRUE(
        SameBits(attended.Run(&machine, Alone(call, t)), {at, at + cols}))
        << "token " << t << " at " << call.positions[t];
  }
  EXPECT_THAT(machine.faults(), testing::IsEmpty());
}

TEST(TileAttentionLeavesTest, AreCloseToTheCanonicalAnswer) {
  Call call;
  call.positions = {0, 1, 15, 16, 255, 256, 300, 700};
  call.offsets.assign(8, 0);
  call.offsets[2] = call.offsets[5] = kTileTablePages;
  for (const WeightType type : kTypes) {
    for (const int64_t dim : {64, 128}) {
      const TileAttended attended(dim, type, {0, 1, 1});
      for (const int32_t at_once : {1, 8}) {
        call.tokens_at_once = at_once;
        // Of a score's several units an eighth of a percent is lost.
        attended.ExpectClose(call, 0.03f);
      }
    }
  }
}

TEST(TileAttentionLeavesTest, JoinPiecesUnderWindowsAndSinks) {
  const float sinks[] = {0.5f, -2.0f, 3.0f, 1.0f};
  const TileAttended attended(64, WeightType::kBf16, {0, 0, 1, 1});
  for (const int32_t window : {0, 1, 128, 300}) {
    for (const int32_t at_once : {1, 8}) {
      Call call;
      call.positions = {63, 64, 511, 512, 1100};
      call.offsets.assign(5, 0);
      call.window = window;
      call.sinks = sinks;
      call.tokens_at_once = at_once;
      attended.ExpectClose(call, 0.03f);
      ExpectOwnBits(attended, call);
    }
  }
}

TEST(TileAttentionLeavesTest, ATokensBitsAreItsOwnAtEveryEdge) {
  const TileAttended attended(128, WeightType::kBf16, {0, 0, 0, 0, 1});
  // Contexts from 1 on, and about steps, leaves and pieces.
  ExpectOwnBits(attended, Prompt(0, 33, 128));
  ExpectOwnBits(attended, Prompt(60, 67, 128));
  ExpectOwnBits(attended, Prompt(252, 260, 128));
  ExpectOwnBits(attended, Prompt(508, 517, 16));
  ExpectOwnBits(attended, Prompt(699, 700, 8));
  ExpectOwnBits(attended, Prompt(1022, 1026, 8));
}

TEST(TileAttentionLeavesTest, ATokensBitsAreItsOwnInEveryType) {
  for (const WeightType type : kTypes) {
    for (const int64_t dim : {64, 128}) {
      if (type == WeightType::kBf16 && dim == 128) continue;  // above
      const TileAttended attended(dim, type, {0, 0, 0, 0, 0, 0, 0, 0, 0});
      for (const int32_t window : {0, 70}) {
        Call call = Prompt(254, 259, 8);
        call.window = window;
        ExpectOwnBits(attended, call);
      }
    }
  }
}

// A block's tokens, 128 of them, are of several sequences.
TEST(TileAttentionLeavesTest, SequencesShareAStep) {
  const float sinks[] = {0.5f};
  const TileAttended attended(64, WeightType::kBf16, {0});
  Call call = Prompt(300, 301, 128);
  call.sinks = sinks;
  const auto add = [&](int32_t begin, int32_t end, int64_t offset) {
    for (int32_t p = begin; p < end; ++p) {
      call.positions.push_back(p);
      call.offsets.push_back(offset);
    }
  };
  add(40, 41, kTileTablePages);
  add(10, 74, 0);
  add(200, 265, kTileTablePages);
  add(5, 9, 0);
  ExpectOwnBits(attended, call);
}

// One piece is not joined by another kernel.
TEST(TileAttentionLeavesTest, RoomForMorePiecesChangesNoBits) {
  const float sinks[] = {0.5f, -2.0f, 3.0f};
  const TileAttended attended(128, WeightType::kBf16, {0, 0, 1});
  for (const float* const of_heads :
       {static_cast<const float*>(nullptr), static_cast<const float*>(sinks)}) {
    for (const int32_t position : {0, 20, 255}) {
      Call call = Prompt(position, position + 1, 1);
      call.sinks = of_heads;
      const auto want =
          BothWays([&](Stream stream) { return attended.Run(stream, call); });
      call.more_chunks = 3;
      EXPECT_TRUE(SameBits(
          BothWays([&](Stream stream) { return attended.Run(stream, call); }),
          want));
    }
  }
}

// Eleven pieces: nodes of the tree wait in memory for the pieces behind them,
// and those of a token alone are joined in groups of eight.
TEST(TileAttentionLeavesTest, LongSequencesKeepTheTree) {
  const TileAttended attended(64, WeightType::kBf16, {0});
  for (const int32_t window : {0, 400, 700}) {
    Call call = Prompt(2558, 2561, 8);
    call.window = window;
    ExpectOwnBits(attended, call);
    attended.ExpectClose(call, 0.03f);
  }
}

TEST(TileAttentionLeavesTest, PlacesThatNobodySeesMayHoldAnything) {
  TileAttended attended(64, WeightType::kF32, {0});
  for (const int32_t at_once : {1, 8}) {
    Call call = Prompt(37, at_once == 1 ? 38 : 41, at_once);
    call.window = 9;
    Machine machine(Schedule::kForward);
    const auto want = attended.Run(&machine, call);
    const std::vector<float> keys = attended.keys;
    const std::vector<float> values = attended.values;
    const int32_t first = 29;
    const int32_t last = call.positions.back();
    for (int64_t i = 0; i < kTilePages * 16; ++i) {
      bool seen = false;
      for (int32_t p = first; p <= last; ++p) {
        seen = seen || attended.tables[p / 16] * 16 + p % 16 == i;
      }
      if (seen) continue;
      for (int64_t d = i * 64; d < i * 64 + 64; ++d) {
        attended.keys[d] = NAN;
        attended.values[d] = NAN;
      }
    }
    EXPECT_TRUE(SameBits(attended.Run(&machine, call), want));
    for (const float x : want) ASSERT_TRUE(std::isfinite(x));
    attended.keys = keys;
    attended.values = values;
    attended.kv.keys = attended.keys.data();
    attended.kv.values = attended.values.data();
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
