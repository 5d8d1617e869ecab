// Ranks of several processes with an emulated GPU each: the bits of one rank,
// and the end of all where one ends. Most processes are threads of this one.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/end_process.h"
#include "common/device/cuda/cuda_memory.h"
#include "common/device/cuda/make_communicators.h"
#include "tests/device/cuda/emulated_gpus.h"
#include "tests/device/cuda/linked_ranks.h"

namespace sluice::testing {
namespace {

using kernels::AlignedNodes;
using kernels::TreeNode;
using ::testing::ExitedWithCode;

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
  int gathers = group.plan().gathers;
  EXPECT_EQ(gathers, ranks);  // that all work
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

// Rank r's sum of two, `rank` of them, of whose leaf `data` has place for, in a
// list of launches that is gathered. Returns whether it is right.
bool SumInAList(Ranks& group, size_t r, int rank, float* data) {
  const auto leaves = MakeLeaves(2, 1);
  kernels::cuda::Runtime& gpu = group.gpu(r);
  const kernels::Matrix part = {data, 1, kCols, kCols};
  const std::vector<TreeNode> nodes = {{rank, rank + 1}};
  gpu.CopyIn(leaves[static_cast<size_t>(rank)].data(), data,
             {kCols * sizeof(float)});
  // Not new, and yet not known.
  group.BeginStep(r, /*is_new=*/false);
  gpu.GatherLaunches(true, /*alike=*/1);
  group.communicator(r).ReduceTree(2, nodes, {&part, 1}, part);
  gpu.GatherLaunches(false);
  Values sum(kCols);
  gpu.CopyOut(data, sum.data(), {kCols * sizeof(float)});
  gpu.Sync();
  group.communicator(r).OnSynced(/*goes_on=*/false);
  return SameBits(sum, SumNode(leaves, {0, 2}));
}

// A telling is begun before the list of launches that is gathered.
TEST(GatheredProcessesTest, NoGraphHasATelling) {
  CommunicatorOptions options;
  options.nccl_in_graphs = true;
  Ranks group(2, 1, options);
  std::vector<std::unique_ptr<GrowingMemory>> parts;
  for (size_t r = 0; r < 2; ++r) {
    parts.push_back(std::make_unique<GrowingMemory>(&group.gpu(r)));
  }
  // Of the load two, of tellings two.
  const std::vector<int> gathers = {6, 8, 8, 8};
  for (size_t step = 0; step < gathers.size(); ++step) {
    group.Run([&](size_t r) {
      EXPECT_TRUE(SumInAList(group, r, static_cast<int>(r),
                             parts[r]->AtLeast<float>(kCols)))
          << step;
    });
    EXPECT_EQ(group.plan().gathers, gathers[step]) << step;
  }
  for (size_t r = 0; r < 2; ++r) {
    const kernels::cuda::GraphCounts& counts = group.gpu(r).graph_counts();
    EXPECT_EQ(counts.started, 1u);
    EXPECT_EQ(counts.captured, 1u);
    EXPECT_EQ(counts.replayed, 2u);
    group.gpu(r).DropGraphs();
  }
}

// From the process of rank 0 to that of rank 1, which alone has `in`.
struct Pipe {
  int in = -1;
  int out = -1;
  // Returns when the process of rank 0 has ended.
  void WaitForEnd() const {
    char none = 0;
    while (::read(out, &none, 1) > 0) {
    }
  }
};

using Body = std::function<bool(int process, Ranks& ranks, const Pipe& pipe)>;

// One of two processes.
[[noreturn]] void RunOne(int process, int each, CommunicatorOptions options,
                         const Pipe& pipe, const Body& body) {
  ::close(process == 0 ? pipe.out : pipe.in);
  options.link = "nccl";
  options.first_rank = process * each;
  options.all_ranks = 2 * each;
  options.share_id = [&](const std::string& own) -> StatusOr<std::string> {
    std::string id = own;
    id.resize(129);
    const ssize_t done = process == 0 ? ::write(pipe.in, id.data(), id.size())
                                      : ::read(pipe.out, id.data(), id.size());
    if (done != 129) std::abort();
    return id;
  };
  int code = 0;
  {
    Ranks ranks(each, options);
    code = body(process, ranks, pipe) ? 0 : 1;
  }
  std::_Exit(code);
}

// Runs `body` in two processes with `each` ranks, the first of rank 0. Ends
// with what one of them ends with that fails.
[[noreturn]] void RunTwo(int each, std::array<CommunicatorOptions, 2> options,
                         const Body& body) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  const Pipe pipe = {.in = ends[1], .out = ends[0]};
  std::array<pid_t, 2> processes = {};
  for (size_t p = 0; p < processes.size(); ++p) {
    processes[p] = ::fork();
    if (processes[p] != 0) continue;
    RunOne(static_cast<int>(p), each, options[p], pipe, body);
  }
  ::close(pipe.in);
  ::close(pipe.out);
  int code = 0;
  for (const pid_t process : processes) {
    int status = 0;
    ::waitpid(process, &status, 0);
    if (code == 0) code = WIFEXITED(status) ? WEXITSTATUS(status) : 2;
  }
  std::_Exit(code);
}
[[noreturn]] void RunTwo(int each, const CommunicatorOptions& options,
                         const Body& body) {
  RunTwo(each, {options, options}, body);
}

class TwoProcessesTest : public ::testing::Test {
 protected:
  TwoProcessesTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    options_.limits.look_every = std::chrono::milliseconds(20);
  }
  // Sums of all ranks so many times. Returns whether they are right.
  static bool Sum(int process, Ranks& ranks, int each, int times) {
    const int all = 2 * each;
    const auto leaves = MakeLeaves(all, 2);
    const Values root = SumNode(leaves, {0, all});
    std::atomic<bool> right{true};
    ranks.Run([&](size_t r) {
      const int rank = process * each + static_cast<int>(r);
      for (int i = 0; i < times; ++i) {
        ranks.BeginStep(r, i == 0);
        const Values sum = ranks.Reduce(r, all, {{rank, rank + 1}},
                                        {leaves[static_cast<size_t>(rank)]},
                                        root.size(), i % 2 == 0);
        const Values gathered =
            ranks.Gather(r, Values(2, static_cast<float>(rank)), rank, all);
        if (!SameBits(sum, root)) right = false;
        for (size_t c = 0; c < gathered.size(); ++c) {
          const auto column = static_cast<float>(c % static_cast<size_t>(all));
          if (gathered[c] != column) right = false;
        }
        if (gathered.empty() != (rank != 0)) right = false;
      }
    });
    return right;
  }
  CommunicatorOptions options_;
};

