#ifndef SLUICE_KERNELS_EXP_LOG_H_
#define SLUICE_KERNELS_EXP_LOG_H_

namespace sluice::kernels {

// Our own exponential, the same bits on every instruction set: round(x/ln2)
// by the nearest-even trick, two-step reduction, polynomial in fused
// multiply-adds, exponent put in by integers. Relative error below 2^-22;
// Exp(x) = 0 below -104, +inf above 88.73; Exp(NaN) = NaN.
float Exp(float x);

// Natural logarithm of a positive finite x, the same bits everywhere.
double Log(double x);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_EXP_LOG_H_
