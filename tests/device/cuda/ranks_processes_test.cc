// Ranks of several processes with an emulated GPU each: the bits of one rank,
// and what a process cannot have. Most processes are threads of this one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/end_process.h"
#include "common/device/cuda/make_communicators.h"
#include "common/device/cuda/make_cuda_ranks.h"
#include "common/device/make_backends.h"
#include "kernels/cuda/device_host/open_machine.h"
#include "tests/device/cuda/emulated_gpus.h"
#include "tests/device/cuda/linked_ranks.h"

namespace sluice::testing {
namespace {

using kernels::AlignedNodes;
using kernels::TreeNode;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

struct Processes {
  int count;
  int each;  // ranks
  int ranks() const { return count * each; }
};

class ProcessesTest : public ::testing::TestWithParam<Processes> {};

TEST_P(ProcessesTest, EverySplitOfLeavesGivesTheBitsOfOneRank) {
  const int ranks = GetParam().ranks();
  Ranks group(GetParam().count, GetParam().each, {});
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

TEST_P(ProcessesTest, RanksMayOwnLeavesInAnyOrder) {
  const int n = 256;
  const auto ranks = static_cast<size_t>(GetParam().ranks());
  const auto leaves = MakeLeaves(n, 1);
  const Values root = SumNode(leaves, {0, n});
  Ranks group(GetParam().count, GetParam().each, {});
  group.Run([&](size_t r) {
    std::vector<TreeNode> own;
    std::vector<Values> sums;
    for (int i = 0; i < n; ++i) {
      if (static_cast<size_t>(i + 1) % ranks != r) continue;
      own.push_back({i, i + 1});
      sums.push_back(leaves[static_cast<size_t>(i)]);
    }
    EXPECT_TRUE(
        SameBits(group.Reduce(r, n, own, sums, root.size(), false), root));
  });
}

TEST_P(ProcessesTest, GatherPutsEveryRanksColumnsIntoRankZero) {
  const int64_t ranks = GetParam().ranks();
  const auto end = [](int64_t rank) { return rank * (rank + 1) / 2; };
  const int64_t all = end(ranks - 1);  // rank 0 brings none
  Ranks group(GetParam().count, GetParam().each, {});
  group.Run([&](size_t r) {
    const auto rank = static_cast<int64_t>(r);
    const int64_t begin = rank == 0 ? 0 : end(rank - 1);
    Values part;
    for (int64_t t = 0; t < 2; ++t) {
      for (int64_t c = begin; c < end(rank); ++c) {
        part.push_back(static_cast<float>(100 * t + c));
      }
    }
    const Values got = group.Gather(r, part, begin, all);
    if (r != 0) return;
    for (int64_t t = 0; t < 2; ++t) {
      for (int64_t c = 0; c < all; ++c) {
        EXPECT_EQ(got[static_cast<size_t>(t * all + c)],
                  static_cast<float>(100 * t + c));
      }
    }
  });
}

// Two sums and a gather of a step, with more or fewer rows each time.
TEST_P(ProcessesTest, AStepLikeOneBeforeIsEnqueuedWithoutTheOthers) {
  const int ranks = GetParam().ranks();
  Ranks group(GetParam().count, GetParam().each, {});
  const int each_step = 3 * ranks;
  int gathers = 0;
  for (const int64_t rows : {3, 3, 2, 1, 7, 4}) {
    group.Run([&](size_t r) {
      const int rank = static_cast<int>(r);
      group.BeginStep(r, rows == 3);
      group.TakeTimes(r);
      const auto leaves = MakeLeaves(ranks, rows);
      const Values root = SumNode(leaves, {0, ranks});
      for (const bool in_place : {false, true}) {
        EXPECT_TRUE(SameBits(group.Reduce(r, ranks, {{rank, rank + 1}},
                                          {leaves[r]}, root.size(), in_place),
                             root));
      }
      const Values all =
          group.Gather(r, Values(2, static_cast<float>(r)), rank, ranks);
      if (r == 0) {
        EXPECT_EQ(all.back(), static_cast<float>(ranks - 1));
      }
      const CollectiveTimes times = group.TakeTimes(r);
      EXPECT_GT(times.reduce_ns, 0);
      EXPECT_GT(times.gather_ns, 0);
      EXPECT_LE(times.wait_ns, times.reduce_ns + times.gather_ns);
      // Seven rows ask for more memory than there is: threads of one process
      // meet.
      if (rows == 3) {
        EXPECT_GT(times.wait_ns, 0);
      } else if (rows != 7) {
        EXPECT_EQ(times.wait_ns, 0) << rows;
      }
    });
    // Ranks tell each other what they bring where they meet alone.
    const int now = group.plan().gathers;
    EXPECT_EQ(now - gathers, rows == 3 ? 2 * each_step : each_step) << rows;
    gathers = now;
  }
}

// A rank's copy ends its list of launches, and not the others'.
TEST_P(ProcessesTest, OneRanksCopyBetweenCollectivesIsToldToAll) {
  const auto ranks = static_cast<size_t>(GetParam().ranks());
  Ranks group(GetParam().count, GetParam().each, {});
  const Values part(2, 1.0f);
  for (const bool before : {true, false}) {
    for (const bool between : {false, true}) {
      group.Run([&](size_t r) {
        const auto at = static_cast<int64_t>(r);
        const auto all = static_cast<int64_t>(ranks);
        group.BeginStep(r, /*is_new=*/true);
        if (before) group.NoteCopy(r);
        group.Gather(r, part, at, all);
        if (between && r == ranks - 1) group.NoteCopy(r);
        group.Gather(r, part, at, all);
        group.NoteCopy(r);
        EXPECT_EQ(group.StepIsCut(r), between) << r;
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, ProcessesTest,
                         ::testing::Values(Processes{2, 1}, Processes{2, 2},
                                           Processes{3, 1}, Processes{3, 2}),
                         [](const auto& tested) {
                           return std::to_string(tested.param.count) + "x" +
                                  std::to_string(tested.param.each);
                         });

}  // namespace
}  // namespace sluice::testing
