// What a device notes of collectives: on the machine that stands for a GPU, or
// on a GPU.
#include "common/device/cuda/collective_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/device/cuda/cuda_memory.h"
#include "kernels/cuda/runtime/runtime.h"

namespace sluice {
namespace {

constexpr auto kReduce = &CollectiveTimes::reduce_ns;
constexpr auto kGather = &CollectiveTimes::gather_ns;

// Copies stand for collectives.
class CollectiveClockTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = size_t{16} << 20;

  void SetUp() override {
    std::string error;
    device_ = kernels::cuda::Runtime::Open(0, &error);
    if (device_ == nullptr) GTEST_SKIP() << error;
    memory_ = std::make_unique<GrowingMemory>(device_.get());
    memory_->AtLeast(kBytes);
  }
  void Copy() {
    device_->CopyIn(values_.data(), memory_->AtLeast(kBytes), {kBytes});
  }
  void Collect(CollectiveClock& clock, CollectiveClock::Kind kind) {
    clock.Begin(kind);
    Copy();
    clock.End();
  }

  std::vector<std::byte> values_{kBytes};
  std::unique_ptr<kernels::cuda::Runtime> device_;
  std::unique_ptr<GrowingMemory> memory_;
};

TEST_F(CollectiveClockTest, StepsThatOverlapHaveTimesOfTheirOwn) {
  const int64_t start = MonotonicNanos();
  CollectiveClock clock(device_.get(), 4);
  Collect(clock, kReduce);
  clock.SubmitStep();
  const uint64_t first = device_->Mark();
  Collect(clock, kGather);
  Collect(clock, kGather);
  clock.NoteWait(7);
  clock.SubmitStep();
  device_->WaitFor(first);
  const CollectiveTimes one = clock.TakeTimes();
  device_->Sync();
  const CollectiveTimes two = clock.TakeTimes();
  EXPECT_GT(one.reduce_ns, 0);
  EXPECT_EQ(one.gather_ns, 0);
  EXPECT_EQ(one.wait_ns, 0);
  EXPECT_EQ(two.reduce_ns, 0);
  EXPECT_GT(two.gather_ns, 0);
  EXPECT_EQ(two.wait_ns, 7);
  EXPECT_TRUE(one.measured && two.measured);
  EXPECT_LT(one.reduce_ns + two.gather_ns, MonotonicNanos() - start);
}

TEST_F(CollectiveClockTest, TimeBeginsWhereACollectiveDidFirst) {
  CollectiveClock clock(device_.get(), 2);
  clock.Begin(kReduce);
  Copy();
  clock.Begin(kGather);
  clock.End();
  clock.End();
  clock.SubmitStep();
  device_->Sync();
  const CollectiveTimes times = clock.TakeTimes();
  EXPECT_GT(times.reduce_ns, 0);
  EXPECT_EQ(times.gather_ns, 0);
}

TEST_F(CollectiveClockTest, WhatLiesBetweenCollectivesIsNoTimeOfTheirs) {
  CollectiveClock clock(device_.get(), 2);
  Copy();
  device_->Sync();
  // The least of some: the machine's other work may fall into a collective.
  double least = 1;
  for (int i = 0; i < 5; ++i) {
    const int64_t start = MonotonicNanos();
    clock.Begin(kReduce);
    clock.End();
    for (int n = 0; n < 16; ++n) Copy();
    Collect(clock, kGather);
    clock.SubmitStep();
    device_->Sync();
    const auto all = static_cast<double>(MonotonicNanos() - start);
    const CollectiveTimes times = clock.TakeTimes();
    EXPECT_GE(times.reduce_ns, 0);
    const auto own = static_cast<double>(times.reduce_ns + times.gather_ns);
    least = std::min(least, own / all);
  }
  EXPECT_LT(least, 0.5);
}

TEST_F(CollectiveClockTest, AStepOfMoreCollectivesThanMomentsIsNotMeasured) {
  CollectiveClock clock(device_.get(), 2);
  for (int step = 0; step < 3; ++step) {
    const int collectives = step == 1 ? 3 : 2;
    for (int i = 0; i < collectives; ++i) Collect(clock, kReduce);
    clock.SubmitStep();
    device_->Sync();
    EXPECT_EQ(clock.TakeTimes().measured, step != 1);
  }
  // Places of a step that is not taken are not free.
  for (int step = 0; step < 2; ++step) {
    Collect(clock, kReduce);
    Collect(clock, kReduce);
    clock.SubmitStep();
  }
  device_->Sync();
  EXPECT_TRUE(clock.TakeTimes().measured);
  EXPECT_FALSE(clock.TakeTimes().measured);
}

TEST_F(CollectiveClockTest, AStepThatSkipsACollectiveIsNotMeasured) {
  CollectiveClock clock(device_.get(), 2);
  for (const bool skips : {true, false}) {
    Collect(clock, kReduce);
    if (skips) clock.Skip();
    clock.SubmitStep();
    device_->Sync();
    EXPECT_EQ(clock.TakeTimes().measured, !skips);
  }
}

}  // namespace
}  // namespace sluice
