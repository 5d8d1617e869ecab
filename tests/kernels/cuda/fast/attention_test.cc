#include "kernels/cuda/fast/attention.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/cuda/fast/tile_attended.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

using Call = TileAttended::Call;

TEST(TileAttentionTest, IsCloseToTheCanonicalAnswer) {
  Call call;
  call.positions = {0, 1, 15, 16, 255, 256, 300};
  call.offsets = {
      0, 0, kTileTablePages, 0, 0, kTileTablePages, kTileTablePages};
  for (const WeightType type :
       {WeightType::kF32, WeightType::kBf16, WeightType::kQ8_0}) {
    for (const int64_t dim : {12, 32, 144}) {
      if (type == WeightType::kQ8_0 && dim != 32) continue;
      if (type == WeightType::kF32 && dim == 144) continue;
      const TileAttended attended(dim, type, {0, 1, 1});
      for (const int32_t at_once : {1, 4}) {
        call.tokens_at_once = at_once;
        // Scores have a spread of several units, of which an eighth of a
        // percent is lost.
        attended.ExpectClose(call, 0.03f);
      }
    }
  }
}

TEST(TileAttentionTest, JoinsPiecesUnderWindowsAndSinks) {
  const float sinks[] = {0.5f, -2.0f, 3.0f, 1.0f};
  const TileAttended attended(16, WeightType::kBf16, {0, 0, 1, 1});
  for (const int32_t window : {0, 1, 128, 300}) {
    Call call;
    call.positions = {511, 512, 1100};
    call.offsets = {0, 0, 0};
    call.window = window;
    call.sinks = sinks;
    call.tokens_at_once = 8;
    attended.ExpectClose(call, 0.03f);
  }
}

// However a prompt is cut, and whatever is in the step with it.
TEST(TileAttentionTest, ATokensBitsAreItsOwn) {
  for (const int32_t window : {0, 20}) {
    const TileAttended attended(20, WeightType::kBf16,
                                {0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
    Machine machine(Schedule::kForward);
    Call whole = Prompt(250, 261, 8);
    whole.window = window;
    const auto all = attended.Run(&machine, whole);
    const int64_t cols = attended.num_heads() * attended.head_dim;
    for (int32_t p = 250; p < 261; p += 5) {
      Call one = Prompt(p, p + 1, 1);
      one.window = window;
      // Beside a token of the other sequence.
      one.positions.push_back(400);
      one.offsets.push_back(kTileTablePages);
      one.tokens_at_once = p % 2 == 0 ? 1 : 2;
      const auto own = attended.Run(&machine, one);
      EXPECT_TRUE(SameBits(
          {own.begin(), own.begin() + cols},
          {all.begin() + (p - 250) * cols, all.begin() + (p - 249) * cols}))
          << p;
    }
    EXPECT_THAT(machine.faults(), testing::IsEmpty());
  }
}

TEST(TileAttentionTest, HeadRunsAreOfOneKvHeadAndEightAtMost) {
  const std::vector<int32_t> heads = {0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1};
  const auto runs = HeadRunsOf(heads);
  ASSERT_EQ(runs.size(), 4u);
  const int32_t want[4][3] = {{0, 0, 2}, {2, 2, 8}, {2, 10, 1}, {1, 11, 1}};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(runs[i].kv_head, want[i][0]);
    EXPECT_EQ(runs[i].first, want[i][1]);
    EXPECT_EQ(runs[i].count, want[i][2]);
  }
}

// What the cache holds behind a sequence's end, or of pages that a window has
// given back, is not read.
TEST(TileAttentionTest, PlacesThatNobodySeesMayHoldAnything) {
  TileAttended attended(16, WeightType::kF32, {0});
  Call call = Prompt(37, 41, 4);
  call.window = 9;  // positions 29 to 40
  Machine machine(Schedule::kForward);
  const auto want = attended.Run(&machine, call);
  for (int64_t page = 0; page < kTilePages; ++page) {
    const bool second = page == attended.tables[1];
    const bool third = page == attended.tables[2];
    for (int64_t place = 0; place < 16; ++place) {
      if ((second && place >= 13) || (third && place <= 8)) continue;
      for (int64_t d = 0; d < 16; ++d) {
        attended.keys[(page * 16 + place) * 16 + d] = NAN;
        attended.values[(page * 16 + place) * 16 + d] = NAN;
      }
    }
  }
  EXPECT_TRUE(SameBits(attended.Run(&machine, call), want));
  for (const float x : want) ASSERT_TRUE(std::isfinite(x));
}

}  // namespace
}  // namespace sluice::kernels::cuda
