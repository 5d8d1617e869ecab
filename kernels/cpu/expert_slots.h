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

// A slot per pair of a row and an expert at hand that the row asks. Experts'
// runs of slots follow one another; rows rise within a run.
struct ExpertSlots {
  std::vector<int32_t> begins;  // [experts + 1]: an expert's run of slots
  std::vector<int32_t> slots;   // [T * per_row]; negative: not at hand
  std::vector<int64_t> askers;  // [slots]: which row asked

  int64_t total() const { return begins.back(); }
  int64_t count(int32_t expert) const {
    return begins[expert + 1] - begins[expert];
  }
};

// Gives every row and asked expert of [first, first + count) a slot.
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