TEST_F(TwoProcessesTest, RanksOfProcessesHaveTheBitsOfOneRank) {
  for (const int each : {1, 2}) {
    EXPECT_EXIT(RunTwo(each, options_,
                       [each](int process, Ranks& ranks, const Pipe&) {
                         return Sum(process, ranks, each, 20);
                       }),
                ExitedWithCode(0), "");
  }
}

TEST_F(TwoProcessesTest, AProcessThatEndsEndsTheOthers) {
  options_.limits.deadline = std::chrono::seconds(2);
  for (const int gone : {0, 1}) {
    EXPECT_EXIT(RunTwo(1, options_,
                       [gone](int process, Ranks& ranks, const Pipe&) {
                         Sum(process, ranks, 1, 5);
                         if (process == gone) std::_Exit(0);
                         return Sum(process, ranks, 1, 1);
                       }),
                ExitedWithCode(kToBeReplaced),
                gone == 1 ? "rank 0 of 2 has waited(.|\n)*rank 0 is aborted"
                          : "rank 1 of 2 has waited(.|\n)*rank 1 is aborted");
  }
}

// NCCL waits for the process of rank 1 to let its rank go.
TEST_F(TwoProcessesTest, ARankThatNcclDoesNotLetGoEndsTheProcess) {
  options_.limits.deadline = std::chrono::seconds(2);
  EXPECT_EXIT(RunTwo(1, options_,
                     [](int process, Ranks& ranks, const Pipe& pipe) {
                       const bool right = Sum(process, ranks, 1, 2);
                       if (process == 1) pipe.WaitForEnd();
                       return right;
                     }),
              ExitedWithCode(kToBeReplaced),
              "NCCL has not let go of rank 0 of 2 in 2");
}

TEST_F(TwoProcessesTest, TheProcessOfRankZeroDecidesWhatGraphsHave) {
  for (const bool in_graphs : {false, true}) {
    std::array<CommunicatorOptions, 2> options = {options_, options_};
    options[0].nccl_in_graphs = in_graphs;
    options[1].nccl_in_graphs = !in_graphs;
    // Of the load, a telling, and four steps, of which graphs replay two.
    const int gathers = in_graphs ? 4 : 6;
    EXPECT_EXIT(RunTwo(1, options,
                       [gathers](int process, Ranks& ranks, const Pipe&) {
                         GrowingMemory part(&ranks.gpu(0));
                         bool right = true;
                         for (int step = 0; step < 4; ++step) {
                           right &= SumInAList(ranks, 0, process,
                                               part.AtLeast<float>(kCols));
                         }
                         ranks.gpu(0).DropGraphs();
                         return right && ranks.plan().gathers == gathers;
                       }),
                ExitedWithCode(0), "");
  }
}

// In the process of rank 1.
TEST_F(TwoProcessesTest, AnErrorOfNcclNamesTheRankAmongAll) {
  const auto run = [this](const std::function<void(FakeNccl&)>& fail) {
    RunTwo(1, options_, [fail](int process, Ranks& ranks, const Pipe&) {
      if (process == 0) return Sum(process, ranks, 1, 1);
      // The sum's: of the load and of tellings there are three.
      ranks.plan().faulty_gather = 5;
      fail(ranks.plan());
      const bool right = Sum(process, ranks, 1, 1);
      std::this_thread::sleep_for(std::chrono::seconds(1));
      return right;
    });
  };
  EXPECT_EXIT(run([](FakeNccl& plan) { plan.async_error = 6; }),
              ExitedWithCode(kToBeReplaced),
              "rank 1 of 2: NCCL: remote process exited(.|\n)*rank 1 is "
              "aborted");
  options_.limits.deadline = std::chrono::seconds(2);
  EXPECT_EXIT(run([](FakeNccl& plan) { plan.gather_result = 1; }),
              ExitedWithCode(kToBeReplaced),
              "rank 1: NCCL: unhandled cuda error(.|\n)*this process ends");
}

}  // namespace
}  // namespace sluice::testing
