// Ranks with an emulated GPU each: every way in which their devices reach each
// other gives the bits of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/device/cuda/make_communicators.h"
#include "common/device/cuda/nccl_library.h"
#include "common/device/cuda/step_shapes.h"
#include "tests/cuda_machine/open_machine.h"
#include "tests/device/cuda/emulated_gpus.h"
#include "tests/device/cuda/linked_ranks.h"

namespace sluice::testing {
namespace {

using kernels::AlignedNodes;
using kernels::TreeNode;
using ::testing::HasSubstr;

class LinkTest : public ::testing::TestWithParam<const char*> {
 protected:
  CommunicatorOptions options() const {
    CommunicatorOptions options;
    options.link = GetParam();
    return options;
  }
};

TEST_P(LinkTest, EveryRankCountGivesTheBitsOfOneRank) {
  for (int ranks : {2, 3, 5}) {
    Ranks group(ranks, options());
    // Fewer rows behind more, and more behind fewer: memory grows and stays.
    for (int64_t rows : {1, 5, 2, 9}) {
      for (int n : {1, 3, 8, 13}) {
        const auto leaves = MakeLeaves(n, rows);
        const Values root = SumNode(leaves, {0, n});
        group.Run([&](size_t r) {
          const int rank = static_cast<int>(r);
          // With fewer leaves than ranks some bring nothing.
          const auto nodes =
              AlignedNodes(rank * n / ranks, (rank + 1) * n / ranks, n);
          std::vector<Values> sums;
          for (TreeNode node : nodes) sums.push_back(SumNode(leaves, node));
          EXPECT_TRUE(SameBits(
              group.Reduce(r, n, nodes, sums, root.size(), rows == 5), root))
              << n << " leaves, rank " << r << " of " << ranks;
        });
      }
    }
  }
}

TEST_P(LinkTest, RanksMayOwnLeavesInAnyOrder) {
  const int n = 12;
  const auto leaves = MakeLeaves(n, 3);
  const Values root = SumNode(leaves, {0, n});
  // Aligned nodes, two of them pairs, dealt out like cards.
  const std::vector<TreeNode> nodes = {{0, 2}, {2, 3}, {3, 4},  {4, 6},  {6, 7},
                                       {7, 8}, {8, 9}, {9, 10}, {10, 12}};
  Ranks group(4, options());
  group.Run([&](size_t r) {
    std::vector<TreeNode> own;
    std::vector<Values> sums;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if ((i + 1) % 4 != r) continue;
      own.push_back(nodes[i]);
      sums.push_back(SumNode(leaves, nodes[i]));
    }
    EXPECT_TRUE(
        SameBits(group.Reduce(r, n, own, sums, root.size(), false), root));
  });
}

TEST_P(LinkTest, GatherPutsEveryRanksColumnsIntoRankZero) {
  const std::vector<int64_t> cuts = {0, 5, 5, 12};
  Ranks group(3, options());
  group.Run([&](size_t r) {
    Values part;
    for (int64_t t = 0; t < 2; ++t) {
      for (int64_t c = cuts[r]; c < cuts[r + 1]; ++c) {
        part.push_back(static_cast<float>(100 * t + c));
      }
    }
    const Values all = group.Gather(r, part, cuts[r], 12);
    if (r != 0) return;
    for (size_t t = 0; t < 2; ++t) {
      for (size_t c = 0; c < 12; ++c) {
        EXPECT_EQ(all[t * 12 + c], static_cast<float>(100 * t + c));
      }
    }
  });
}

TEST_P(LinkTest, TimesAreTakenOnce) {
  Ranks group(2, options());
  const auto leaves = MakeLeaves(2, 1);
  group.Run([&](size_t r) {
    const int rank = static_cast<int>(r);
    group.Reduce(r, 2, {{rank, rank + 1}}, {leaves[r]}, leaves[r].size(),
                 false);
    const CollectiveTimes times = group.TakeTimes(r);
    EXPECT_GT(times.reduce_ns, 0);
    EXPECT_LE(times.wait_ns, times.reduce_ns);
    EXPECT_EQ(group.TakeTimes(r).reduce_ns, 0);
  });
}

// Two sums and a gather of a step, with more or fewer rows each time.
TEST_P(LinkTest, AStepLikeOneBeforeIsEnqueuedWithoutTheOthers) {
  const int n = 5;
  Ranks group(2, options());
  group.Run([&](size_t r) {
    const std::vector<TreeNode> nodes =
        r == 0 ? std::vector<TreeNode>{{0, 2}} : AlignedNodes(2, 5, n);
    for (const int64_t rows : {3, 3, 2, 1, 7, 4}) {
      group.BeginStep(r, rows == 3);
      group.TakeTimes(r);
      const auto leaves = MakeLeaves(n, rows);
      const Values root = SumNode(leaves, {0, n});
      std::vector<Values> sums;
      for (TreeNode node : nodes) sums.push_back(SumNode(leaves, node));
      for (const bool in_place : {false, true}) {
        EXPECT_TRUE(SameBits(
            group.Reduce(r, n, nodes, sums, root.size(), in_place), root));
      }
      const auto value = static_cast<float>(rows);
      const Values all =
          group.Gather(r, Values(r == 0 ? 2 : 4, value + static_cast<float>(r)),
                       r == 0 ? 0 : 1, 3);
      if (r == 0) {
        EXPECT_EQ(all, (Values{value, value + 1, value + 1, value, value + 1,
                               value + 1}));
      }
      const CollectiveTimes times = group.TakeTimes(r);
      EXPECT_GT(times.reduce_ns, 0);
      EXPECT_GT(times.gather_ns, 0);
      // Seven rows ask for more memory than there is.
      const bool meets =
          rows == 3 || rows == 7 || std::string(GetParam()) == "peer";
      EXPECT_EQ(times.wait_ns > 0, meets) << rows << " rows";
    }
  });
}

// A thread that enqueues a gather sees nothing of it.
TEST(GatheredRanksTest, TimesAreThoseOfTheLink) {
  constexpr int64_t kLink = 10'000'000;
  CommunicatorOptions options;
  options.link = "nccl";
  Ranks group(2, options);
  const auto leaves = MakeLeaves(2, 1);
  const auto step = [&](size_t r, bool is_new) {
    const int rank = static_cast<int>(r);
    group.BeginStep(r, is_new);
    group.Reduce(r, 2, {{rank, rank + 1}}, {leaves[r]}, leaves[r].size(),
                 false);
    group.Reduce(r, 2, {{rank, rank + 1}}, {leaves[r]}, leaves[r].size(),
                 false);
    group.Gather(r, Values(2, 1.0f), rank, 2);
    return group.TakeTimes(r);
  };
  group.Run([&](size_t r) { step(r, /*is_new=*/true); });
  group.plan().link_ms = kLink / 1'000'000;
  for (const bool is_new : {false, true}) {
    group.Run([&](size_t r) {
      const CollectiveTimes times = step(r, is_new);
      EXPECT_TRUE(times.measured);
      EXPECT_GE(times.reduce_ns, 2 * kLink);
      EXPECT_GE(times.gather_ns, kLink);
      EXPECT_EQ(times.wait_ns > 0, is_new);
    });
  }
}

TEST(GatheredRanksTest, ADeviceWaitsForTheOneThatComesLast) {
  CommunicatorOptions options;
  options.link = "nccl";
  Ranks group(2, options);
  constexpr std::chrono::milliseconds kLate(200);
  std::vector<CollectiveTimes> times(2);
  for (const bool is_new : {true, false}) {
    group.Run([&](size_t r) {
      group.BeginStep(r, is_new);
      // In a new step threads would meet before.
      if (r == 1 && !is_new) {
        group.EnqueueLateness(r, kLate);
      }
      group.Gather(r, Values(2, 1.0f), static_cast<int64_t>(r), 2);
      times[r] = group.TakeTimes(r);
    });
  }
  EXPECT_GE(times[0].gather_ns, std::chrono::nanoseconds(kLate).count());
  EXPECT_EQ(times[0].wait_ns, 0);
  NoteDeviceWaits(times);
  EXPECT_GE(times[0].device_wait_ns,
            std::chrono::nanoseconds(kLate).count() / 2);
  EXPECT_EQ(times[1].device_wait_ns, 0);
}

TEST(CollectiveTimesTest, AWaitIsWhatIsBeyondTheRankWithTheLeast) {
  std::vector<CollectiveTimes> ranks = {
      {.reduce_ns = 50, .gather_ns = 4}, {.reduce_ns = 30, .gather_ns = 5}, {}};
  ranks[2].reduce_ns = 60;
  NoteDeviceWaits(ranks);
  EXPECT_EQ(ranks[0].device_wait_ns, 19);
  EXPECT_EQ(ranks[1].device_wait_ns, 0);
  EXPECT_EQ(ranks[2].device_wait_ns, 25);
  std::vector<CollectiveTimes> unknown = {{.reduce_ns = 50},
                                          {.measured = false}};
  NoteDeviceWaits(unknown);
  EXPECT_EQ(unknown[0].device_wait_ns, 0);
  NoteDeviceWaits({});
}

INSTANTIATE_TEST_SUITE_P(, LinkTest,
                         ::testing::Values("nccl", "peer", "staged"),
                         [](const auto& tested) {
                           return std::string(tested.param);
                         });

TEST(StepShapesTest, AStepIsNewUntilOneOfItsShapeHadAsManyChunks) {
  StepShapes shapes;
  EXPECT_TRUE(shapes.IsNew({2, 2, 2}, 1));
  EXPECT_FALSE(shapes.IsNew({2, 2, 2}, 1));
  EXPECT_TRUE(shapes.IsNew({2, 2, 2}, 3));
  EXPECT_FALSE(shapes.IsNew({2, 2, 2}, 2));
  for (const StepShape& other :
       {StepShape{1, 2, 2}, StepShape{2, 1, 2}, StepShape{2, 2, 1}}) {
    EXPECT_TRUE(shapes.IsNew(other, 1));
  }
  // What is forgotten is new again.
  for (int i = 0; i < static_cast<int>(StepShapes::kMost); ++i) {
    EXPECT_TRUE(shapes.IsNew({100 + i, 1, 0}, 1));
  }
  EXPECT_TRUE(shapes.IsNew({2, 2, 2}, 3));
}

TEST(StepShapesTest, AShapeIsCutUntilItIsForgotten) {
  StepShapes shapes;
  EXPECT_TRUE(shapes.IsNew({2, 2, 2}, 1));
  EXPECT_FALSE(shapes.IsCut({2, 2, 2}));
  shapes.SetCut({2, 2, 2});
  EXPECT_TRUE(shapes.IsNew({2, 2, 2}, 2));
  EXPECT_TRUE(shapes.IsCut({2, 2, 2}));
  EXPECT_FALSE(shapes.IsCut({2, 1, 2}));
  EXPECT_EQ(shapes.num_new(), 2u);
}

// A rank's copy ends its list of launches, and not the others'.
TEST(GatheredRanksTest, OneRanksCopyBetweenCollectivesIsToldToAll) {
  CommunicatorOptions options;
  options.link = "nccl";
  Ranks group(2, options);
  const Values part(6, 1.0f);
  for (const bool before : {true, false}) {
    for (const bool between : {false, true}) {
      group.Run([&](size_t r) {
        group.BeginStep(r, /*is_new=*/true);
        if (before) group.NoteCopy(r);
        group.Gather(r, part, static_cast<int64_t>(3 * r), 6);
        if (between && r == 1) group.NoteCopy(r);
        group.Gather(r, part, static_cast<int64_t>(3 * r), 6);
        group.NoteCopy(r);
        EXPECT_EQ(group.StepIsCut(r), between) << r;
      });
    }
  }
}

TEST(LinkChoiceTest, ALinkThatIsNotThereIsNamed) {
  CommunicatorOptions options;
  options.link = "infiniband";
  EXPECT_THAT(Message(Connect(options).status()),
              HasSubstr("got 'infiniband'"));
  options.link = "nccl";
  options.nccl = "libnccl-that-is-nowhere.so.2";
  const Status status = Connect(options).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("libnccl-that-is-nowhere.so.2"));
  // Without NCCL the devices use each other's memory.
  options.link = "auto";
  EXPECT_TRUE(Connect(options).ok());
}

