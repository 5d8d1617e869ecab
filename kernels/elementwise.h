#ifndef SLUICE_KERNELS_ELEMENTWISE_H_
#define SLUICE_KERNELS_ELEMENTWISE_H_

#include <cstdint>

#include "kernels/context.h"
#include "kernels/views.h"

namespace sluice::kernels {

// What stands between the two products of an MLP: act(gate) * up.
struct Activation {
  enum class Kind : uint8_t { kSilu, kClampedSwiGlu };
  Kind kind = Kind::kSilu;
  float limit = 0;  // of kClampedSwiGlu
  bool operator==(const Activation&) const = default;
};

// y[t, i] = Silu(gate) * up with gate = x[t, i], up = x[t, i + F].
// x [T, 2F] (gate columns first), y [T, F].
// Silu(g) = g / (1 + Exp(-g)).
void SiluMul(const Context& context, ConstMatrix x, Matrix y);

// y[t, i] = g / (1 + Exp(-1.702 g)) * (u + 1): g = x[t, i] not above limit, u
// = x[t, i + F] within [-limit, limit]. Shapes as in SiluMul. gpt-oss's.
void ClampedSwiGlu(const Context& context, ConstMatrix x, float limit,
                   Matrix y);

// x[t, i] += y[t, i].
void Add(const Context& context, ConstMatrix y, Matrix x);

// y[t, :] = row ids[t] of table [V, H], widened to F32. Ids are in range.
void Embed(const Context& context, const WeightView& table, const int32_t* ids,
           Matrix y);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_ELEMENTWISE_H_
