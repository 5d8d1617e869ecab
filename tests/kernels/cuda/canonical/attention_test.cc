#include "kernels/cuda/canonical/attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention.h"
#include "kernels/block_matmul.h"
#include "kernels/context.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int64_t kHeads = 3;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kTablePages = 170;
constexpr int64_t kPages = kTablePages + 3;

// Queries of two sequences over keys and values at shuffled pages.
struct Attended {
  explicit Attended(int64_t dim, WeightType type) : head_dim(dim) {
    const int64_t n = kPages * kKvHeads * 16 * dim;
    keys_in.emplace(n / dim, dim, RandomBf16(1, n, 2.0f));
    values_in.emplace(n / dim, dim, RandomBf16(2, n));
    tables.resize(2 * kTablePages);
    for (int64_t i = 0; i < 2 * kTablePages; ++i) {
      tables[i] = static_cast<int32_t>(i * 37 % kPages);
    }
    kv = {nullptr, nullptr, kPages, kKvHeads,
          16,      dim,     type,   &BlockOpsFor(DotIsa::kPortable)};
    keys.resize(static_cast<size_t>(kv.bytes(n) / 4));
    values.resize(keys.size());
    kv.keys = keys.data();
    kv.values = values.data();
    // Rows of all heads of a place: the order of a page does not matter.
    std::vector<int64_t> slots(static_cast<size_t>(kPages) * 16);
    std::iota(slots.begin(), slots.end(), 0);
    const auto rows = [&](const OwnedMatrix& all) {
      return ConstMatrix{all.view().data, kPages * 16, kKvHeads * dim,
                         kKvHeads * dim};
    };
    StoreKv({}, rows(*keys_in), rows(*values_in), slots.data(), kv);
  }

  void Compare(const std::vector<int32_t>& positions, int32_t window,
               const float* sinks) {
    const auto tokens = static_cast<int64_t>(positions.size());
    const OwnedMatrix q(tokens, kHeads * head_dim,
                        RandomFloats(3, tokens * kHeads * head_dim, 2.0f));
    std::vector<int64_t> offsets(positions.size());
    for (size_t t = 0; t < offsets.size(); ++t) {
      offsets[t] = t / run % 2 == 0 ? 0 : kTablePages;
    }
    const int32_t kv_heads[kHeads] = {0, 1, 1};
    const AttentionQueries queries = {
        q.view(),       positions.data(), tables.data(),
        offsets.data(), kHeads,           kv_heads,
        0.3f,           window,           sinks};
    OwnedMatrix want(tokens, kHeads * head_dim, 2);
    kernels::PagedAttention({}, queries, kv, want.view());
    const int32_t chunks =
        *std::max_element(positions.begin(), positions.end()) / 256 + 1;
    const auto got = BothWays([&](Stream stream) {
      std::vector<float> memory(
          AttentionFloats(tokens, kHeads, head_dim, chunks), NAN);
      OwnedMatrix out(tokens, kHeads * head_dim, 2);
      PagedAttention(stream, queries, kv,
                     {memory.data(), chunks, in_runs ? 1 : 0}, out.view());
      EXPECT_TRUE(out.MarkIntact());
      return out.values();
    });
    EXPECT_TRUE(SameBits(got, want.values())) << "window " << window;
    for (const float x : got) ASSERT_TRUE(std::isfinite(x));
  }

  int64_t head_dim;
  size_t run = 1;        // tokens of a sequence that follow each other
  bool in_runs = false;  // what attention is told of it
  std::optional<OwnedMatrix> keys_in;
  std::optional<OwnedMatrix> values_in;
  std::vector<float> keys;  // bytes
  std::vector<float> values;
  std::vector<int32_t> tables;
  KvView kv;
};

