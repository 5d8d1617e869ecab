#ifndef SLUICE_KERNELS_CPU_EXPERT_SLOTS_H_
#define SLUICE_KERNELS_CPU_EXPERT_SLOTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/context.h"
#include "kernels/experts.h"
#include "kernels/reduction_tree.h"
#include "kernels/views.h"

namespace sluice::kernels::cpu {

// A slot for each pair of a row and a local expert that the row is routed to.
// The slots of an expert are a run, the runs follow one another, and rows rise
// within a run.
struct ExpertSlots {
  std::vector<int32_t> begins;  // [experts + 1]: an expert's run of slots
  std::vector<int32_t> slots;   // [T * per_row]; negative: remote
  std::vector<int64_t> rows;    // [slots]: the slot's row

  int64_t total() const { return begins.back(); }
  int64_t count(int32_t expert) const {
    return begins[expert + 1] - begins[expert];
  }
};

// Gives a slot to every row and expert of [first, first + count) that the row
// is routed to.
void AssignSlots(const ExpertRows& rows, int32_t first, int32_t count,
                 ExpertSlots& slots);

// parts[i][t] = the tree's node nodes[i] for row t, from the slots' outputs
// [slots, H], which are overwritten; experts.h has the arithmetic.
void FinishNodes(const Context& context, const ExpertRows& rows,
                 const ExpertSlots& slots, Matrix outputs,
                 std::span<const TreeNode> nodes,
                 std::span<const Matrix> parts);

}  // namespace sluice::kernels::cpu

#endif  // SLUICE_KERNELS_CPU_EXPERT_SLOTS_H_
