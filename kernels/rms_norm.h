#ifndef SLUICE_KERNELS_RMS_NORM_H_
#define SLUICE_KERNELS_RMS_NORM_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/context.h"
#include "kernels/reduction_tree.h"
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

// y[t, i] = (c[i] * (1 / sqrt(dot(c, c) / cols + eps))) * weight[i] + bias[i],
// c[i] = x[t, i] - dot(x[t], 1) / cols; weight [cols], bias [cols] or null. y
// may be x.
void LayerNorm(const Context& context, ConstMatrix x, const float* weight,
               const float* bias, float eps, Matrix y);

// Heads of q and k of some shards of attention, as runs of columns of rows of q
// and k [T, (N + K) D]. A key's head is in the shard of its first query head.
struct HeadRuns {
  struct Run {
    int64_t begin = 0;  // columns
    int64_t end = 0;
  };
  int64_t head_dim = 0;
  std::vector<Run> q;  // per shard
  std::vector<Run> k;
};
// parts[i] [T, 2] = the sums of the squares of q and of k over the shards of
// nodes[i] in the order of reduction_tree.h; of a shard dot(head, head) of its
// heads in rising order. Nodes are numbered from the first shard of `runs`.
void HeadSquares(const Context& context, ConstMatrix x, const HeadRuns& runs,
                 std::span<const TreeNode> nodes,
                 std::span<const Matrix> parts);

// x[t, i] = (x[t, i] * (1 / sqrt(squares[t] / count + eps))) * weight[i]: the
// RMS norm of rows of `count` elements, of which x has some. weight [cols];
// squares has a stride of its own.
struct RowSquares {
  const float* data = nullptr;
  int64_t stride = 0;
  int64_t count = 0;
};
void RmsNormBySquares(const Context& context, Matrix x,
                      const RowSquares& squares, const float* weight,
                      float eps);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_RMS_NORM_H_
