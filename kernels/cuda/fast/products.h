#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_H_

#include <cuda_device/device.h>

#include <cstdint>
#include <functional>
#include <span>

#include "kernels/cuda/shared/expert_groups.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/views.h"

namespace sluice::kernels::cuda {

// Products on matrix units with weights in the tiles of weight_layout.h, whose
// WeightView has their address; activations are rounded to BF16, sums are F32.
// An output element is a chain of MultiplyTile over steps of 16 columns per
// leaf of the tree, from the leaf's first column on; the leaves are joined in
// reduction_tree.h's order, then the bias is added. With types in runs two
// steps of codes make a part, and fma(part, the run's scale, sum) adds it. With
// types in units a part has the one or two steps that share a scale; where
// elements have a minimum, fma(total, minimum, sum) follows, with the total of
// the part's activations, a chain of its own.
// Leaves are the shards, or, without shards, ProductLeaves: shapes alone choose
// them, and rows of one call or of sixty-four take the same steps, so an
// element's bits depend on nothing else that is computed with it.
//
// Weights, activations and outputs are the device's.

// Rows of a product of experts that read a weight at once, at most: without
// and with memory for operands.
inline constexpr int kTileGroupRows = 32;
inline constexpr int kLargeGroupRows = 128;

// Where the leaves of a product over `cols` columns begin and end: at multiples
// of `unit`, a type's CutColumns, at most 8 leaves, of 128 columns at least.
struct ProductLeaves {
  explicit ProductLeaves(int64_t cols, int unit = 32);
  int32_t bounds[9];
  int32_t count;
};

// Returns so many bytes of the device, 16-byte aligned, which are a product's
// until the stream has done it.
using TileMemory = std::function<void*(int64_t bytes)>;

// Without memory, products of many rows are slow.
void TileMatMul(Stream stream, ConstMatrix x, const WeightView& w,
                const float* bias, Matrix y, const TileMemory& memory = {});
// Shards of types in runs and in units begin at multiples of CutColumns.
void TileMatMulSharded(Stream stream, ConstMatrix x, const WeightView& w,
                       const ShardedCols& shards, std::span<const Matrix> y,
                       const TileMemory& memory = {});
// y += the sum of all shards + bias, whose node is the tree's root. False, and
// nothing is done, for shards that are no whole steps and, of more than
// kFewTokens rows, for those that are no whole runs and where no pass joins.
bool TileAddSharded(Stream stream, ConstMatrix x, const WeightView& w,
                    const ShardedCols& shards, const float* bias, Matrix y,
                    const TileMemory& memory = {});
// y [T, rows / 2] = the activation of rows r and r + rows / 2 of x w^T. False,
// and nothing is done, for half rows that are no whole tiles and, of more than
// kFewTokens rows of x, where no pass joins.
bool TileGatedMatMul(Stream stream, ConstMatrix x, const WeightView& w,
                     const Activation& activation, Matrix y,
                     const TileMemory& memory = {});
// A product of one token whose row is normed first: what TileRmsNorm and then
// TileMatMul or, with a gate, TileGatedMatMul do, bit for bit, in one launch.
struct TileNormedProduct {
  ConstMatrix x;
  // x is [.., w.cols], of which rows[0] is taken: as TileRmsNorm's. Null: the
  // first row.
  const int32_t* rows = nullptr;
  const float* norm = nullptr;
  float eps = 0.0f;
  WeightView w;
  const float* bias = nullptr;       // [w.rows] or null
  const Activation* gate = nullptr;  // y [1, w.rows / 2]; or null
  Matrix y;
};
// Whether there is a kernel: where Unconfirmed::kNormedProduct is asked for, of
// y of one row, rows of x and norms whose quads are aligned, at most 8,192
// columns whose leaves are whole steps and, with a gate, half rows of whole
// tiles, on devices with the shared memory for it.
bool HasNormedProduct(Stream stream, const TileNormedProduct& product);
// Starts a product that HasNormedProduct.
void StartNormedProduct(Stream stream, const TileNormedProduct& product);
inline constexpr int kFewTokens = 8;
// Returns how many rows groups have at most, for `pairs` of a row and one of
// `experts` experts: 8, kTileGroupRows or kLargeGroupRows.
int32_t TileGroupRows(Stream stream, int64_t pairs, int64_t experts,
                      const TileMemory& memory);
// As MatMulGroups of canonical/products.h. A group has at most as many rows as
// TileGroupRows returns for the same stream and memory.
void TileMatMulGroups(Stream stream, ConstMatrix x, const WeightView& like,
                      const float* bias, const ExpertRun& run, Matrix y,
                      const TileMemory& memory = {});
// As TileGatedMatMul of every group, with an expert's bias before the
// activation.
bool TileGatedGroups(Stream stream, ConstMatrix x, const WeightView& like,
                     const float* bias, const Activation& activation,
                     const ExpertRun& run, Matrix y);

// y[t] = row ids[t] of the table, widened to F32.
void TileEmbed(Stream stream, const WeightView& table, const int32_t* ids,
               Matrix y);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_H_
