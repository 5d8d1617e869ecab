#include "common/device/cuda/cuda_products.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/device/cpu/weight_products.h"
#include "kernels/cuda/fast/weight_layout.h"
#include "kernels/cuda/shared/row_ops.h"

namespace sluice {

using kernels::ConstMatrix;
using kernels::Matrix;

bool CudaProducts::HasTiles(kernels::WeightType type) const {
  return fast_ && kernels::cuda::HasTiles(type);
}

kernels::WeightView CudaProducts::TileView(const WeightPart& part,
                                           int64_t cols) const {
  return {part.data.data(), part.type, part.rows, cols};
}

kernels::cuda::FlaggedRows CudaProducts::Quantize(ConstMatrix x,
                                                  int32_t block) {
  kernels::cuda::FlaggedRows to;
  to.rows = {codes_.AtLeast<int8_t>(x.rows * x.cols),
             scales_.AtLeast<float>(x.rows * (x.cols / block)),
             sums_.AtLeast<int16_t>(x.rows * (x.cols / 16)),
             x.rows,
             x.cols,
             block};
  to.finite = finite_.AtLeast<bool>(x.rows * kernels::cuda::kFinitePieces);
  kernels::cuda::QuantizeRows(runtime_.stream(), x, to);
  return to;
}

void CudaProducts::Multiply(ConstMatrix x, const Weight& w, const float* bias,
                            Matrix y) {
  int64_t begin = 0;
  kernels::cuda::FlaggedRows quantized;
  quantized.rows.block = 0;
  for (const WeightPart& part : w.parts) {
    const int64_t rows = std::min(part.rows, y.cols - begin);
    if (rows <= 0) continue;
    const Matrix out = {y.data + begin, y.rows, rows, y.stride};
    const float* own_bias = bias == nullptr ? nullptr : bias + begin;
    begin += rows;
    if (HasTiles(part.type)) {
      kernels::WeightView tiles = TileView(part, w.cols);
      tiles.rows = rows;
      kernels::cuda::TileMatMul(runtime_.stream(), x, tiles, own_bias, out,
                                tile_memory_);
      continue;
    }
    kernels::ExpertWeight view = ViewOf(part, w.cols);
    if (view.is_plain()) {
      view.plain.rows = rows;
      kernels::cuda::MatMul(runtime_.stream(), x, view.plain, own_bias, out);
      continue;
    }
    kernels::cuda::TokenProduct alone;
    alone.x = x;
    alone.bias = own_bias;
    alone.y = out;
    if (TakesToken(part, w.cols, alone)) {
      kernels::cuda::StartTokenProduct(runtime_.stream(), alone);
      continue;
    }
    view.blocks.rows = rows;
    const int32_t block = kernels::ActivationBlock(view.blocks.format);
    if (quantized.rows.block != block) quantized = Quantize(x, block);
    kernels::cuda::BlockMatMul(runtime_.stream(), quantized, view.blocks,
                               own_bias, out);
  }
}

bool CudaProducts::TakesToken(const WeightPart& part, int64_t cols,
                              kernels::cuda::TokenProduct& product) const {
  // Fast norms have another order of sums.
  if (product.y.rows != 1 || HasTiles(part.type) ||
      (fast_ && product.norm != nullptr)) {
    return false;
  }
  const kernels::ExpertWeight view = ViewOf(part, cols);
  if (view.is_plain()) return false;
  product.w = view.blocks;
  product.w.rows = product.y.cols * (product.gate == nullptr ? 1 : 2);
  return kernels::cuda::HasTokenProduct(runtime_.stream(), product);
}

bool CudaProducts::TakesNormed(const WeightPart& part, int64_t cols,
                               kernels::cuda::TokenProduct& product,
                               bool starts) {
  if (product.norm == nullptr || !HasTiles(part.type)) {
    if (!TakesToken(part, cols, product)) return false;
    if (starts) kernels::cuda::StartTokenProduct(runtime_.stream(), product);
    return true;
  }
  kernels::WeightView tiles = TileView(part, cols);
  tiles.rows = product.y.cols * (product.gate == nullptr ? 1 : 2);
  const kernels::cuda::TileNormedProduct normed = {
      product.x, product.rows, product.norm, product.eps,
      tiles,     product.bias, product.gate, product.y};
  if (!kernels::cuda::HasNormedProduct(runtime_.stream(), normed)) return false;
  if (starts) kernels::cuda::StartNormedProduct(runtime_.stream(), normed);
  return true;
}

bool CudaProducts::MultiplyNormed(const NormedRow& x, const Weight& w,
                                  const float* bias, Matrix y) {
  for (const bool starts : {false, true}) {
    int64_t begin = 0;
    for (const WeightPart& part : w.parts) {
      const int64_t rows = std::min(part.rows, y.cols - begin);
      if (rows <= 0) continue;
      kernels::cuda::TokenProduct product;
      product.x = x.x;
      product.rows = x.rows;
      product.norm = x.weight;
      product.eps = x.eps;
      if (bias != nullptr) product.bias = bias + begin;
      product.y = {y.data + begin, y.rows, rows, y.stride};
      begin += rows;
      if (!TakesNormed(part, w.cols, product, starts)) return false;
    }
  }
  return true;
}

bool CudaProducts::MultiplyNormedGated(const NormedRow& x, const Weight& w,
                                       const kernels::Activation& activation,
                                       Matrix y) {
  if (w.parts.size() != 1 || w.rows != 2 * y.cols) return false;
  kernels::cuda::TokenProduct product;
  product.x = x.x;
  product.norm = x.weight;
  product.eps = x.eps;
  product.gate = &activation;
  product.y = y;
  return TakesNormed(w.parts[0], w.cols, product, /*starts=*/true);
}

void CudaProducts::MultiplySharded(ConstMatrix x, const Weight& w,
                                   const kernels::ShardedCols& shards,
                                   std::span<const Matrix> y) {
  const kernels::ExpertWeight view = ViewOf(w);
  if (HasTiles(w.parts[0].type)) {
    return kernels::cuda::TileMatMulSharded(runtime_.stream(), x,
                                            TileView(w.parts[0], w.cols),
                                            shards, y, tile_memory_);
  }
  if (view.is_plain()) {
    return kernels::cuda::MatMulSharded(runtime_.stream(), x, view.plain,
                                        shards, y);
  }
  if (MultiplyTokenSharded(x, w, shards, y)) return;
  const int32_t block = kernels::ActivationBlock(view.blocks.format);
  kernels::cuda::BlockMatMulSharded(runtime_.stream(), Quantize(x, block),
                                    view.blocks, shards, y);
}

bool CudaProducts::MultiplyTokenSharded(ConstMatrix x, const Weight& w,
                                        const kernels::ShardedCols& shards,
                                        std::span<const Matrix> y) {
  for (const bool starts : {false, true}) {
    for (size_t i = 0; i < y.size(); ++i) {
      const kernels::TreeNode node = shards.nodes[i];
      const auto leaves = static_cast<size_t>(node.end - node.begin);
      const kernels::TreeNode whole = {0, node.end - node.begin};
      kernels::cuda::TokenProduct product;
      product.x = x;
      product.shards = {
          shards.bounds.subspan(static_cast<size_t>(node.begin), leaves + 1),
          {&whole, 1}};
      product.y = y[i];
      if (!TakesToken(w.parts[0], w.cols, product)) return false;
      if (starts) kernels::cuda::StartTokenProduct(runtime_.stream(), product);
    }
  }
  return true;
}

bool CudaProducts::IsTiled(const Weight& w) const {
  return w.parts.size() == 1 && HasTiles(w.parts[0].type);
}

bool CudaProducts::AddSharded(ConstMatrix x, const Weight& w,
                              const kernels::ShardedCols& shards,
                              const float* bias, Matrix y) {
  if (w.parts.size() != 1) return false;
  if (IsTiled(w)) {
    return kernels::cuda::TileAddSharded(runtime_.stream(), x,
                                         TileView(w.parts[0], w.cols), shards,
                                         bias, y, tile_memory_);
  }
  kernels::cuda::TokenProduct product;
  product.x = x;
  product.bias = bias;
  product.adds = true;
  product.shards = shards;
  product.y = y;
  if (!TakesToken(w.parts[0], w.cols, product)) return false;
  kernels::cuda::StartTokenProduct(runtime_.stream(), product);
  return true;
}

bool CudaProducts::MultiplyGated(ConstMatrix x, const Weight& w,
                                 const kernels::Activation& activation,
                                 Matrix y) {
  return IsTiled(w) && w.rows == 2 * y.cols &&
         kernels::cuda::TileGatedMatMul(runtime_.stream(), x,
                                        TileView(w.parts[0], w.cols),
                                        activation, y, tile_memory_);
}

void CudaProducts::Embed(const Weight& table, const int32_t* ids, Matrix y) {
  const kernels::ExpertWeight view = ViewOf(table);
  if (HasTiles(table.parts[0].type)) {
    return kernels::cuda::TileEmbed(
        runtime_.stream(), TileView(table.parts[0], table.cols), ids, y);
  }
  if (view.is_plain()) {
    return kernels::cuda::Embed(runtime_.stream(), view.plain, ids, y);
  }
  kernels::cuda::EmbedBlocks(runtime_.stream(), view.blocks, ids, y);
}

}  // namespace sluice
