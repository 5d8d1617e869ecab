#include "kernels/cuda/runtime/launch_graphs.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/runtime/runtime.h"
#include "kernels/cuda/shared/gather.h"
#include "tests/cuda_machine/open_machine.h"

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

// Another library's work on an emulated stream: doubles kFloats values.
struct Doubling {
  float* values;
  int* calls;
};
void Double(void* stream, const void* args) {
  const Doubling doubling = *static_cast<const Doubling*>(args);
  ++*doubling.calls;
  static_cast<Machine*>(stream)->Enqueue([doubling] {
    for (int64_t i = 0; i < kFloats; ++i) doubling.values[i] *= 2;
  });
}

TEST(LaunchGraphsTest, WorkOfOthersHasItsPlaceAmongLaunches) {
  const auto device = OpenMachine(Schedule::kForward);
  const Stream stream = device->stream();
  Matrix rows[3];
  for (Matrix& one : rows) {
    one = {static_cast<float*>(device->Allocate(kBytes)), 1, kFloats, kFloats};
  }
  int calls = 0;
  const auto run = [&](float value, bool gathered, uint64_t alike = 5) {
    const std::vector<float> in(kFloats, value);
    device->CopyIn(in.data(), rows[0].data, {kBytes});
    device->GatherLaunches(gathered, alike);
    TakeRows(stream, rows[0], nullptr, rows[1]);
    device->Enqueue(&Double, Doubling{rows[1].data, &calls});
    TakeRows(stream, rows[1], nullptr, rows[2]);
    device->Enqueue(&Double, Doubling{rows[2].data, &calls});
    device->GatherLaunches(false);
    std::vector<float> out(kFloats);
    device->CopyOut(rows[2].data, out.data(), {kBytes});
    device->Sync();
    EXPECT_EQ(out, std::vector<float>(kFloats, 4 * value));
  };
  run(1, false);
  EXPECT_EQ(calls, 2);
  // Begun one by one, captured, and then what was captured alone.
  for (int i = 2; i <= 6; ++i) run(static_cast<float>(i), true);
  EXPECT_EQ(calls, 2 + 4);
  EXPECT_EQ(device->graph_counts().replayed, 3u);
  device->DropGraphs();
  run(7, true);
  EXPECT_EQ(calls, 2 + 6);
  EXPECT_EQ(device->graph_counts().started, 2u);
  // The same list by another number, and without one.
  run(8, true, 6);
  EXPECT_EQ(device->graph_counts().started, 3u);
  for (int i = 9; i < 12; ++i) run(static_cast<float>(i), true, 0);
  EXPECT_EQ(device->graph_counts().started, 6u);
  EXPECT_EQ(device->graph_counts().captured, 1u);
  // Another list by a number that came.
  std::swap(rows[1], rows[2]);
  run(12, true, 6);
  EXPECT_EQ(device->graph_counts().captured, 2u);
  for (Matrix& one : rows) device->Free(one.data);
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

TEST(LaunchGraphsTest, GraphsWithWorkOfOthersAreBounded) {
  Counter device;
  LaunchGraphs graphs(&device);
  LaunchList list;
  list.Add({.kernel = nullptr}, &device, sizeof(&device));
  EXPECT_TRUE(list.has_work_of_others());
  for (uint64_t i = 1; i <= 2 * LaunchGraphs::kMostAlike; ++i) {
    for (int time = 0; time < 3; ++time) graphs.Begin(list, i);
  }
  EXPECT_EQ(device.most, static_cast<int>(LaunchGraphs::kMostAlike));
  EXPECT_EQ(graphs.counts().started, 2 * LaunchGraphs::kMostAlike);
  EXPECT_EQ(graphs.counts().replayed, 2 * LaunchGraphs::kMostAlike);
  graphs.Drop();
  EXPECT_EQ(device.alive, 0);
  list.Clear();
  EXPECT_FALSE(list.has_work_of_others());
}

}  // namespace
}  // namespace sluice::kernels::cuda