std::vector<int32_t> Following(int32_t first, size_t count) {
  std::vector<int32_t> positions(count);
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

TEST(CudaAttentionTest, HasTheCpusBitsAtEveryBoundary) {
  for (const WeightType type : {WeightType::kF32, WeightType::kBf16}) {
    for (const int64_t head_dim : {16, 20}) {
      Attended attended(head_dim, type);
      attended.Compare({0, 1, 15, 16, 17, 255, 256, 257}, 0, nullptr);
    }
  }
}

// Heads with kernels of their own: what tokens see ends at tiles of positions
// and at chunks, and runs of a sequence's tokens at tiles of tokens.
TEST(CudaAttentionTest, FixedHeadsHaveTheCpusBitsAlone) {
  const float sinks[kHeads] = {0.5f, -2.0f, 30.0f};
  for (const WeightType type : {WeightType::kF32, WeightType::kBf16}) {
    for (const int64_t head_dim : {64, 128}) {
      Attended attended(head_dim, type);
      attended.Compare({0}, 0, nullptr);
      attended.Compare({0, 63, 64, 65, 255}, 0, sinks);
      attended.Compare({1, 127, 128, 129, 256, 257}, 0, nullptr);
      attended.Compare({60, 130, 300, 600}, 70, sinks);
    }
  }
}

TEST(CudaAttentionTest, FixedHeadsHaveTheCpusBitsInRuns) {
  const float sinks[kHeads] = {0.5f, -2.0f, 30.0f};
  for (const WeightType type : {WeightType::kF32, WeightType::kBf16}) {
    for (const int64_t head_dim : {64, 128}) {
      Attended attended(head_dim, type);
      attended.in_runs = true;
      attended.run = 1000;
      // Of one sequence, across tiles and a chunk's end.
      attended.Compare(Following(230, 70), 0, nullptr);
      attended.Compare(Following(0, 33), 0, sinks);
      attended.Compare(Following(300, 40), 60, nullptr);
      // Sequences take turns: a run is a token.
      attended.run = 1;
      attended.Compare({0, 31, 32, 33, 255, 256, 257}, 0, nullptr);
      attended.run = 5;
      attended.Compare(Following(250, 12), 20, sinks);
    }
  }
}

TEST(CudaAttentionTest, Q8HasTheCpusBitsAtEveryBoundary) {
  for (const int64_t head_dim : {32, 96}) {
    Attended attended(head_dim, WeightType::kQ8_0);
    attended.Compare({0, 1, 15, 16, 17, 255, 256, 257}, 0, nullptr);
  }
}

TEST(CudaAttentionTest, JoinsChunksInTheTreeUnderWindowsAndSinks) {
  const float sinks[kHeads] = {0.5f, -2.0f, 30.0f};
  for (const WeightType type : {WeightType::kBf16, WeightType::kQ8_0}) {
    Attended attended(type == WeightType::kQ8_0 ? 32 : 16, type);
    for (const int32_t window : {0, 1, 128, 300, 600}) {
      attended.Compare({511, 512, 767, 2100, 2600}, window, sinks);
    }
  }
}

TEST(CudaAttentionTest, AHeadOfQ8ThatIsNotFiniteGivesNaNAlone) {
  // In the last and in the first block of a head; of the wider heads a warp has
  // two blocks.
  for (const auto& [dim, at] : {std::pair(64, 40), {192, 3}, {192, 170}}) {
    SCOPED_TRACE(testing::Message() << dim << " wide, at " << at);
    const int64_t head_dim = dim;
    Attended attended(head_dim, WeightType::kQ8_0);
    OwnedMatrix q(1, kHeads * head_dim, RandomFloats(4, kHeads * head_dim));
    q.view().data[head_dim + at] = INFINITY;
    const int32_t position = 300;
    const int64_t offset = 0;
    const int32_t kv_heads[kHeads] = {0, 1, 1};
    const AttentionQueries queries = {
        q.view(), &position, attended.tables.data(), &offset, kHeads, kv_heads};
    BothWays([&](Stream stream) {
      std::vector<float> memory(AttentionFloats(1, kHeads, head_dim, 2), NAN);
      OwnedMatrix out(1, kHeads * head_dim);
      PagedAttention(stream, queries, attended.kv, {memory.data(), 2},
                     out.view());
      const auto values = out.values();
      for (int64_t i = 0; i < kHeads * head_dim; ++i) {
        EXPECT_EQ(std::isnan(values[i]), i / head_dim == 1) << i;
      }
      return values;
    });
  }
}

TEST(CudaAttentionTest, HeadsMayBeWiderThanABlock) {
  Attended attended(144, WeightType::kF32);
  attended.Compare({3, 300}, 0, nullptr);
}

}  // namespace
}  // namespace sluice::kernels::cuda
