#ifndef SLUICE_COMMON_COLLECTIVE_SELF_COMMUNICATOR_H_
#define SLUICE_COMMON_COLLECTIVE_SELF_COMMUNICATOR_H_

#include <span>

#include "common/collective/communicator.h"

namespace sluice {

// A group of one rank: joins its own nodes, waits for nobody.
class SelfCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  void ReduceTree(int32_t num_leaves, std::span<const kernels::TreeNode> nodes,
                  std::span<const kernels::ConstMatrix> parts,
                  kernels::Matrix out) override;
  void GatherColumns(kernels::ConstMatrix part, int64_t col_begin,
                     kernels::Matrix out) override;
  void Barrier() override {}
  CollectiveTimes TakeTimes() override { return {}; }
};

}  // namespace sluice

#endif  // SLUICE_COMMON_COLLECTIVE_SELF_COMMUNICATOR_H_
