#ifndef SLUICE_KERNELS_CUDA_SHARED_ROUTER_PRODUCT_H_
#define SLUICE_KERNELS_CUDA_SHARED_ROUTER_PRODUCT_H_

#include <cuda_device/device.h>
#include <cuda_device/launch.h>

#include <cstdint>

#include "kernels/cuda/shared/expert_groups.h"
#include "kernels/cuda/shared/math.h"
#include "kernels/cuda/shared/row_quads.h"
#include "kernels/views.h"

namespace sluice::kernels::cuda {

// y = x w^T + bias of few tokens and few rows of an F32 weight, as a router
// has: the canonical dot product, whose columns are brought to shared memory
// all at once, so that a chain waits for memory once and not at every batch.
struct FewArgs {
  ConstMatrix x;
  const float* w;  // [rows, x.cols]
  int64_t rows;
  const float* bias;  // or null
  Matrix y;
};

// A row's room in shared memory: the halves of a warp, at the same column of
// two rows, meet in no bank.
SLUICE_DEVICE constexpr int FewRowFloats(int64_t cols) {
  return static_cast<int>((cols + 31) / 32 * 32 + 16);
}

// All threads of a block bring a row to elements `at` on.
SLUICE_DEVICE void BringRow(Block& block, const float* row, int64_t cols,
                            const Shared<float>& to, int at) {
  const int count = static_cast<int>(cols);
  for (int k = 4 * block.thread(); k < count; k += 4 * block.threads()) {
    block.CopyAsync(to, at + k, row + k);
  }
}

// A thread's lane of the canonical dot product of `count` columns of two rows
// in shared memory, from elements a and b on. What is added next is read
// meanwhile.
SLUICE_DEVICE float LaneOfDot(Block& block, const Shared<float>& rows, int a,
                              int b, int count) {
  constexpr int kAtOnce = 12;
  constexpr int kStep = 16 * kAtOnce;
  constexpr int kLast = kStep - 16;
  const auto load = [&](int from, float(&w)[kAtOnce], float(&x)[kAtOnce]) {
    SLUICE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      w[i] = rows.Get(a + from + 16 * i);
      x[i] = rows.Get(b + from + 16 * i);
    }
  };
  float sum = 0.0f;
  int k = block.lane() % 16;
  if (k + kLast < count) {
    float w[kAtOnce];
    float x[kAtOnce];
    load(k, w, x);
    for (k += kStep; k + kLast < count; k += kStep) {
      float next_w[kAtOnce];
      float next_x[kAtOnce];
      load(k, next_w, next_x);
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        sum = Fma(w[i], x[i], sum);
        w[i] = next_w[i];
        x[i] = next_x[i];
      }
    }
    SLUICE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) sum = Fma(w[i], x[i], sum);
  }
  for (; k < count; k += 16) {
    sum = Fma(rows.Get(a + k), rows.Get(b + k), sum);
  }
  return sum;
}

// A block per two rows of w and four tokens: half a warp per pair of them.
struct FewRowsKernel {
  static constexpr int kThreads = 128;
  static constexpr int kRows = 2;
  static constexpr bool kWaitsItself = true;
  static_assert(kThreads / 16 == kRows * kTileTokens);
  using Args = FewArgs;

  static size_t SharedBytes(ConstMatrix x) {
    const int64_t tokens = x.rows < kTileTokens ? x.rows : kTileTokens;
    return static_cast<size_t>(kRows + tokens) *
           static_cast<size_t>(FewRowFloats(x.cols)) * sizeof(float);
  }
  static int64_t RowBlocks(int64_t rows) { return (rows + kRows - 1) / kRows; }
  static int64_t Blocks(const Args& a) {
    return RowBlocks(a.rows) * ((a.x.rows + kTileTokens - 1) / kTileTokens);
  }

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto index = static_cast<uint32_t>(block.index());
    const auto row_blocks = static_cast<uint32_t>((a.rows + kRows - 1) / kRows);
    const int64_t first_row = index % row_blocks * kRows;
    const int64_t first_token = index / row_blocks * kTileTokens;
    const int64_t left = a.x.rows - first_token;
    const int tokens =
        left < kTileTokens ? static_cast<int>(left) : kTileTokens;
    const int step = FewRowFloats(a.x.cols);
    const auto rows = block.Allocate<float>(
        (kRows + (a.x.rows < kTileTokens ? a.x.rows : int64_t{kTileTokens})) *
        step);
    const int own = block.thread() / 16 % kRows;
    const int token = block.thread() / 16 / kRows;
    const bool stores = first_row + own < a.rows && block.lane() % 16 == 0;
    float bias = 0.0f;
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = first_row + r < a.rows ? first_row + r : first_row;
      BringRow(block, a.w + row * a.x.cols, a.x.cols, rows, r * step);
    }
    if (stores && a.bias != nullptr) bias = a.bias[first_row + own];
    block.WaitForInputs();
    for (int t = 0; t < tokens; ++t) {
      BringRow(block, a.x.data + (first_token + t) * a.x.stride, a.x.cols, rows,
               (kRows + t) * step);
    }
    block.WaitCopies();
    block.Sync();
    if (token >= tokens) return;
    const float sum = SumLanes(
        block, LaneOfDot(block, rows, own * step, (kRows + token) * step,
                         static_cast<int>(a.x.cols)));
    if (!stores) return;
    a.y.data[(first_token + token) * a.y.stride + first_row + own] =
        a.bias == nullptr ? sum : sum + bias;
  }
};

// Starts such a product; false, and nothing is started, for others and where
// Unconfirmed::kRouterProduct is not asked for.
inline bool StartFewRows(Stream stream, const FewArgs& args) {
  constexpr int64_t kMostTokens = 32;
  constexpr int64_t kMostRows = 512;
  const DeviceLimits limits = LimitsOf(stream);
  if (!limits.asked.Has(Unconfirmed::kRouterProduct) ||
      args.x.rows > kMostTokens || args.rows > kMostRows || !HasQuads(args.x) ||
      !HasQuads({args.w, args.rows, args.x.cols, args.x.cols}) ||
      FewRowsKernel::SharedBytes(args.x) > limits.shared_bytes) {
    return false;
  }
  Launch<FewRowsKernel>(stream, FewRowsKernel::Blocks(args),
                        FewRowsKernel::SharedBytes(args.x), args);
  return true;
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_ROUTER_PRODUCT_H_
