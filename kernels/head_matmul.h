#ifndef SLUICE_KERNELS_HEAD_MATMUL_H_
#define SLUICE_KERNELS_HEAD_MATMUL_H_

#include <cstdint>
#include <span>

#include "kernels/block_matmul.h"
#include "kernels/context.h"
#include "kernels/experts.h"
#include "kernels/views.h"

namespace sluice::kernels {

// Products of heads, each with a weight of its own: for head h, y[t, h y_step +
// r] = dot(x[t, h x_step ...], w_h[r, :]). All weights have the same shape.
// Products are matmul.h's, or with weights of blocks, as `dot` says,
// wide_matmul.h's, or block_matmul.h's of x quantised head by head; a head of a
// row that is not finite becomes NaN there.
// `x` [T, cols] and `y` [T, rows] are those of head 0. y must not overlap x.
// Heads share the team. Both contexts have one executor.
struct HeadProducts {
  std::span<const ExpertWeight> weights;
  ConstMatrix x;
  int64_t x_step = 0;
  Matrix y;
  int64_t y_step = 0;
};
void HeadMatMul(const Context& context, const DotContext& dot,
                const HeadProducts& heads);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_HEAD_MATMUL_H_
