#ifndef SLUICE_COMMON_DEVICE_CUDA_CUDA_PRODUCTS_H_
#define SLUICE_COMMON_DEVICE_CUDA_CUDA_PRODUCTS_H_

#include <cstdint>
#include <span>

#include "common/device/cuda/cuda_memory.h"
#include "common/device/weight.h"
#include "kernels/cuda/canonical/fused_token_product.h"
#include "kernels/cuda/canonical/products.h"
#include "kernels/cuda/fast/products.h"
#include "kernels/elementwise.h"

namespace sluice {

// A norm's operands, a row each.
struct NormedRow {
  kernels::ConstMatrix x;
  const int32_t* rows = nullptr;  // the device's: of x, in order; null: all
  const float* weight = nullptr;  // null: x is what is multiplied
  float eps = 0;
};

// WeightProducts of cpu/weight_products.h on a device: the same products of
// the same parts, on the runtime's stream, with the same bits or, where a fast
// one has tiles for a type, on matrix units. Used by one thread.
class CudaProducts {
 public:
  CudaProducts(kernels::cuda::Runtime* runtime, bool fast)
      : runtime_(*runtime),
        fast_(fast),
        codes_(runtime),
        scales_(runtime),
        sums_(runtime),
        finite_(runtime),
        tiles_(runtime),
        tile_memory_([this](int64_t bytes) {
          return tiles_.AtLeast(static_cast<size_t>(bytes));
        }) {}

  // Whether the products read a type's parts as tiles
  // (kernels/cuda/fast/weight_layout.h), and not as PackPart makes them.
  bool HasTiles(kernels::WeightType type) const;
  // y[t, r] = dot(x[t, :], w[r, :]) + bias[r] for the first y.cols rows of w;
  // bias may be null.
  void Multiply(kernels::ConstMatrix x, const Weight& w, const float* bias,
                kernels::Matrix y);
  // The same of a token alone, y = RmsNorm(x) w^T + bias, and y = the
  // activation of RmsNorm(x) w^T, at once. False, and nothing is done, where
  // there is no such kernel.
  bool MultiplyNormed(const NormedRow& x, const Weight& w, const float* bias,
                      kernels::Matrix y);
  bool MultiplyNormedGated(const NormedRow& x, const Weight& w,
                           const kernels::Activation& activation,
                           kernels::Matrix y);
  // As kernels::MatMulSharded. Bounds are multiples of the type's cut unit.
  void MultiplySharded(kernels::ConstMatrix x, const Weight& w,
                       const kernels::ShardedCols& shards,
                       std::span<const kernels::Matrix> y);
  // The same of one node that is the tree's root, and y += its sum + bias;
  // and y = the activation of x w^T, as TileGatedMatMul. False, and nothing is
  // done, where there is no such kernel.
  bool AddSharded(kernels::ConstMatrix x, const Weight& w,
                  const kernels::ShardedCols& shards, const float* bias,
                  kernels::Matrix y);
  bool MultiplyGated(kernels::ConstMatrix x, const Weight& w,
                     const kernels::Activation& activation, kernels::Matrix y);
  // What products with tiles take; one at a time.
  const kernels::cuda::TileMemory& tile_memory() const { return tile_memory_; }
  // y[t] = row ids[t] of `table`, as F32; ids are the device's.
  void Embed(const Weight& table, const int32_t* ids, kernels::Matrix y);

 private:
  // Whether the weight is one part, in tiles.
  bool IsTiled(const Weight& w) const;
  // Whether `product` with the part of a weight of `cols` columns has a kernel
  // for a token alone; that product, of as many rows as y has columns.
  bool TakesToken(const WeightPart& part, int64_t cols,
                  kernels::cuda::TokenProduct& product) const;
  // Starts, or only tells whether there is a kernel for, `product` with the
  // part of a weight of `cols` columns: normed tiles or what TakesToken.
  bool TakesNormed(const WeightPart& part, int64_t cols,
                   kernels::cuda::TokenProduct& product, bool starts);
  // MultiplySharded of a token alone, a launch per node. False, and nothing is
  // done, where a node has no such kernel.
  bool MultiplyTokenSharded(kernels::ConstMatrix x, const Weight& w,
                            const kernels::ShardedCols& shards,
                            std::span<const kernels::Matrix> y);
  kernels::WeightView TileView(const WeightPart& part, int64_t cols) const;
  kernels::cuda::FlaggedRows Quantize(kernels::ConstMatrix x, int32_t block);

  kernels::cuda::Runtime& runtime_;
  const bool fast_;
  // Quantised activations, and whether their rows are finite.
  GrowingMemory codes_;
  GrowingMemory scales_;
  GrowingMemory sums_;
  GrowingMemory finite_;
  // Of products with tiles.
  GrowingMemory tiles_;
  const kernels::cuda::TileMemory tile_memory_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_CUDA_PRODUCTS_H_
