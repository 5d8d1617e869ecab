#ifndef SLUICE_TESTS_KERNELS_CUDA_FAST_TILE_ATTENDED_H_
#define SLUICE_TESTS_KERNELS_CUDA_FAST_TILE_ATTENDED_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention.h"
#include "kernels/block_matmul.h"
#include "kernels/cuda/fast/attention.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {

inline constexpr int64_t kTileTablePages = 170;
inline constexpr int64_t kTilePages = kTileTablePages + 3;

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
    int32_t more_chunks = 0;  // than the longest sequence has
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
        1 + call.more_chunks;
    OwnedMatrix out(tokens, num_heads() * head_dim, 2);
    const auto runs = HeadRunsOf(kv_heads);
    AttentionCut cut = {runs.data(), static_cast<int32_t>(runs.size()), 1,
                        call.tokens_at_once};
    for (const HeadRun& run : runs) {
      cut.most_heads = std::max(cut.most_heads, run.count);
    }
    // Whose last places stay as they are.
    constexpr int64_t kSpare = 64;
    const int64_t floats =
        tokens * TileAttentionFloats(num_heads(), kv, cut, chunks);
    std::vector<float> memory(floats + kSpare, NAN);
    TilePagedAttention(stream, View(call, q), kv, cut, {memory.data(), chunks},
                       out.view());
    for (int64_t i = floats; i < floats + kSpare; ++i) {
      EXPECT_TRUE(std::isnan(memory[i])) << i;
    }
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

// Tokens of one sequence at positions [begin, end).
inline TileAttended::Call Prompt(int32_t begin, int32_t end, int32_t at_once) {
  TileAttended::Call call;
  for (int32_t p = begin; p < end; ++p) call.positions.push_back(p);
  call.offsets.assign(call.positions.size(), 0);
  call.tokens_at_once = at_once;
  return call;
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_KERNELS_CUDA_FAST_TILE_ATTENDED_H_
