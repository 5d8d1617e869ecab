#include "tests/cuda_machine/probes/memory_passes.h"

#include <cuda_device/launch.h>

#include "common/base/check.h"

namespace sluice::kernels::cuda {
namespace {

// What one load takes.
struct alignas(16) FourFloats {
  float x, y, z, w;
};

constexpr int kThreadsPerBlock = 256;
constexpr int64_t kMostBlocks = kStreamThreads / kThreadsPerBlock;
// Loads of a thread that are under way together.
constexpr int kAtOnce = 4;

int64_t BlocksFor(int64_t fours) {
  const int64_t blocks =
      (fours + kThreadsPerBlock * kAtOnce - 1) / (kThreadsPerBlock * kAtOnce);
  return blocks < kMostBlocks ? blocks : kMostBlocks;
}

struct ReadKernel {
  static constexpr int kThreads = kThreadsPerBlock;
  struct Args {
    const FourFloats* from;
    int64_t fours;
    float* sums;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t own = block.index() * kThreads + block.thread();
    const int64_t step = block.count() * kThreads;
    float sum = 0.0f;
    for (int64_t i = own; i < a.fours; i += kAtOnce * step) {
      FourFloats values[kAtOnce] = {};
      for (int j = 0; j < kAtOnce; ++j) {
        if (i + j * step < a.fours) values[j] = a.from[i + j * step];
      }
      for (int j = 0; j < kAtOnce; ++j) {
        const FourFloats& v = values[j];
        sum = sum + ((v.x + v.y) + (v.z + v.w));
      }
    }
    a.sums[own] = sum;
  }
};

struct CopyKernel {
  static constexpr int kThreads = kThreadsPerBlock;
  struct Args {
    const FourFloats* from;
    int64_t fours;
    FourFloats* to;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t step = block.count() * kThreads;
    for (int64_t i = block.index() * kThreads + block.thread(); i < a.fours;
         i += kAtOnce * step) {
      FourFloats values[kAtOnce];
      for (int j = 0; j < kAtOnce; ++j) {
        if (i + j * step < a.fours) values[j] = a.from[i + j * step];
      }
      for (int j = 0; j < kAtOnce; ++j) {
        if (i + j * step < a.fours) a.to[i + j * step] = values[j];
      }
    }
  }
};

struct NothingKernel {
  static constexpr int kThreads = kWarpLanes;
  struct Args {};
  static SLUICE_DEVICE void Run(Block&, const Args&) {}
};

struct PassOnKernel {
  static constexpr int kThreads = kWarpLanes;
  static constexpr bool kWaitsItself = true;
  struct Args {
    const uint32_t* from;
    uint32_t* to;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t next = (block.index() + 1) % block.count();
    block.WaitForInputs();
    a.to[block.index() * kThreads + block.lane()] =
        a.from[next * kThreads + block.lane()] + 1;
  }
};

}  // namespace

void ReadAll(Stream stream, const float* from, int64_t floats, float* sums) {
  SLUICE_CHECK(floats % 4 == 0);
  Launch<ReadKernel>(
      stream, BlocksFor(floats / 4), 0,
      {reinterpret_cast<const FourFloats*>(from), floats / 4, sums});
}

void CopyAll(Stream stream, const float* from, int64_t floats, float* to) {
  SLUICE_CHECK(floats % 4 == 0);
  Launch<CopyKernel>(stream, BlocksFor(floats / 4), 0,
                     {reinterpret_cast<const FourFloats*>(from), floats / 4,
                      reinterpret_cast<FourFloats*>(to)});
}

void DoNothing(Stream stream) { Launch<NothingKernel>(stream, 1, 0, {}); }

void PassOn(Stream stream, const uint32_t* from, uint32_t* to, int64_t blocks) {
  Launch<PassOnKernel>(stream, blocks, 0, {from, to});
}

int Multiprocessors(Stream stream) { return LimitsOf(stream).multiprocessors; }

}  // namespace sluice::kernels::cuda
