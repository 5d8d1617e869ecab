#ifndef SLUICE_KERNELS_CUDA_EXPERTS_H_
#define SLUICE_KERNELS_CUDA_EXPERTS_H_

#include <cuda_device/device.h>

#include <cstdint>
#include <span>

#include "kernels/cuda/fast/products.h"
#include "kernels/experts.h"

namespace sluice::kernels::cuda {

// The largest call of ExpertNodes.
struct ExpertShape {
  int64_t tokens = 0;
  int32_t per_row = 0;
  int32_t experts = 0;
  int64_t hidden = 0;  // H
  int64_t mlp = 0;     // F
  int64_t pairs() const { return tokens * per_row; }
};

// Bytes of a call's memory.
int64_t ExpertBytes(const ExpertShape& shape);

// What a call has on the device: the addresses of the experts' packed or plain
// weights, one per expert of an ExpertsView, and memory, 64-byte aligned.
struct ExpertTable {
  const void* const* gate_up = nullptr;
  const void* const* down = nullptr;
  void* memory = nullptr;
  int64_t bytes = 0;  // at least ExpertBytes
  // Weights of types that have tiles (fast/weight_layout.h) are tiles, and
  // products with them those of fast/products.h.
  bool tiles = false;
  TileMemory tile_memory;  // of these products
  // What Route made of the call's ids; no groups: the call makes it.
  ExpertPlan plan;
};

// experts.h's ExpertNodes on a stream, with its contract and its bits. A
// kernel gives every pair of a row and an expert a slot and makes the list of
// groups of rows that read a weight together; the products walk that list, be
// it one row or a whole prompt. `experts` and the lists of nodes and outputs
// are the host's, all that they point to is the device's.
void ExpertNodes(Stream stream, const ExpertsView& experts,
                 const ExpertTable& table, const ExpertRows& rows,
                 std::span<const TreeNode> nodes,
                 std::span<const Matrix> parts);

// Where the sum over all of `experts` goes: x += node + more, node first.
struct ExpertSum {
  TreeNode node;
  ConstMatrix more;  // no data: none
  Matrix x;
};
// The same of one node, added at once.
void AddExperts(Stream stream, const ExpertsView& experts,
                const ExpertTable& table, const ExpertRows& rows,
                const ExpertSum& sum);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_EXPERTS_H_
