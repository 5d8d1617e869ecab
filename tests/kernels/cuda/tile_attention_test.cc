#include "kernels/cuda/tile_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention.h"
#include "kernels/block_matmul.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int64_t kTileTablePages = 72;
constexpr int64_t kTilePages = kTileTablePages + 3;

// Keys and values at shuffled pages, of two sequences' tables.
struct TileAttended {
  TileAttended(int64_t dim, WeightType type, std::vector<int32_t> heads)
      : head_dim(dim), kv_heads(std::move(heads)) {
    num_kv_heads = *std::max_element(kv_heads.begin(), kv_heads.end()) + 1;
    const int64_t n = kTilePages * num_kv_heads * 16 * dim;
    const OwnedMatrix k(n / dim, dim, RandomBf16(1, n, 2.0f));
    const OwnedMatrix v(n / dim, dim, RandomBf16(2, n));
    tables.resize(2 * kTileTablePages);
    for (int64_t i = 0; i < 2 * kTileTablePages; ++i) {
      tables[i] = static_cast<int32_t>(i * 37 % kTilePages);
    }
    kv = {nullptr, nullptr, kTilePages, num_kv_heads,
          16,      dim,     type,       &BlockOpsFor(DotIsa::kPortable)};
    keys.resize(static_cast<size_t>(kv.bytes(n) / 4));
    values.resize(keys.size());
    kv.keys = keys.data();
    kv.values = values.data();
    std::vector<int64_t> slots(static_cast<size_t>(kTilePages) * 16);
    std::iota(slots.begin(), slots.end(), 0);
    const auto rows = [&](const OwnedMatrix& all) {
      return ConstMatrix{all.view().data, kTilePages * 16, num_kv_heads * dim,
                         num_kv_heads * dim};
    };
    kernels::StoreKv({}, rows(k), rows(v), slots.data(), kv);
  }
  int64_t num_heads() const { return static_cast<int64_t>(kv_heads.size()); }

  // What a call reads: token t's row is drawn by its position alone.
  struct Call {
    std::vector<int32_t> positions;
    std::vector<int64_t> offsets;
    int32_t window = 0;
    const float* sinks = nullptr;
    int32_t tokens_at_once = 1;
  };
  OwnedMatrix QueriesOf(const Call& call) const {
    const int64_t cols = num_heads() * head_dim;
    std::vector<float> all;
    for (const int32_t position : call.positions) {
      const auto row =
          RandomFloats(static_cast<uint64_t>(position) + 10, cols, 2.0f);
      all.insert(all.end(), row.begin(), row.end());
    }
    return {static_cast<int64_t>(call.positions.size()), cols, all};
  }
  AttentionQueries View(const Call& call, const OwnedMatrix& q) const {
    return {
        q.view(),    call.positions.data(), tables.data(), call.offsets.data(),
        num_heads(), kv_heads.data(),       0.3f,          call.window,
        call.sinks};
  }
  std::vector<float> Run(Stream stream, const Call& call) const {
    const OwnedMatrix q = QueriesOf(call);
    const auto tokens = static_cast<int64_t>(call.positions.size());
    const int32_t chunks =
        *std::max_element(call.positions.begin(), call.positions.end()) / 256 +
        1;
    std::vector<float> memory(
        AttentionFloats(tokens, num_heads(), head_dim, chunks), NAN);
    OwnedMatrix out(tokens, num_heads() * head_dim, 2);
    const auto runs = HeadRunsOf(kv_heads);
    AttentionCut cut = {runs.data(), static_cast<int32_t>(runs.size()), 1,
                        call.tokens_at_once};
    for (const HeadRun& run : runs) {
      cut.most_heads = std::max(cut.most_heads, run.count);
    }
    TilePagedAttention(stream, View(call, q), kv, cut, {memory.data(), chunks},
                       out.view());
    EXPECT_TRUE(out.MarkIntact());
    return out.values();
  }
  // Close to the canonical answer: weights and values have eight bits.
  void ExpectClose(const Call& call, float tolerance) const {
    const OwnedMatrix q = QueriesOf(call);
    OwnedMatrix want(static_cast<int64_t>(call.positions.size()),
                     num_heads() * head_dim);
    kernels::PagedAttention({}, View(call, q), kv, want.view());
    const auto got = BothWays([&](Stream stream) { return Run(stream, call); });
    const auto wanted = want.values();
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(got[i], wanted[i], tolerance) << i;
    }
  }

  int64_t head_dim;
  std::vector<int32_t> kv_heads;
  int64_t num_kv_heads = 0;
  std::vector<float> keys;  // bytes
  std::vector<float> values;
  std::vector<int32_t> tables;
  KvView kv;
};

using Call = TileAttended::Call;

// Tokens of one sequence at positions [begin, end).
Call Prompt(int32_t begin, int32_t end, int32_t at_once) {
  Call call;
  for (int32_t p = begin; p < end; ++p) call.positions.push_back(p);
  call.offsets.assign(call.positions.size(), 0);
  call.tokens_at_once = at_once;
  return call;
}

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
