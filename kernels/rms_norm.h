#ifndef SLUICE_KERNELS_RMS_NORM_H_
#define SLUICE_KERNELS_RMS_NORM_H_

#include "kernels/context.h"
#include "kernels/views.h"

namespace sluice::kernels {

// y[t, i] = (x[t, i] * (1 / sqrt(dot(x[t], x[t]) / cols + eps))) * weight[i],
// every operation rounded once; dot as in matmul.h. weight [cols]. y may be x.
void RmsNorm(const Context& context, ConstMatrix x, const float* weight,
             float eps, Matrix y);

// RmsNorm in place of every head of x [T, heads * head_dim] by itself; weight
// [head_dim].
void RmsNormHeads(const Context& context, Matrix x, int64_t head_dim,
                  const float* weight, float eps);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_RMS_NORM_H_
