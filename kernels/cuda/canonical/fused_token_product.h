#ifndef SLUICE_KERNELS_CUDA_CANONICAL_FUSED_TOKEN_PRODUCT_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_FUSED_TOKEN_PRODUCT_H_

#include <cuda_device/device.h>

#include "kernels/block_pack.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/views.h"

namespace sluice::kernels::cuda {

// A canonical product of one token, from its row of floats on: what RmsNorm,
// QuantizeRows, BlockMatMulSharded of one node, and Add or SiluMul do with it
// one after the other, bit for bit, in one launch. All memory but `shards` is
// the device's.
struct TokenProduct {
  ConstMatrix x;  // [1, w.cols]
  // x is [.., w.cols], of which rows[0] is taken; null: its first row. Read
  // before the kernel waits for its inputs, as a step's other lists are: the
  // first launch of a list places them.
  const int32_t* rows = nullptr;
  const float* norm = nullptr;  // of x, with `eps`; null: none
  float eps = 0;
  BlockWeight w;
  const float* bias = nullptr;  // [w.rows] or null
  // y [1, w.rows / 2] = the activation of columns r, r + w.rows / 2. Null: none
  const Activation* gate = nullptr;
  bool adds = false;  // y += in the place of y =
  // Of one node, from a multiple of 256 columns on. Empty: one of all columns,
  // without a tree.
  ShardedCols shards;
  Matrix y;
};

// Whether there is a kernel: where Unconfirmed::kTokenProduct is asked for, of
// aligned rows that fit into a block's shared memory, normed ones with their
// floats. 99 KB are enough for 4,096 columns.
bool HasTokenProduct(Stream stream, const TokenProduct& product);

// Starts a product that HasTokenProduct.
void StartTokenProduct(Stream stream, const TokenProduct& product);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_FUSED_TOKEN_PRODUCT_H_
