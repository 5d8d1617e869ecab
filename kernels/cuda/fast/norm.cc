#include "kernels/cuda/fast/norm.h"

#include <cuda_device/launch.h>

#include "common/base/check.h"
#include "kernels/cuda/fast/norm_kernel.h"
#include "kernels/cuda/shared/row_quads.h"

namespace sluice::kernels::cuda {
void TileRmsNorm(Stream stream, ConstMatrix x, const int32_t* rows,
                 const float* weight, float eps, Matrix y) {
  SLUICE_CHECK(x.cols == y.cols && (rows != nullptr || x.rows == y.rows));
  const bool quads =
      HasQuads(x) && HasQuads(y) && HasQuads({weight, 1, x.cols, x.cols});
  WithNormThreads(x.cols, [&](auto kernel) {
    using Kernel = decltype(kernel);
    Launch<Kernel>(
        stream, y.rows, Kernel::kSharedBytes,
        {x, rows, weight, y, eps, static_cast<int32_t>(x.cols), quads ? 1 : 0});
  });
}

}  // namespace sluice::kernels::cuda
