#ifndef SLUICE_KERNELS_CUDA_FAST_ATTENTION_PROMPT_ROWS_H_
#define SLUICE_KERNELS_CUDA_FAST_ATTENTION_PROMPT_ROWS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/fast/attention_common.h"
#include "kernels/cuda/shared/attention_partials.h"

namespace sluice::kernels::cuda {

// Which tokens and positions the blocks and warps of a prompt have.

inline constexpr int kLaneTokens = 4;  // of a block's, which a lane holds

// Queries of a warp's tile: rows of the products.
inline constexpr int kPromptRows = 16;

// Tokens [begin, end) of a block, of one sequence, and the positions [lo, hi)
// that one of them sees.
struct PromptRun {
  int begin;
  int end;
  int lo;
  int hi;
};

// What a warp has of the run: `count` rows, row n token first + n / heads.
struct PromptTile {
  int64_t first;
  int count;
  HeadRun run;
  int lo;  // positions that a row sees: [lo, hi)
  int hi;
  int all_lo;  // positions that every row sees
  int all_hi;
  int begin[2];  // what the lane's rows see
  int end[2];

  SLUICE_DEVICE int64_t Token(int n) const { return first + n / run.count; }
  SLUICE_DEVICE int64_t Head(int n) const { return run.first + n % run.count; }
  SLUICE_DEVICE bool MeetsLeaf(int leaf) const {
    return leaf * kLeafPositions < hi && (leaf + 1) * kLeafPositions > lo;
  }
  SLUICE_DEVICE bool SeesAll(int leaf) const {
    return leaf * kLeafPositions >= all_lo &&
           (leaf + 1) * kLeafPositions <= all_hi;
  }
};

// The lesser of two lanes' values.
SLUICE_DEVICE int Least(Block& block, int value, int mask) {
  const int other = block.ShuffleXor(value, mask);
  return other < value ? other : value;
}

// The run that begins at token `begin` of the block. A warp calls.
SLUICE_DEVICE PromptRun PromptRunFrom(Block& block, const AttentionArgs& a,
                                      int64_t from, int begin, int count) {
  const int64_t* const offsets = a.queries.table_offsets + from;
  const int64_t own = offsets[begin];
  PromptRun run = {begin, count, 0x7FFFFFFF, 0};
  for (int k = kLaneTokens - 1; k >= 0; --k) {
    const int i = k * kWarpLanes + block.lane();
    const uint32_t others =
        block.Ballot(i > begin && i < count && offsets[i] != own);
    if (others != 0) {
      run.end = k * kWarpLanes + CountBits((others & (0u - others)) - 1);
    }
  }
  for (int k = 0; k < kLaneTokens; ++k) {
    const int i = k * kWarpLanes + block.lane();
    if (i < begin || i >= run.end) continue;
    const Visible visible = VisibleOf(a, from + i);
    const auto lo = static_cast<int>(visible.first);
    const auto hi = static_cast<int>(visible.last + 1);
    run.lo = lo < run.lo ? lo : run.lo;
    run.hi = hi > run.hi ? hi : run.hi;
  }
  for (int mask = 16; mask > 0; mask /= 2) {
    run.lo = Least(block, run.lo, mask);
    run.hi = -Least(block, -run.hi, mask);
  }
  return run;
}
SLUICE_DEVICE PromptTile PromptTileOf(Block& block, const TileAttentionArgs& a,
                                      const PromptRun& tokens, int64_t from,
                                      const HeadRun& run) {
  const int each = a.cut.tokens / kLeafWarps;
  const int first = block.warp() * each;
  const int begin = first > tokens.begin ? first : tokens.begin;
  const int end = first + each < tokens.end ? first + each : tokens.end;
  PromptTile tile;
  tile.first = from + begin;
  tile.count = begin < end ? (end - begin) * run.count : 0;
  tile.run = run;
  tile.lo = 0x7FFFFFFF;
  tile.hi = 0;
  tile.all_lo = 0;
  tile.all_hi = 0x7FFFFFFF;
  SLUICE_UNROLL
  for (int r = 0; r < 2; ++r) {
    // Rows that are none see what row 0 does.
    const int n = block.lane() / 4 + 8 * r;
    Visible visible = {0, -1};
    if (tile.count > 0) {
      visible = VisibleOf(a.attention, tile.Token(n < tile.count ? n : 0));
    }
    tile.begin[r] = static_cast<int>(visible.first);
    tile.end[r] = static_cast<int>(visible.last + 1);
    tile.lo = tile.begin[r] < tile.lo ? tile.begin[r] : tile.lo;
    tile.hi = tile.end[r] > tile.hi ? tile.end[r] : tile.hi;
    tile.all_lo = tile.begin[r] > tile.all_lo ? tile.begin[r] : tile.all_lo;
    tile.all_hi = tile.end[r] < tile.all_hi ? tile.end[r] : tile.all_hi;
  }
  for (int mask = 16; mask >= 4; mask /= 2) {
    tile.lo = Least(block, tile.lo, mask);
    tile.hi = -Least(block, -tile.hi, mask);
    tile.all_lo = -Least(block, -tile.all_lo, mask);
    tile.all_hi = Least(block, tile.all_hi, mask);
  }
  return tile;
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_ATTENTION_PROMPT_ROWS_H_
