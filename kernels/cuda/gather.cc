#include "kernels/cuda/gather.h"

#include "common/base/check.h"
#include "kernels/cuda/tree_sum.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kGatherThreads = 128;
constexpr int kFewParts = 64;
constexpr int kMostParts = 1024;  // a kernel's arguments are below 32 KB
constexpr int kMostOuts = 16;

// A block per row.
struct TakeKernel {
  static constexpr int kThreads = kGatherThreads;
  struct Args {
    ConstMatrix x;
    const int32_t* rows;
    Matrix y;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t t = block.index();
    const float* x =
        a.x.data + (a.rows == nullptr ? t : a.rows[t]) * a.x.stride;
    float* y = a.y.data + t * a.y.stride;
    for (int64_t i = block.thread(); i < a.y.cols; i += kThreads) y[i] = x[i];
  }
};

// A block per row.
struct FillKernel {
  static constexpr int kThreads = kGatherThreads;
  struct Args {
    float value;
    Matrix y;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    float* y = a.y.data + block.index() * a.y.stride;
    for (int64_t i = block.thread(); i < a.y.cols; i += kThreads) {
      y[i] = a.value;
    }
  }
};

// A thread per element.
template <int kParts>
struct JoinNodesKernel {
  static constexpr int kThreads = kGatherThreads;
  struct Args {
    int32_t num_parts;
    int32_t num_outs;
    int64_t begin;
    int64_t cols;
    int64_t elements;
    int32_t leaves[kParts];
    const float* parts[kParts];
    int64_t part_strides[kParts];
    float* outs[kMostOuts];
    int64_t out_strides[kMostOuts];
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t n = block.index() * kThreads + block.thread();
    if (n >= a.elements) return;
    const int64_t row = n / a.cols;
    const int64_t column = a.begin + n % a.cols;
    TreeSum sum;
    for (int32_t i = 0; i < a.num_parts; ++i) {
      sum.Add(a.leaves[i], a.parts[i][row * a.part_strides[i] + column]);
    }
    const float root = sum.Root();
    for (int32_t o = 0; o < a.num_outs; ++o) {
      a.outs[o][row * a.out_strides[o] + column] = root;
    }
  }
};

template <int kParts>
void StartJoin(Stream stream, std::span<const NodeRows> parts, int64_t begin,
               int64_t end, std::span<const Matrix> outs) {
  typename JoinNodesKernel<kParts>::Args args = {};
  args.num_parts = static_cast<int32_t>(parts.size());
  args.num_outs = static_cast<int32_t>(outs.size());
  args.begin = begin;
  args.cols = end - begin;
  args.elements = args.cols * outs[0].rows;
  int32_t leaf = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    SLUICE_CHECK(parts[i].node.begin == leaf);
    leaf = parts[i].node.end;
    args.leaves[i] = parts[i].node.begin;
    args.parts[i] = parts[i].rows.data;
    args.part_strides[i] = parts[i].rows.stride;
  }
  for (size_t o = 0; o < outs.size(); ++o) {
    args.outs[o] = outs[o].data;
    args.out_strides[o] = outs[o].stride;
  }
  Launch<JoinNodesKernel<kParts>>(
      stream, (args.elements + kGatherThreads - 1) / kGatherThreads, 0, args);
}

}  // namespace

void TakeRows(Stream stream, ConstMatrix x, const int32_t* rows, Matrix y) {
  SLUICE_CHECK(x.cols == y.cols && (rows != nullptr || x.rows == y.rows));
  Launch<TakeKernel>(stream, y.rows, 0, {x, rows, y});
}

void Fill(Stream stream, float value, Matrix y) {
  Launch<FillKernel>(stream, y.rows, 0, {value, y});
}

void JoinNodes(Stream stream, std::span<const NodeRows> parts, int64_t begin,
               int64_t end, std::span<const Matrix> outs) {
  SLUICE_CHECK(!parts.empty() && parts.size() <= kMostParts);
  SLUICE_CHECK(!outs.empty() && outs.size() <= kMostOuts);
  if (parts.size() <= kFewParts) {
    return StartJoin<kFewParts>(stream, parts, begin, end, outs);
  }
  StartJoin<kMostParts>(stream, parts, begin, end, outs);
}

}  // namespace sluice::kernels::cuda
