#ifndef SLUICE_KERNELS_CUDA_SHARED_SAMPLING_ROWS_H_
#define SLUICE_KERNELS_CUDA_SHARED_SAMPLING_ROWS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/shared/math.h"
#include "kernels/cuda/shared/sampling.h"

namespace sluice::kernels::cuda {

inline constexpr int kSampleThreads = 256;
inline constexpr int kSampleWarps = kSampleThreads / kWarpLanes;

// One row's memory.
struct SampleRow {
  float* changed;     // [vocab]: the logits after the edits
  float* raw_maxima;  // [pieces]; NaN: a logit is NaN or +inf
  float* maxima;      // [pieces], of the changed logits
  float* raw_sums;    // [pieces]
  float* sums;        // [pieces]
  float* values;      // [vocab]: candidates by rising id
  float* piece_sums;  // [pieces], of the candidates' pieces
  int32_t* ids;       // [vocab]
};

// The memory of a call.
struct SampleMemory {
  float* floats;
  int64_t vocab;
  SLUICE_DEVICE int64_t pieces() const {
    return (vocab + kLogitsPiece - 1) / kLogitsPiece;
  }
  SLUICE_DEVICE SampleRow Row(int64_t row) const {
    const int64_t pieces = this->pieces();
    float* at = floats + row * (3 * vocab + 5 * pieces);
    SampleRow r;
    r.changed = at;
    r.values = at + vocab;
    r.ids = reinterpret_cast<int32_t*>(at + 2 * vocab);
    at += 3 * vocab;
    r.raw_maxima = at;
    r.maxima = at + pieces;
    r.raw_sums = at + 2 * pieces;
    r.sums = at + 3 * pieces;
    r.piece_sums = at + 4 * pieces;
    return r;
  }
};

struct SampleArgs {
  const SampleTask* tasks;
  SampleMemory memory;
  SampleResult* results;
};

// Logits and the largest of each piece.
struct Logits {
  const float* values;
  const float* maxima;
};
// The logits of the draw: changed ones if there are edits.
SLUICE_DEVICE Logits DrawnOf(const SampleTask& task, const SampleRow& row) {
  if (task.edits.any) return {row.changed, row.maxima};
  return {task.logits, row.raw_maxima};
}
SLUICE_DEVICE Logits RawOf(const SampleTask& task, const SampleRow& row) {
  return {task.logits, row.raw_maxima};
}

// Exp((x - max) * scale): kernels/sampling.h's weight.
SLUICE_DEVICE float WeightOf(float x, float max, float scale) {
  const float depth = (x - max) * scale;
  return ExpInRange(depth > -105.0f ? depth : -105.0f);
}

// The sum of the weights of a piece of `count` logits. A warp calls; lane 0
// has it.
SLUICE_DEVICE float PieceSum(Block& block, const float* piece, int64_t count,
                             float max, float scale) {
  float lane = 0.0f;
  for (int64_t i = block.lane(); block.lane() < 16 && i < count; i += 16) {
    lane = lane + WeightOf(piece[i], max, scale);
  }
  return SumLanes(block, lane);
}

// The block's largest; a NaN of any thread is the result. `shared` has a place
// per warp.
SLUICE_DEVICE float BlockMax(Block& block, const Shared<float>& shared,
                             float value) {
  const auto larger = [](float a, float b) { return a != a || a > b ? a : b; };
  for (int mask = 16; mask > 0; mask /= 2) {
    value = larger(value, block.ShuffleXor(value, mask));
  }
  if (block.lane() == 0) shared.Set(block.warp(), value);
  block.Sync();
  value = shared.Get(0);
  for (int w = 1; w < kSampleWarps; ++w) value = larger(value, shared.Get(w));
  block.Sync();
  return value;
}

// The largest logit of a row; NaN if one is no number. The block calls.
SLUICE_DEVICE float RowMax(Block& block, const Shared<float>& shared,
                           const float* maxima, int64_t pieces) {
  float max = -Infinity();
  for (int64_t p = block.thread(); p < pieces; p += kSampleThreads) {
    const float own = maxima[p];
    max = own != own || own > max ? own : max;
    if (own != own) break;
  }
  return BlockMax(block, shared, max);
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_SAMPLING_ROWS_H_
