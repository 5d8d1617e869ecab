#ifndef SLUICE_KERNELS_ELEMENTWISE_H_
#define SLUICE_KERNELS_ELEMENTWISE_H_

#include <cstdint>

#include "kernels/context.h"
#include "kernels/views.h"

namespace sluice::kernels {

// x > 0: positive x^2 + beta x, else negative (Exp(min(x, eps)) - 1 - x) + beta
// x. Apertus'.
struct XIelu {
  float positive = 0;
  float negative = 0;
  float beta = 0;
  float eps = 0;
  bool operator==(const XIelu&) const = default;
};

// What stands between the two products of an MLP: act(gate) * up, or act(up)
// of an MLP without a gate.
struct Activation {
  enum class Kind : uint8_t {
    kSilu,
    kClampedSwiGlu,
    kGeluTanh,  // g / (1 + Exp(-2 sqrt(2 / pi) (g + 0.044715 g^3)))
    kRelu2,     // max(g, 0)^2
    kXIelu,     // see XIelu
  };
  Kind kind = Kind::kSilu;
  float limit = 0;    // of kClampedSwiGlu
  bool gated = true;  // kSilu and kClampedSwiGlu always are
  XIelu xielu;        // of kXIelu: a layer's weights tell it
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

// y = the activation of x: [T, 2F] with a gate (gate columns first), else [T,
// F]; y [T, F].
void Activate(const Context& context, const Activation& activation,
              ConstMatrix x, Matrix y);

// What Map does to every element, in this order: x * scale, cap * tanh(x / cap)
// unless cap is 0, x within [-clip, clip] unless clip is 0.
struct ElementMap {
  float scale = 1;
  float cap = 0;
  float clip = 0;
  bool is_identity() const { return scale == 1 && cap == 0 && clip == 0; }
};
void Map(const Context& context, const ElementMap& map, Matrix x);

// y[t, i] *= 1 / (1 + Exp(-gate[t])).
void SigmoidGateRows(const Context& context, ConstMatrix gate, Matrix y);

// y[t, i] *= 1 / (1 + Exp(-gate[t, i])).
void SigmoidMul(const Context& context, ConstMatrix gate, Matrix y);

// y[t, i] *= x[t, i].
void Multiply(const Context& context, ConstMatrix x, Matrix y);

// x[t, i] += y[t, i].
void Add(const Context& context, ConstMatrix y, Matrix x);

// y[t, :] = row ids[t] of table [V, H], widened to F32. Ids are in range.
void Embed(const Context& context, const WeightView& table, const int32_t* ids,
           Matrix y);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_ELEMENTWISE_H_
