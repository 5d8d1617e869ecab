// Launches that begin before those ahead of them have run: kernels with one
// mistake each, which shows in what they compute, beside kernels without.
#include "tests/cuda_machine/begun_launches.h"

#include <cuda_device/device.h>
#include <cuda_device/gates.h>
#include <cuda_device/launch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::kernels::cuda {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kStepThreads = 64;
constexpr int64_t kStepBlocks = 5;
constexpr size_t kStepBytes = 4096;
constexpr size_t kStepFloats = kStepBlocks * kStepThreads;

struct StepArgs {
  const float* weights;
  const float* in;
  float* out;
};

int PlaceOf(const Block& block) {
  return static_cast<int>(block.index()) * kStepThreads + block.thread();
}

// A kernel that waits itself, out of Step's body.
template <typename Step>
struct Waiting : Step {
  static constexpr int kThreads = kStepThreads;
  static constexpr bool kWaitsItself = true;
  using Args = StepArgs;
};

// out = in + a weight, as a kernel that begins early may do it: with shared
// memory, barriers, exchanges, copies of weights, even through a gate, before.
struct AddWeightStep {
  static void Run(Block& block, const StepArgs& a) {
    const auto copied = block.Allocate<float>(kStepThreads);
    const auto brought = block.Allocate<float>(kStepThreads);
    Gates gates(block, 1, 1);
    block.Prefetch(a.weights, 16);
    if (block.thread() % 4 == 0) {
      block.CopyAsync(copied, block.thread(), a.weights + block.thread());
    }
    if (block.warp() == 0) {
      gates.Open(block, 0, kStepThreads * sizeof(float));
      gates.Copy(block, 0, brought, 0, a.weights, kStepThreads);
    }
    block.Sync();
    EXPECT_EQ(block.Shuffle(block.lane(), 7), 7);
    block.WaitForInputs();
    block.WaitCopies();
    gates.Wait(block, 0, 0);
    block.Sync();
    const float weight = copied.Get(block.thread() ^ 1);
    EXPECT_EQ(weight, brought.Get(block.thread()));
    a.out[PlaceOf(block)] = a.in[PlaceOf(block)] + weight;
  }
};
using AddWeight = Waiting<AddWeightStep>;

// The same of a kernel that begins when those ahead have run.
struct AddWeightLater {
  static constexpr int kThreads = kStepThreads;
  using Args = StepArgs;
  static void Run(Block& block, const Args& a) {
    a.out[PlaceOf(block)] = a.in[PlaceOf(block)] + a.weights[0];
  }
};

// One warp waits, the others wait for that one.
template <bool kBarrier>
struct OneWarpWaits {
  static void Run(Block& block, const StepArgs& a) {
    if (block.warp() == 1) block.WaitForInputs();
    if (kBarrier) block.Sync();
    a.out[PlaceOf(block)] = a.in[PlaceOf(block)] + a.weights[0];
  }
};

struct ReadsEarly {
  static void Run(Block& block, const StepArgs& a) {
    const float value = a.in[PlaceOf(block)];
    block.WaitForInputs();
    a.out[PlaceOf(block)] = value + a.weights[0];
  }
};

struct CopiesEarly {
  static void Run(Block& block, const StepArgs& a) {
    const auto copied = block.Allocate<float>(kStepThreads);
    if (block.thread() % 4 == 0) {
      block.CopyAsync(copied, block.thread(), a.in + PlaceOf(block));
    }
    block.WaitForInputs();
    block.WaitCopies();
    block.Sync();
    a.out[PlaceOf(block)] = copied.Get(block.thread()) + a.weights[0];
  }
};

struct CopiesEarlyThroughAGate {
  static void Run(Block& block, const StepArgs& a) {
    const auto copied = block.Allocate<float>(kStepThreads);
    Gates gates(block, 1, 1);
    if (block.warp() == 0) {
      gates.Open(block, 0, kStepThreads * sizeof(float));
      gates.Copy(block, 0, copied, 0, a.in + PlaceOf(block), kStepThreads);
    }
    block.Sync();
    block.WaitForInputs();
    gates.Wait(block, 0, 0);
    a.out[PlaceOf(block)] = copied.Get(block.thread()) + a.weights[0];
  }
};

// Its own output, before the kernel ahead has read what is there.
struct WritesEarly {
  static void Run(Block& block, const StepArgs& a) {
    a.out[PlaceOf(block)] = 100;
    block.WaitForInputs();
    a.out[PlaceOf(block)] = a.in[PlaceOf(block)] + a.weights[0];
  }
};

struct NeverWaits {
  static void Run(Block&, const StepArgs&) {}
};

// A block with nothing to do ends at once: the launch does not.
struct SomeBlocksWait {
  static void Run(Block& block, const StepArgs& a) {
    if (block.index() > 1) return;
    block.WaitForInputs();
    a.out[PlaceOf(block)] = 1;
  }
};

class BegunLaunchesTest : public testing::TestWithParam<Schedule> {
 protected:
  template <typename K>
  void Add(int from, int to, bool early = true) {
    args_.push_back({weights_, buffers_[from].data(), buffers_[to].data()});
    launches_.push_back({{reinterpret_cast<const void*>(&RunBlocks<K>),
                          kStepBlocks, K::kThreads, kStepBytes},
                         early});
  }
  // Begins the launches, several times with other values; returns whether
  // buffer `last` has each time what the first one had more `steps`.
  bool Adds(int last, int steps) {
    Machine machine(GetParam());
    BegunLaunches begun(&machine);
    bool adds = true;
    for (int round = 1; round <= 8; ++round) {
      const auto value = static_cast<float>(1000 * round);
      buffers_[0].assign(kStepFloats, value);
      for (size_t i = 0; i < launches_.size(); ++i) {
        begun.Add(launches_[i].one, &args_[i], launches_[i].early);
      }
      begun.Finish();
      const std::vector<float> want(kStepFloats,
                                    value + static_cast<float>(steps));
      adds = adds && buffers_[last] == want;
    }
    faults_ = machine.faults();
    return adds;
  }

