#ifndef SLUICE_COMMON_COLLECTIVE_COMMUNICATOR_H_
#define SLUICE_COMMON_COLLECTIVE_COMMUNICATOR_H_

#include <cstdint>
#include <span>

#include "kernels/reduction_tree.h"
#include "kernels/views.h"

namespace sluice {

// Where one rank's time in collectives went, nanoseconds.
struct CollectiveTimes {
  int64_t reduce_ns = 0;  // ReduceTree
  int64_t gather_ns = 0;  // GatherColumns
  int64_t wait_ns = 0;    // of both: for the other ranks
};

// What the ranks of one stage say to each other. There is no plain
// all-reduce: sums go through the fixed binary tree of
// kernels/reduction_tree.h, so that any number of ranks gives the same bits.
// Every rank calls the same operations in the same order, each from its own
// thread; an operation returns when this rank may read `out` and may reuse
// its own buffers. One object per rank, used by one thread at a time.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // This rank brings parts[i] [T, H], the finished sum of the tree's node
  // nodes[i]; together the ranks' nodes cover leaves [0, num_leaves) once,
  // each rank's rising, in any order over the ranks. Every rank gets out [T, H]
  // = the root. `out` may be parts[0].
  virtual void ReduceTree(int32_t num_leaves,
                          std::span<const kernels::TreeNode> nodes,
                          std::span<const kernels::ConstMatrix> parts,
                          kernels::Matrix out) = 0;

  // Rank 0 gets, in out, every rank's `part` [T, n] at columns [col_begin,
  // col_begin + n) of out [T, sum of n]; other ranks pass an empty out.
  virtual void GatherColumns(kernels::ConstMatrix part, int64_t col_begin,
                             kernels::Matrix out) = 0;

  // Returns when every rank has called it.
  virtual void Barrier() = 0;

  // This rank's times since the last call, barriers aside. Zero for one rank,
  // which has nobody to wait for.
  virtual CollectiveTimes TakeTimes() = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_COLLECTIVE_COMMUNICATOR_H_
