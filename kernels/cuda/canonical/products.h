#ifndef SLUICE_KERNELS_CUDA_CANONICAL_PRODUCTS_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_PRODUCTS_H_

#include <cuda_device/device.h>

#include <cstdint>
#include <span>

#include "kernels/block_matmul.h"
#include "kernels/cuda/shared/expert_groups.h"
#include "kernels/matmul.h"
#include "kernels/views.h"

namespace sluice::kernels::cuda {

// The products of matmul.h and block_matmul.h on a stream, with their
// contracts and their bits, from the same bytes. Weights, activations and
// outputs are the device's; shards and lists of outputs are the host's.

void MatMul(Stream stream, ConstMatrix x, const WeightView& w,
            const float* bias, Matrix y);
void MatMulSharded(Stream stream, ConstMatrix x, const WeightView& w,
                   const ShardedCols& shards, std::span<const Matrix> y);

// Pieces of a row that are quantised apart, with a flag each.
inline constexpr int kFinitePieces = 16;

// Quantised rows and what is known of them: products make outputs of rows that
// are not finite NaN. Codes and sums are 16-byte aligned.
struct FlaggedRows {
  QuantizedRows rows;
  bool* finite = nullptr;  // [rows, kFinitePieces]; null: all are
  // A row fails with the one that it was computed from, too: row sources[r]
  // of these flags. Null: none does.
  const bool* source_finite = nullptr;
  const int32_t* sources = nullptr;
};

void QuantizeRows(Stream stream, ConstMatrix x, const FlaggedRows& to);
// The tokens of a tile of integer matrix units (block_products_many_tokens.h).
// Groups of that many rows are multiplied by those, if the device has enough
// shared memory.
inline constexpr int kBlockTileTokens = 64;
bool BlockTilesFit(Stream stream, BlockFormat format);
void BlockMatMul(Stream stream, const FlaggedRows& x, const BlockWeight& w,
                 const float* bias, Matrix y);
void BlockMatMulSharded(Stream stream, const FlaggedRows& x,
                        const BlockWeight& w, const ShardedCols& shards,
                        std::span<const Matrix> y);

// Rows of a table of blocks, with block_pack.h's WidenRow's bits: y[t] = row
// ids[t].
void EmbedBlocks(Stream stream, const BlockWeight& table, const int32_t* ids,
                 Matrix y);

// Products of experts, which have one shape and type, that of `like`.
// y's rows are slots. bias [experts, rows of w] or null.
void MatMulGroups(Stream stream, ConstMatrix x, const WeightView& like,
                  const float* bias, const ExpertRun& run, Matrix y);
void BlockMatMulGroups(Stream stream, const FlaggedRows& x,
                       const BlockWeight& like, const float* bias,
                       const ExpertRun& run, Matrix y);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_PRODUCTS_H_
