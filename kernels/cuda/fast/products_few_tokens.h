#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_FEW_TOKENS_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_FEW_TOKENS_H_

#include <cstdint>

#include "kernels/cuda/fast/products.h"
#include "kernels/cuda/fast/products_chains.h"
#include "kernels/elementwise.h"
#include "kernels/weight_type.h"

namespace sluice::kernels::cuda {

// Products of products.h for up to eight tokens at once. Reading the
// weights takes their time, so every lane's next weights are always on their
// way, those of the next leaf and of the next rows behind the last; the first
// ones are asked for before the activations are there. There are as many blocks
// as the device has room for: each takes 16 rows after 16 rows, a warp its
// share of their leaves.

inline constexpr int kStreamTokens = kFewTokens;

// What is done with an output's sum.
struct StreamEnd {
  bool adds = false;   // y += in the place of y =
  bool gated = false;  // y [T, rows / 2] = activation of rows r, r + rows / 2
  Activation activation;
};

// The norm of a token alone before its product.
struct StreamNorm {
  const float* weight = nullptr;  // 16-byte aligned; null: none
  // x's row is rows[0]: as TileRmsNorm's. Null: the first.
  const int32_t* rows = nullptr;
  float eps = 0.0f;
};
inline constexpr int kNormedCols = 8192;  // at most

// Whether the weight's leaves are whole steps of its tiles, and gated rows
// whole tiles, and the device has enough shared memory: what the kernels take.
bool CanStream(Stream stream, const TileArgs& args, WeightType type,
               const StreamEnd& end);

// Starts the product, in tiles of kStreamTokens tokens or, with groups of
// experts, at most `max_groups` of them. With a norm: of one token and at most
// kNormedCols columns, without groups.
void StartStream(Stream stream, const TileArgs& args, WeightType type,
                 const StreamEnd& end, int64_t max_groups,
                 const StreamNorm& norm = {});

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_FEW_TOKENS_H_
