#include "kernels/cuda/launch_graphs.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/device_host/open_machine.h"
#include "kernels/cuda/gather.h"
#include "kernels/cuda/runtime.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int64_t kFloats = 40;
constexpr size_t kBytes = kFloats * sizeof(float);

// Four launches over fixed buffers: out = the root over four copies of in.
class Sums {
 public:
  Sums() : device_(OpenMachine(Schedule::kForward)) {
    for (float*& buffer : buffers_) {
      buffer = static_cast<float*>(device_->Allocate(kBytes));
    }
    device_->GatherLaunches(true);
  }
  ~Sums() {
    device_->GatherLaunches(false);
    for (float* buffer : buffers_) device_->Free(buffer);
  }

  // Returns 4 x value, of `cols` columns.
  std::vector<float> Run(float value, int64_t cols = kFloats) {
    const std::vector<float> in(kFloats, value);
    device_->CopyIn(in.data(), buffers_[0], {kBytes});
    const ConstMatrix from = {buffers_[0], 1, cols, kFloats};
    std::vector<NodeRows> parts;
    for (int i = 0; i < 4; ++i) {
      const Matrix to = {buffers_[1 + i], 1, cols, kFloats};
      TakeRows(device_->stream(), from, nullptr, to);
      parts.push_back({{i, i + 1}, to});
    }
    const Matrix out = {buffers_[5], 1, cols, kFloats};
    JoinNodes(device_->stream(), parts, 0, cols, {&out, 1});
    std::vector<float> result(static_cast<size_t>(cols));
    device_->CopyOut(out.data, result.data(), {result.size() * sizeof(float)});
    device_->Sync();
    return result;
  }
  const GraphCounts& counts() const { return device_->graph_counts(); }

 private:
  std::unique_ptr<Runtime> device_;
  float* buffers_[6] = {};
};

TEST(LaunchGraphsTest, AListThatComesAgainIsAGraphOverTheSameBuffers) {
  Sums sums;
  for (int i = 1; i <= 6; ++i) {
    const auto value = static_cast<float>(i);
    EXPECT_EQ(sums.Run(value), std::vector<float>(kFloats, 4 * value));
  }
  EXPECT_EQ(sums.counts().started, 1u);
  EXPECT_EQ(sums.counts().captured, 1u);
  EXPECT_EQ(sums.counts().replayed, 4u);
}

TEST(LaunchGraphsTest, OtherArgumentsAreAnotherGraph) {
  Sums sums;
  for (int i = 1; i <= 4; ++i) {
    for (int64_t cols : {3, 40}) {
      const auto value = static_cast<float>(i * cols);
      EXPECT_EQ(sums.Run(value, cols),
                std::vector<float>(static_cast<size_t>(cols), 4 * value));
    }
  }
  EXPECT_EQ(sums.counts().started, 2u);
  EXPECT_EQ(sums.counts().captured, 2u);
  EXPECT_EQ(sums.counts().replayed, 4u);
}

// A device that counts its graphs.
class Counter final : public LaunchGraphs::Device {
 public:
  void Start(const LaunchList&) override {}
  std::shared_ptr<void> Capture(const LaunchList&) override {
    most = std::max(most, ++alive);
    return {this, [this](void*) { --alive; }};
  }
  void Replay(void* graph) override { EXPECT_EQ(graph, this); }
  int alive = 0;
  int most = 0;
};

LaunchList ListOf(uint64_t argument) {
  LaunchList list;
  for (int i = 0; i < 3; ++i) {
    list.Add({nullptr, 1, 32, 0}, &argument, sizeof(argument));
  }
  return list;
}

TEST(LaunchGraphsTest, ManyListsTakeNoMoreThanSoManyGraphs) {
  Counter counter;
  LaunchGraphs graphs(&counter);
  for (uint64_t i = 0; i < 5000; ++i) {
    for (int times = 0; times < 3; ++times) graphs.Begin(ListOf(i));
    graphs.Begin(ListOf(0));  // in use all the time, and so kept
  }
  const size_t most =
      LaunchGraphs::kMostLaunches / (3 + LaunchGraphs::kGraphLaunches);
  EXPECT_LE(counter.most, static_cast<int>(most + 1));
  EXPECT_GT(counter.most, static_cast<int>(most / 2));
  EXPECT_EQ(graphs.counts().started, 5000u);
  EXPECT_EQ(graphs.counts().captured, 5000u);
  EXPECT_EQ(graphs.counts().replayed, 5000u + 5000u);
}

// A step that collectives cut into more lists than there are batch sizes.
TEST(LaunchGraphsTest, AStepOfManyListsIsReplayedWhole) {
  for (const uint64_t lists : {100u, 1500u}) {
    Counter counter;
    LaunchGraphs graphs(&counter);
    for (int round = 0; round < 3; ++round) {
      for (uint64_t i = 0; i < lists; ++i) graphs.Begin(ListOf(i));
    }
    EXPECT_EQ(graphs.counts().started, lists);
    EXPECT_EQ(graphs.counts().captured, lists);
    EXPECT_EQ(graphs.counts().replayed, lists);
  }
}

TEST(LaunchGraphsTest, ListsThatComeOnceLeaveGraphsAlone) {
  Counter counter;
  LaunchGraphs graphs(&counter);
  for (int times = 0; times < 2; ++times) graphs.Begin(ListOf(0));
  for (uint64_t i = 1; i < 20000; ++i) graphs.Begin(ListOf(i));
  graphs.Begin(ListOf(0));
  EXPECT_EQ(graphs.counts().captured, 1u);
  EXPECT_EQ(graphs.counts().replayed, 1u);
  EXPECT_EQ(graphs.counts().started, 20000u);
}

// Bytes between members do not make another list.
TEST(LaunchListTest, ArgumentsAreTheirMembers) {
  struct Arguments {
    int64_t first;
    bool second;
    int32_t third;
  };
  LaunchList lists[2];
  for (int i = 0; i < 2; ++i) {
    Arguments arguments;
    std::memset(static_cast<void*>(&arguments), i == 0 ? 0 : 0xA5,
                sizeof(arguments));
    arguments.first = 1;
    arguments.second = true;
    arguments.third = 2;
    lists[i].AddOf({nullptr, 1, 32, 0}, arguments);
  }
  EXPECT_EQ(lists[0].Hash(), lists[1].Hash());
  EXPECT_TRUE(lists[0] == lists[1]);
}

TEST(LaunchGraphsTest, ShortListsAreLaunched) {
  Counter counter;
  LaunchGraphs graphs(&counter);
  LaunchList list;
  const uint64_t argument = 7;
  for (int i = 0; i < 4; ++i) {
    graphs.Begin(list);
    graphs.Begin(ListOf(1));
  }
  list.Add({nullptr, 1, 32, 0}, &argument, sizeof(argument));
  for (int i = 0; i < 4; ++i) graphs.Begin(list);
  EXPECT_EQ(counter.alive, 1);
  EXPECT_EQ(graphs.counts().started, 5u);
}

}  // namespace
}  // namespace sluice::kernels::cuda