TEST(LinkChoiceTest, DevicesThatDoNotReachEachOtherCopyThroughTheHost) {
  CommunicatorOptions options;
  options.nccl = "libnccl-that-is-nowhere.so.2";
  std::vector<std::unique_ptr<kernels::cuda::Runtime>> gpus;
  std::vector<kernels::cuda::Runtime*> runtimes;
  for (int i = 0; i < 2; ++i) {
    gpus.push_back(
        kernels::cuda::OpenMachine({.index = i, .reaches_peers = false}));
    runtimes.push_back(gpus.back().get());
  }
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(MakeCommunicators(runtimes, options).ok());
  FlushLog(std::chrono::seconds(10));
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("no NCCL: libnccl-that-is-nowhere.so.2"));
  EXPECT_THAT(told, HasSubstr("GPU 0 does not reach the memory of GPU 1"));
  EXPECT_THAT(told, HasSubstr("ranks copy through the host's memory"));
  options.link = "peer";
  EXPECT_EQ(MakeCommunicators(runtimes, options).status().code(),
            StatusCode::kUnavailable);
}

TEST(LinkChoiceTest, ALibraryThatIsNotNcclIsNamed) {
  const auto loaded = NcclLibrary::Load("libm.so.6");
  EXPECT_EQ(loaded.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(loaded.status()), HasSubstr("libm.so.6 has no nccl"));
}

TEST(LinkChoiceTest, WhatNcclSaysOfDevicesIsTold) {
  FakeNccl plan;
  plan.init_result = 2;
  CommunicatorOptions options;
  options.link = "nccl";
  options.nccl = UseFakeNccl(&plan);
  EXPECT_THAT(Message(Connect(options).status()),
              HasSubstr("NCCL 2.28.9 cannot connect 2 GPUs: unhandled system "
                        "error"));
}

TEST(LinkChoiceTest, CommunicatorsOfNcclAreGivenBack) {
  FakeNccl plan;
  CommunicatorOptions options;
  options.nccl = UseFakeNccl(&plan);
  {
    const auto connected = Connect(options);
    EXPECT_TRUE(connected.ok()) << connected.status();
    EXPECT_EQ(plan.alive, 2);
  }
  EXPECT_EQ(plan.alive, 0);
}

}  // namespace
}  // namespace sluice::testing
