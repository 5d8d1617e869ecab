#ifndef SLUICE_KERNELS_CUDA_SHARED_EXPERT_SUMS_H_
#define SLUICE_KERNELS_CUDA_SHARED_EXPERT_SUMS_H_

#include <cuda_device/device.h>
#include <cuda_device/launch.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/shared/row_quads.h"
#include "kernels/cuda/shared/tree_sum.h"
#include "kernels/reduction_tree.h"

namespace sluice::kernels::cuda {

// Joins of experts' outputs in the tree over ids.

inline constexpr int kFinishThreads = 128;
inline constexpr int kMostFinished = 64;  // nodes of one launch

struct FinishArgs {
  const int32_t* ids;    // [tokens, per_row]
  const float* weights;  // the same
  // The same; negative: remote. Null: pairs are in the order of their slots.
  const int32_t* slots;
  int32_t per_row;
  int32_t num_nodes;
  const float* outputs;  // [slots, hidden]
  int64_t hidden;
  int64_t quads;  // outputs, all y and `more` have them
  int64_t adds;   // y += the node's sum, of one node
  // [tokens, hidden], which is added to the sum of one node; null: none.
  const float* more;
  int64_t more_stride;
  TreeNode nodes[kMostFinished];
  float* y[kMostFinished];
  int64_t stride[kMostFinished];
};
static_assert(std::has_unique_object_representations_v<FinishArgs>);

SLUICE_DEVICE int32_t SlotOf(const FinishArgs& a, int64_t pair) {
  return a.slots == nullptr ? static_cast<int32_t>(pair) : a.slots[pair];
}

// A block per piece of a row with at most kMost experts, whose outputs are all
// on their way at once.
template <int kMost>
struct FinishFewKernel {
  static constexpr int kThreads = kFinishThreads;
  using Own = OwnFour<kThreads>;
  using Args = FinishArgs;
  struct Pairs {
    int32_t ids[kMost];
    float weights[kMost];
    Quad outputs[kMost];
  };
  // What one node's sum is added to, and what is added to it.
  struct Addends {
    Quad y;
    Quad more;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto piece = RowPiece<kThreads>::Of(block, a.hidden);
    const Own own(block, piece.begin, a.hidden, a.quads != 0);
    Addends addends = {};
    if (a.adds != 0) addends.y = own.Load(RowOf(a, 0, piece.row));
    if (a.more != nullptr) {
      addends.more = own.Load(a.more + piece.row * a.more_stride);
    }
    Pairs pairs = {};
    Load(a, piece.row, own, pairs);
    for (int32_t n = 0; n < a.num_nodes; ++n) {
      QuadTreeSum<kMost> sum;
      SLUICE_UNROLL
      for (int i = 0; i < kMost; ++i) {
        const int32_t id = pairs.ids[i];
        if (i >= a.per_row || id < a.nodes[n].begin || id >= a.nodes[n].end) {
          continue;
        }
        Quad value = pairs.outputs[i];
        SLUICE_UNROLL
        for (int c = 0; c < 4; ++c) {
          value.values[c] = value.values[c] * pairs.weights[i];
        }
        sum.Add(id, value);
      }
      const Quad none = {{-0.0f, -0.0f, -0.0f, -0.0f}};
      Quad all = sum.empty() ? none : sum.Root();
      if (a.more != nullptr) all = AddQuads(all, addends.more);
      if (a.adds != 0) all = AddQuads(addends.y, all);
      own.Store(RowOf(a, n, piece.row), all);
    }
  }
  static SLUICE_DEVICE float* RowOf(const Args& a, int32_t n, int64_t row) {
    return a.y[n] + row * a.stride[n];
  }
  static SLUICE_DEVICE void Load(const Args& a, int64_t row, const Own& own,
                                 Pairs& pairs) {
    int32_t slots[kMost];
    SLUICE_UNROLL
    for (int i = 0; i < kMost; ++i) {
      slots[i] = -1;
      if (i >= a.per_row) continue;
      slots[i] = SlotOf(a, row * a.per_row + i);
      pairs.ids[i] = a.ids[row * a.per_row + i];
      pairs.weights[i] = a.weights[row * a.per_row + i];
    }
    SLUICE_UNROLL
    for (int i = 0; i < kMost; ++i) {
      if (slots[i] < 0) continue;
      pairs.outputs[i] = own.Load(a.outputs + slots[i] * a.hidden);
    }
  }
};

// A thread per element of a row.
struct FinishKernel {
  static constexpr int kThreads = kFinishThreads;
  using Args = FinishArgs;
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto index = static_cast<uint32_t>(block.index());
    const auto per_row =
        static_cast<uint32_t>((a.hidden + kThreads - 1) / kThreads);
    const int64_t row = index / per_row;
    const int64_t column = index % per_row * int64_t{kThreads} + block.thread();
    if (column >= a.hidden) return;
    for (int32_t n = 0; n < a.num_nodes; ++n) {
      TreeSum sum;
      for (int64_t i = row * a.per_row; i < (row + 1) * a.per_row; ++i) {
        const int32_t id = a.ids[i];
        if (id < a.nodes[n].begin || id >= a.nodes[n].end) continue;
        const float output = a.outputs[SlotOf(a, i) * a.hidden + column];
        sum.Add(id, output * a.weights[i]);
      }
      float value = sum.empty() ? -0.0f : sum.Root();
      if (a.more != nullptr) {
        value = value + a.more[row * a.more_stride + column];
      }
      float& y = a.y[n][row * a.stride[n] + column];
      y = a.adds != 0 ? y + value : value;
    }
  }
};

inline void FinishExperts(Stream stream, int64_t tokens,
                          const FinishArgs& args) {
  const int64_t pieces = RowPiece<kFinishThreads>::Blocks(tokens, args.hidden);
  if (args.per_row <= 4) {
    return Launch<FinishFewKernel<4>>(stream, pieces, 0, args);
  }
  if (args.per_row <= 8) {
    return Launch<FinishFewKernel<8>>(stream, pieces, 0, args);
  }
  const int64_t blocks = (args.hidden + kFinishThreads - 1) / kFinishThreads;
  Launch<FinishKernel>(stream, tokens * blocks, 0, args);
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_EXPERT_SUMS_H_
