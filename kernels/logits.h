#ifndef SLUICE_KERNELS_LOGITS_H_
#define SLUICE_KERNELS_LOGITS_H_

#include <cstdint>
#include <span>

#include "kernels/context.h"

namespace sluice::kernels {

// Our own exponential, the same bits on every instruction set: round(x/ln2)
// by the nearest-even trick, two-step reduction, polynomial in fused
// multiply-adds, exponent put in by integers. Relative error below 2^-22;
// Exp(x) = 0 below -104, +inf above 88.73; Exp(NaN) = NaN.
float Exp(float x);

// Natural logarithm of a positive finite x, the same bits everywhere.
double Log(double x);

// Index of the largest element, the lower index on ties. NaN counts as the
// smallest. n >= 1.
int64_t ArgMax(const Context& context, std::span<const float> logits);

// max + Log(sum Exp(x - max)); the sum in 16 lanes i % 16 joined like
// matmul.h's dot product.
float LogSumExp(const Context& context, std::span<const float> logits);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_LOGITS_H_
