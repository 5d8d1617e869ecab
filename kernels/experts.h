#ifndef SLUICE_KERNELS_EXPERTS_H_
#define SLUICE_KERNELS_EXPERTS_H_

#include <cstdint>
#include <span>

#include "kernels/block_matmul.h"
#include "kernels/context.h"
#include "kernels/elementwise.h"
#include "kernels/reduction_tree.h"
#include "kernels/views.h"

namespace sluice::kernels {

// The fixed tree over expert ids. A layer of E experts adds their outputs in
// the tree of reduction_tree.h over leaves 0 .. E - 1, each multiplied by the
// router's weight; experts that a row does not go to are skipped. A process
// with a range of ids finishes its aligned nodes; the same tree joins their
// sums, whichever process made them. A node without an expert of a row is -0,
// which added to anything changes nothing: skipping and adding are one.

// A weight of a plain type, or, with a `packed` that is not null, of blocks.
struct ExpertWeight {
  WeightView plain;
  BlockWeight blocks;
  bool is_plain() const { return blocks.packed == nullptr; }
  int64_t rows() const { return is_plain() ? plain.rows : blocks.rows; }
  int64_t cols() const { return is_plain() ? plain.cols : blocks.cols; }
};

// Experts first .. first + gate_up.size() - 1 of one layer.
struct ExpertsView {
  int32_t first = 0;
  // [2F, H] each: gate rows, up rows; without a gate [F, H].
  std::span<const ExpertWeight> gate_up;
  std::span<const ExpertWeight> down;   // [H, F] each
  const float* gate_up_bias = nullptr;  // [n, 2F] or null
  const float* down_bias = nullptr;     // [n, H] or null
  Activation activation;
};

// The rows and their experts: row t of x [T, H] goes to experts ids[t * per_row
// + j], j < per_row, rising and distinct within the row, with these weights.
// Ids of remote experts may be among them.
struct ExpertRows {
  ConstMatrix x;
  const int32_t* ids = nullptr;
  const float* weights = nullptr;
  int32_t per_row = 0;
};

// parts[i][t] = the tree's node nodes[i] for row t: over row t's experts e in
// it, weight * (down_e act(gate_up_e x + bias) + bias), each operation rounded
// once. Products are matmul.h's, or with weights of blocks block_matmul.h's,
// where a row that is not finite becomes NaN, or wide_matmul.h's, as `dot`
// says. nodes: aligned nodes of the layer's tree within the experts at hand,
// rising. parts: [T, H] each, not overlapping x. A row is quantised once for
// all experts. Each expert's weights are read once for all its rows; experts
// share the team, not one after another. Both contexts have one executor.
void ExpertNodes(const Context& context, const DotContext& dot,
                 const ExpertsView& experts, const ExpertRows& rows,
                 std::span<const TreeNode> nodes,
                 std::span<const Matrix> parts);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_EXPERTS_H_
