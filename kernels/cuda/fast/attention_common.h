#ifndef SLUICE_KERNELS_CUDA_FAST_ATTENTION_COMMON_H_
#define SLUICE_KERNELS_CUDA_FAST_ATTENTION_COMMON_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/fast/attention.h"
#include "kernels/cuda/shared/attention_partials.h"
#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {

// What the kernels of fast attention share.

inline constexpr int kMostHeads = 8;  // of a HeadRun

// What is done to tokens' rows in the launch; see RopeQueries.
struct RowRope {
  HeadNorm q_norm;
  HeadNorm k_norm;
  RopeTable table;  // no cos: rows are rotated and stored before
  int32_t half_split = 0;
};

struct TileAttentionArgs {
  AttentionArgs attention;
  AttentionCut cut;
  RowRope rope;
};

// Whether heads are of 64 or 128 elements in pages of 16 positions.
bool HasLeaves(const KvView& kv);
// Starts the kernels of those.
void StartLeaves(Stream stream, const TileAttentionArgs& args);
// Levels of a tree over `chunks` pieces in which nodes wait for others.
int32_t WaitingLevels(int32_t chunks);

// Positions [begin, end) of a piece that a token sees; none if they are not
// rising.
struct Seen {
  int begin;
  int end;

  // Where some are seen.
  SLUICE_DEVICE bool Has(int j) const {
    return static_cast<uint32_t>(j - begin) <
           static_cast<uint32_t>(end - begin);
  }
  // Whether one of [from, to) is seen.
  SLUICE_DEVICE bool Meets(int from, int to) const {
    return from < end && to > begin;
  }
};
SLUICE_DEVICE Seen SeenOf(const AttentionArgs& a, int64_t token,
                          int64_t chunk) {
  const Visible visible = VisibleOf(a, token);
  const int64_t first = visible.first - chunk * kAttentionChunk;
  const int64_t end = visible.last + 1 - chunk * kAttentionChunk;
  return {static_cast<int>(first > 0 ? first : 0),
          static_cast<int>(end < kAttentionChunk ? end : kAttentionChunk)};
}

// Heads of a whole number of leaves' columns, in pages of 16 positions: see
// attention.h. A piece has leaves of 64 positions, a leaf steps of 16.
// Step, tile i of two and column c of the tile's product are position c / 2 * 4
// + i * 2 + c % 2 of the step, so that what a lane has of a product of keys is
// its operand of the product of values: lane t of four has positions 4t to 4t +
// 3. Step s of a head's elements, and lane t's four, are elements s / 2 * 32 +
// t * 8 + s % 2 * 4 and on: two steps are 16 bytes of a key.
inline constexpr int kLeafPositions = 64;
inline constexpr int kStepPositions = 16;
inline constexpr int kPieceSteps = kAttentionChunk / kStepPositions;
inline constexpr int kPieceLeaves = kAttentionChunk / kLeafPositions;
inline constexpr int kLeafSteps = kLeafPositions / kStepPositions;
inline constexpr int kLeafThreads = 256;
inline constexpr int kLeafWarps = kLeafThreads / kWarpLanes;

// Scores are powers of 2: queries are multiplied by the scale and by this.
// Maxima of finished pieces are powers of e, as sinks are.
inline constexpr float kLog2OfE = 1.44269504f;
inline constexpr float kLogOf2 = 0.693147181f;

// The chain over the leaves of a piece, of one query: the largest score so far.
struct LeafChain {
  float max;
  // What is subtracted from scores: 0 where nothing was seen, else `max`.
  float base;

  // Goes on by a leaf whose largest score is `leaf`, -infinity for none;
  // returns what sums so far are multiplied by.
  SLUICE_DEVICE float Take(float leaf) {
    const float before = max;
    max = Larger(leaf, max);
    base = max > -Infinity() ? max : 0.0f;
    return PowerOf2(before - base);
  }
};
SLUICE_DEVICE LeafChain NoLeaves() { return {-Infinity(), 0.0f}; }

// Four floats at `from`, aligned or not.
SLUICE_DEVICE bool IsQuad(const float* at) {
  return reinterpret_cast<uintptr_t>(at) % sizeof(Quad) == 0;
}
SLUICE_DEVICE Quad FourAt(const float* from) {
  if (IsQuad(from)) return LoadQuad(from);
  return {{from[0], from[1], from[2], from[3]}};
}
SLUICE_DEVICE void SetFour(float* to, const Quad& four) {
  if (IsQuad(to)) return StoreQuad(to, four);
  for (int i = 0; i < 4; ++i) to[i] = four.values[i];
}

// Four elements of a query times `scale` as two words of an operand.
SLUICE_DEVICE TileB WordsOf(const Quad& four, float scale) {
  return {{PackPair(four.values[0] * scale, four.values[1] * scale),
           PackPair(four.values[2] * scale, four.values[3] * scale)}};
}

// A query's sums with its sink, as JoinKernel joins it.
struct Sunk {
  float own;   // what elements are multiplied by
  float sink;  // what the sink's, zero, are
  float sum;
  bool has;

  SLUICE_DEVICE Quad OutputOf(const Quad& elements) const {
    Quad out;
    for (int i = 0; i < 4; ++i) {
      const float element =
          has ? Fma(0.0f, sink, elements.values[i] * own) : elements.values[i];
      out.values[i] = element / sum;
    }
    return out;
  }
};
SLUICE_DEVICE Sunk SunkOf(const AttentionArgs& a, int64_t head, float max,
                          float sum) {
  if (a.queries.sinks == nullptr) return {1.0f, 0.0f, sum, false};
  const Partial sink = {a.queries.sinks[head], 1.0f, 0.0f};
  const Partial all = Joined({max, sum, 0.0f}, sink);
  return {Exp(max - all.max), Exp(sink.max - all.max), all.sum, true};
}

// A view whose sizes the compiler knows.
template <int kDim>
SLUICE_DEVICE KvView FixedView(const KvView& from) {
  KvView kv = from;
  kv.head_dim = kDim;
  kv.block_tokens = kStepPositions;
  return kv;
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_ATTENTION_COMMON_H_
