#ifndef SLUICE_COMMON_DEVICE_CPU_WEIGHT_PRODUCTS_H_
#define SLUICE_COMMON_DEVICE_CPU_WEIGHT_PRODUCTS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/device/weight.h"
#include "common/tensor/buffer.h"
#include "kernels/experts.h"
#include "kernels/matmul.h"
#include "kernels/quantized_buffer.h"

namespace sluice {

// Products with weights of any type. Plain parts are multiplied with F32
// activations (kernels/matmul.h), blocks with activations of eight bits
// (kernels/block_matmul.h), which are quantised once per row and block size,
// or, as DotContext::activations says, are widened for F32 ones
// (kernels/wide_matmul.h). A quantised row with a NaN or an infinity gives NaN,
// so its sequence fails, and no other. Used by one thread.
class WeightProducts {
 public:
  WeightProducts(const kernels::Context& plain, const kernels::DotContext& dot)
      : plain_(plain), dot_(dot) {}

  // y[t, r] = dot(x[t, :], w[r, :]) + bias[r] for the first y.cols rows of w;
  // bias may be null.
  void Multiply(kernels::ConstMatrix x, const Weight& w, const float* bias,
                kernels::Matrix y);
  // As kernels::MatMulSharded. Bounds are multiples of the type's cut unit.
  void MultiplySharded(kernels::ConstMatrix x, const Weight& w,
                       const kernels::ShardedCols& shards,
                       std::span<const kernels::Matrix> y);
  // y[t] = row ids[t] of `table`, as F32.
  void Embed(const Weight& table, const int32_t* ids, kernels::Matrix y);

 private:
  const kernels::Context plain_;
  const kernels::DotContext dot_;
  kernels::QuantizedBuffer quantized_;
};

// Returns the kernels' view of a part of a weight of `cols` columns, or of a
// weight of one part.
kernels::ExpertWeight ViewOf(const WeightPart& part, int64_t cols);
kernels::ExpertWeight ViewOf(const Weight& weight);

// Returns the bytes of a part in the layout of the products, blocks packed.
Buffer PackPart(HostWeight part);

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CPU_WEIGHT_PRODUCTS_H_
