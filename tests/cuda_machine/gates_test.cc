// Copies that a block waits for at gates, on the machine that stands for a GPU:
// what they bring, and what of a kernel's mistakes with them is found.
#include <cuda_device/gates.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::kernels::cuda {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kGateThreads = 64;
constexpr int kGateWarps = kGateThreads / kWarpLanes;
constexpr int kOwnWords = 8;

alignas(16) constexpr uint32_t kFrom[3 * kOwnWords * kGateWarps] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
    32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47};

// Runs fn(block, gates, to) on a block with a gate that all warps open, and
// memory for what they bring in a use and four words; returns the first fault.
template <typename F>
std::string FaultAtGates(Schedule schedule, const F& fn) {
  Machine machine(schedule);
  machine.Run(1, kGateThreads, 4096, [&](int thread) {
    Block block(&machine, thread);
    const auto to = block.Allocate<uint32_t>(kOwnWords * kGateWarps + 4);
    Gates gates(block, 1, kGateWarps);
    fn(block, gates, to);
  });
  return machine.faults().empty() ? "" : machine.faults()[0];
}

// Has the warp bring its words of use `use`.
void Bring(Block& block, Gates& gates, const Shared<uint32_t>& to, int use) {
  const int own = block.warp() * kOwnWords;
  gates.Open(block, 0, kOwnWords * 4);
  gates.Copy(block, 0, to, own, kFrom + use * kOwnWords * kGateWarps + own,
             kOwnWords);
}

class GatesTest : public testing::TestWithParam<Schedule> {};

TEST_P(GatesTest, ArePassedOnceWhatEveryWarpBringsIsThere) {
  const auto bring = [](Block& block, Gates& gates,
                        const Shared<uint32_t>& to) {
    gates.Wait(block, 0, 1);  // as if a use before the first were done
    for (int use = 0; use < 3; ++use) {
      Bring(block, gates, to, use);
      gates.Open(block, 0, 0);
      gates.Copy(block, 0, to, 0, kFrom, 0);
      block.Sync();
      for (int i = 0; i < 2; ++i) gates.Wait(block, 0, use % 2);
      const int last = kOwnWords * kGateWarps - 1;
      EXPECT_EQ(to.Get(last), kFrom[use * kOwnWords * kGateWarps + last]);
      block.Sync();
    }
  };
  EXPECT_THAT(FaultAtGates(GetParam(), bring), IsEmpty());
}

TEST_P(GatesTest, NothingIsThereWithoutAWait) {
  const auto bring = [](Block& block, Gates& gates,
                        const Shared<uint32_t>& to) {
    Bring(block, gates, to, 0);
    block.Sync();
    to.Get(3);
  };
  EXPECT_THAT(FaultAtGates(GetParam(), bring), HasSubstr("not written"));
}

TEST_P(GatesTest, ACopyOverWhatOthersReadIsFound) {
  const auto bring = [](Block& block, Gates& gates,
                        const Shared<uint32_t>& to) {
    to.Set(block.thread() % 16, 5);
    block.SyncWarp();
    block.Sync();
    to.Get(12);
    Bring(block, gates, to, 0);
  };
  EXPECT_THAT(FaultAtGates(GetParam(), bring), HasSubstr("barrier"));
}

TEST_P(GatesTest, GatesThatNotAllOpenAsTheySayAreFound) {
  const auto wait = [](Block& block, Gates& gates, const Shared<uint32_t>&) {
    if (block.warp() == 0) gates.Open(block, 0, 0);
    block.Sync();
    gates.Wait(block, 0, 0);
  };
  EXPECT_THAT(FaultAtGates(GetParam(), wait), HasSubstr("not all opened"));
  const auto fewer = [](Block& block, Gates& gates,
                        const Shared<uint32_t>& to) {
    Bring(block, gates, to, 0);
    if (block.warp() == 0) {
      gates.Copy(block, 0, to, kOwnWords * kGateWarps, kFrom, 4);
    }
    block.Sync();
    gates.Wait(block, 0, 0);
  };
  EXPECT_THAT(FaultAtGates(GetParam(), fewer), HasSubstr("more copies"));
  const auto twice = [](Block& block, Gates& gates, const Shared<uint32_t>&) {
    for (int i = 0; i < 2; ++i) gates.Open(block, 0, 16);
  };
  EXPECT_THAT(FaultAtGates(GetParam(), twice), HasSubstr("that is open"));
}

TEST_P(GatesTest, CopiesOfAlignedSixteensOfBytesAlone) {
  const auto bring = [](int at, int from, int count) {
    return [=](Block& block, Gates& gates, const Shared<uint32_t>& to) {
      if (block.warp() == 0) gates.Copy(block, 0, to, at, kFrom + from, count);
    };
  };
  EXPECT_THAT(FaultAtGates(GetParam(), bring(4, 8, 4)), IsEmpty());
  for (const auto& wrong : {bring(1, 0, 4), bring(0, 2, 4), bring(0, 0, 6)}) {
    EXPECT_THAT(FaultAtGates(GetParam(), wrong), HasSubstr("sixteens"));
  }
}

INSTANTIATE_TEST_SUITE_P(, GatesTest,
                         testing::Values(Schedule::kForward,
                                         Schedule::kBackward));

}  // namespace
}  // namespace sluice::kernels::cuda