  struct Launched {
    LaunchList::One one;
    bool early;
  };
  alignas(16) float weights_[kStepThreads] = {};
  std::vector<float> buffers_[5];
  std::vector<StepArgs> args_;
  std::vector<Launched> launches_;
  std::vector<std::string> faults_;

  BegunLaunchesTest() {
    for (float& weight : weights_) weight = 1;
    for (auto& buffer : buffers_) buffer.assign(kStepFloats, -1);
  }
};

TEST_P(BegunLaunchesTest, KernelsThatWaitSeeWhatThoseAheadWrote) {
  Add<AddWeight>(0, 1, false);
  Add<AddWeight>(1, 2);
  Add<AddWeightLater>(2, 3);
  Add<AddWeight>(3, 1);
  Add<Waiting<OneWarpWaits<true>>>(1, 3);
  Add<AddWeight>(3, 4);
  EXPECT_TRUE(Adds(4, 6));
  EXPECT_THAT(faults_, IsEmpty());
}

TEST_P(BegunLaunchesTest, AReadBeforeTheWaitIsFound) {
  Add<AddWeight>(0, 1, false);
  Add<Waiting<ReadsEarly>>(1, 2);
  EXPECT_FALSE(Adds(2, 2));
}

TEST_P(BegunLaunchesTest, AReadOfAKernelFurtherAheadIsFound) {
  Add<AddWeight>(0, 1, false);
  Add<AddWeight>(0, 2);
  Add<Waiting<ReadsEarly>>(1, 3);
  EXPECT_FALSE(Adds(3, 2));
}

TEST_P(BegunLaunchesTest, AReadBehindAnotherWarpsWaitIsFound) {
  Add<AddWeight>(0, 1, false);
  Add<Waiting<OneWarpWaits<false>>>(1, 2);
  EXPECT_FALSE(Adds(2, 2));
}

TEST_P(BegunLaunchesTest, AnAsynchronousCopyBeforeTheWaitIsFound) {
  Add<AddWeight>(0, 1, false);
  Add<Waiting<CopiesEarly>>(1, 2);
  EXPECT_FALSE(Adds(2, 2));
}

TEST_P(BegunLaunchesTest, ACopyThroughAGateBeforeTheWaitIsFound) {
  Add<AddWeight>(0, 1, false);
  Add<Waiting<CopiesEarlyThroughAGate>>(1, 2);
  EXPECT_FALSE(Adds(2, 2));
}

TEST_P(BegunLaunchesTest, AWriteBeforeTheWaitIsFound) {
  Add<AddWeight>(0, 1, false);
  Add<AddWeight>(1, 2);
  Add<Waiting<WritesEarly>>(2, 1);
  EXPECT_FALSE(Adds(2, 2));
}

TEST_P(BegunLaunchesTest, WhatBeginsWhenAllAheadHaveRunMayReadAtOnce) {
  Add<AddWeight>(0, 1, false);
  Add<Waiting<ReadsEarly>>(1, 2, false);
  Add<AddWeight>(2, 3);
  EXPECT_TRUE(Adds(3, 3));
  EXPECT_THAT(faults_, IsEmpty());
}

TEST_P(BegunLaunchesTest, ALaunchThatNeverWaitsIsFound) {
  Add<AddWeight>(0, 1, false);
  Add<Waiting<NeverWaits>>(1, 2);
  Add<AddWeight>(1, 3);
  Adds(3, 2);
  EXPECT_THAT(faults_, Each(HasSubstr("waits for its inputs")));
  EXPECT_EQ(faults_.size(), 8u);
}

TEST_P(BegunLaunchesTest, ALaunchWaitsIfABlockDoes) {
  Add<AddWeight>(0, 1, false);
  Add<Waiting<SomeBlocksWait>>(1, 2);
  Add<AddWeight>(1, 3);
  EXPECT_TRUE(Adds(3, 2));
  EXPECT_THAT(faults_, IsEmpty());
}

TEST_P(BegunLaunchesTest, AKernelAloneHasToWaitToo) {
  Machine machine(GetParam());
  const StepArgs args = {};
  RunBlocks<Waiting<NeverWaits>>(&machine, 3, 0, &args);
  EXPECT_THAT(machine.faults(),
              testing::ElementsAre(HasSubstr(
                  "no thread of a launch of 3 blocks waits for its inputs")));
}

INSTANTIATE_TEST_SUITE_P(, BegunLaunchesTest,
                         testing::Values(Schedule::kForward,
                                         Schedule::kBackward));

TEST(EarlyBeginsTest, TwoLaunchesAndThoseBehindWorkOfOthersBeginAlone) {
  const LaunchList::One kernel = {.threads = 32};
  const LaunchList::One work = {.kernel = &kernel};
  const auto answers = [](const std::vector<LaunchList::One>& list) {
    EarlyBegins begins;
    std::string all;
    for (const LaunchList::One& one : list) {
      all += begins.Next(one) ? 'e' : '-';
    }
    return all;
  };
  EXPECT_EQ(answers({kernel, kernel, kernel, kernel}), "--ee");
  EXPECT_EQ(answers({kernel, work, kernel, kernel}), "---e");
  EXPECT_EQ(answers({work, kernel, kernel}), "--e");
  EXPECT_EQ(answers({kernel, kernel, kernel, work, work, kernel, kernel}),
            "--e---e");
}

}  // namespace
}  // namespace sluice::kernels::cuda
