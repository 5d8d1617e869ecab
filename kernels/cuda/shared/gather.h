#ifndef SLUICE_KERNELS_CUDA_SHARED_GATHER_H_
#define SLUICE_KERNELS_CUDA_SHARED_GATHER_H_

#include <cuda_device/device.h>

#include <cstdint>
#include <span>

#include "kernels/reduction_tree.h"
#include "kernels/views.h"

namespace sluice::kernels::cuda {

// Copies and joins of rows in device memory.

// y[t] = x[rows[t]] for rows of the device, x[t] if `rows` is null.
void TakeRows(Stream stream, ConstMatrix x, const int32_t* rows, Matrix y);
// y = value.
void Fill(Stream stream, float value, Matrix y);

// Words of a bundle, from word `from` on, that go to another place.
struct WordRun {
  uint32_t* to;
  int32_t from;
  int32_t words;
};
inline constexpr int kMostWordRuns = 128;
// A bundle begins with room for so many.
inline constexpr int kBundleWords = kMostWordRuns * sizeof(WordRun) / 4;
// Copies the first `runs` runs of a bundle of the device. What they are is the
// bundle's contents, which may differ where the launch is the same.
void ScatterWords(Stream stream, const uint32_t* bundle, int runs);

// A finished node of the tree and its rows.
struct NodeRows {
  TreeNode node;
  ConstMatrix rows;
};
// Columns [begin, end) of every out = those of the tree's root over the parts,
// in rising order, which cover its leaves once. An out may be one of the parts.
// The lists are the host's; at most 1024 parts and 16 outs.
void JoinNodes(Stream stream, std::span<const NodeRows> parts, int64_t begin,
               int64_t end, std::span<const Matrix> outs);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_GATHER_H_
