// Ranks with an emulated GPU each, of which one stands still, or does something
// else than the others: the process ends, and says why.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/end_process.h"
#include "common/device/cuda/rank_telling.h"
#include "tests/device/cuda/emulated_gpus.h"
#include "tests/device/cuda/linked_ranks.h"

namespace sluice::testing {
namespace {

using ::testing::ExitedWithCode;

// Sums over two ranks until the process ends; it ends with 0 if nothing is
// wrong.
[[noreturn]] void SumOn(Ranks& ranks) {
  const auto leaves = MakeLeaves(2, 1);
  ranks.Run([&](size_t r) {
    const int rank = static_cast<int>(r);
    for (int i = 0; i < 20; ++i) {
      ranks.Reduce(r, 2, {{rank, rank + 1}}, {leaves[r]}, leaves[r].size(),
                   false);
    }
    // Long after the watch has looked.
    std::this_thread::sleep_for(std::chrono::seconds(1));
  });
  std::_Exit(0);
}

class RanksDeathTest : public ::testing::Test {
 protected:
  RanksDeathTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    options_.link = "nccl";
    options_.limits.deadline = std::chrono::seconds(60);
    options_.limits.look_every = std::chrono::milliseconds(20);
  }
  CommunicatorOptions options_;
};

TEST_F(RanksDeathTest, ARankThatDoesNotComeEndsTheProcess) {
  options_.limits.deadline = std::chrono::seconds(2);
  EXPECT_EXIT(
      {
        Ranks ranks(2, options_);
        ranks.plan().late_rank = 1;
        SumOn(ranks);
      },
      ExitedWithCode(kToBeReplaced),
      "rank [01] of 2 has waited(.|\n)*rank [01] is aborted");
}

TEST_F(RanksDeathTest, DevicesThatNcclNeverConnectsEndTheProcess) {
  options_.limits.deadline = std::chrono::milliseconds(300);
  EXPECT_EXIT(
      {
        FakeNccl plan;
        plan.init_hangs = true;
        options_.nccl = UseFakeNccl(&plan);
        const auto connected = Connect(options_);
        std::_Exit(connected.ok() ? 0 : 1);
      },
      ExitedWithCode(kToBeReplaced), "NCCL has not connected 2 GPUs in 0.3");
}

TEST_F(RanksDeathTest, AnErrorThatNcclFindsLaterEndsTheProcess) {
  EXPECT_EXIT(
      {
        Ranks ranks(2, options_);
        ranks.plan().async_error = 6;
        SumOn(ranks);
      },
      ExitedWithCode(kToBeReplaced),
      "rank 0 of 2: NCCL: remote process exited(.|\n)*rank 1 is aborted");
}

TEST_F(RanksDeathTest, AGatherThatNcclRefusesEndsTheProcess) {
  EXPECT_EXIT(
      {
        Ranks ranks(2, options_);
        ranks.plan().gather_result = 1;
        SumOn(ranks);
      },
      ExitedWithCode(kToBeReplaced),
      "rank [01]: NCCL: unhandled cuda error(.|\n)*this process ends");
}

// In the second step rank 1 does something else.
[[noreturn]] void Disagree(Ranks& ranks,
                           const std::function<void(Ranks&)>& other) {
  const auto leaves = MakeLeaves(2, 1);
  ranks.Run([&](size_t r) {
    const int rank = static_cast<int>(r);
    for (const bool is_new : {true, false}) {
      ranks.BeginStep(r, is_new);
      if (!is_new && r == 1) other(ranks);
      ranks.Reduce(r, 2, {{rank, rank + 1}}, {leaves[r]}, kCols, false);
      ranks.Gather(r, Values(2, 1.0f), rank, 2);
    }
  });
  std::_Exit(0);
}

TEST_F(RanksDeathTest, ARankThatBringsOtherNodesEndsTheProcess) {
  EXPECT_EXIT(
      {
        Ranks ranks(2, options_);
        Disagree(ranks, [](Ranks& own) {
          own.Reduce(1, 2, {{0, 1}}, {Values(kCols)}, kCols, false);
        });
      },
      ExitedWithCode(kToBeReplaced),
      "rank 1 of 2 brings other parts to collective 0 of a step than it told");
}

TEST_F(RanksDeathTest, ARankThatLeavesOutACollectiveEndsTheProcess) {
  options_.limits.deadline = std::chrono::seconds(2);
  EXPECT_EXIT(
      {
        Ranks ranks(2, options_);
        Disagree(ranks,
                 [](Ranks& own) { own.Gather(1, Values(2, 1.0f), 1, 2); });
      },
      ExitedWithCode(kToBeReplaced),
      "rank [01] of 2 has waited(.|\n)*rank [01] is aborted");
}

// The step before has ended, one that began meanwhile does not.
TEST_F(RanksDeathTest, ARankWhoseNextStepStandsStillEndsTheProcess) {
  options_.limits.deadline = std::chrono::milliseconds(300);
  for (const bool goes_on : {true, false}) {
    EXPECT_EXIT(
        {
          Ranks ranks(2, options_);
          ranks.Run([&](size_t r) {
            ranks.Gather(r, Values(2, 1.0f), static_cast<int64_t>(r), 2);
            ranks.BeginStep(r, false);
            ranks.Gather(r, Values(2, 1.0f), static_cast<int64_t>(r), 2,
                         goes_on);
            std::this_thread::sleep_for(std::chrono::seconds(1));
          });
          std::_Exit(0);
        },
        ExitedWithCode(goes_on ? kToBeReplaced : 0),
        goes_on ? "rank [01] of 2 has waited" : "");
  }
}

// Ranks of two processes, which are threads of this one.
TEST_F(RanksDeathTest, ARankOfAnotherProcessThatDoesNotComeEndsTheProcess) {
  options_.limits.deadline = std::chrono::seconds(2);
  EXPECT_EXIT(
      {
        Ranks ranks(2, 1, options_);
        ranks.plan().late_rank = 1;
        SumOn(ranks);
      },
      ExitedWithCode(kToBeReplaced),
      "rank [01] of 2 has waited(.|\n)*rank [01] is aborted");
}

TEST_F(RanksDeathTest, ProcessesThatNcclNeverConnectsEnd) {
  options_.limits.deadline = std::chrono::milliseconds(300);
  EXPECT_EXIT(
      {
        FakeNccl plan;
        options_.nccl = UseFakeNccl(&plan);
        options_.all_ranks = 3;  // of which one never comes
        options_.share_id = [](const std::string& own) { return own; };
        const auto connected = Connect(options_);
        std::_Exit(connected.ok() ? 0 : 1);
      },
      ExitedWithCode(kToBeReplaced),
      "NCCL has not connected ranks 0 to 1 of 3 with those of other processes "
      "in 0.3");
}

TEST_F(RanksDeathTest, ProcessesWhoseFirstGatherNeverEndsEnd) {
  options_.limits.deadline = std::chrono::seconds(2);
  EXPECT_EXIT(
      {
        FakeNccl plan;
        plan.late_rank = 1;
        options_.nccl = UseFakeNccl(&plan);
        const auto joined = JoinTwo(options_);
        std::_Exit(joined[0].ok() ? 0 : 1);
      },
      ExitedWithCode(kToBeReplaced),
      "NCCL has not connected rank [01] of 2 with those of other processes in "
      "2");
}

TEST_F(RanksDeathTest, AnErrorThatNcclFindsInTheFirstGatherEndsTheProcess) {
  EXPECT_EXIT(
      {
        FakeNccl plan;
        plan.late_rank = 1;
        plan.async_error = 6;
        plan.faulty_gather = 1;
        options_.nccl = UseFakeNccl(&plan);
        const auto joined = JoinTwo(options_);
        std::_Exit(joined[0].ok() ? 0 : 1);
      },
      ExitedWithCode(kToBeReplaced),
      "rank [01] of 2: NCCL: remote process exited(.|\n)*rank [01] is "
      "aborted");
}

TEST_F(RanksDeathTest, ARankOfAProcessThatBringsOtherNodesEndsIt) {
  EXPECT_EXIT(
      {
        Ranks ranks(2, 1, options_);
        Disagree(ranks, [](Ranks& own) {
          own.Reduce(1, 2, {{0, 1}}, {Values(kCols)}, kCols, false);
        });
      },
      ExitedWithCode(kToBeReplaced),
      "rank 1 of 2 brings other parts to collective 0 of a step than it told");
}

TEST_F(RanksDeathTest, ATellingThatNoOtherRankSendsEndsTheProcess) {
  options_.limits.deadline = std::chrono::seconds(2);
  EXPECT_EXIT(
      {
        Ranks ranks(2, 1, options_);
        Disagree(ranks,
                 [](Ranks& own) { own.Gather(1, Values(2, 1.0f), 1, 2); });
      },
      ExitedWithCode(kToBeReplaced),
      "rank [01] of 2 has waited(.|\n)*rank [01] is aborted");
}

// In the second step rank 1 tells, where rank 0 gathers `words`.
[[noreturn]] void GatherInPlaceOf(const TellingWords& words,
                                  const CommunicatorOptions& options) {
  constexpr int64_t kColumns = TellingExchange::kFloats / 2;  // of two rows
  Values part(2 * kColumns);
  std::memcpy(part.data(), &words, sizeof(words));
  Ranks ranks(2, 1, options);
  ranks.Run([&](size_t r) {
    for (const bool is_new : {true, false}) {
      ranks.BeginStep(r, is_new);
      if (!is_new && r == 1) {
        ranks.Reduce(1, 2, {{1, 2}}, {Values(kCols)}, kCols, false);
      }
      ranks.Gather(r, part, static_cast<int64_t>(r) * kColumns, 2 * kColumns);
    }
  });
  std::_Exit(0);
}

TEST_F(RanksDeathTest, ValuesInThePlaceOfATellingEndTheProcess) {
  for (const uint64_t mark : {uint64_t{0}, TellingWords::kMark + (1 << 24)}) {
    TellingWords words;
    words.mark = mark;
    EXPECT_EXIT(
        GatherInPlaceOf(words, options_), ExitedWithCode(kToBeReplaced),
        "rank 1 of 2 has come to another collective than rank 0, whose values");
  }
}

TEST_F(RanksDeathTest, ATellingOfNodesThatNoneCanBringEndsTheProcess) {
  for (const int64_t nodes : {int64_t{-1}, int64_t{1025}, INT64_MAX}) {
    TellingWords words;
    words.mark = TellingWords::kMark;
    words.num_nodes = nodes;
    EXPECT_EXIT(GatherInPlaceOf(words, options_), ExitedWithCode(kToBeReplaced),
                "rank 1 of 2 is told that rank 0 brings " +
                    std::to_string(nodes) + " nodes to a sum, limit 1024");
  }
}

TEST_F(RanksDeathTest, RanksThatMeetAtDifferentCollectivesEndTheProcess) {
  options_.limits.deadline = std::chrono::seconds(5);
  for (const int processes : {1, 2}) {
    EXPECT_EXIT(
        {
          Ranks ranks =
              processes == 1 ? Ranks(2, options_) : Ranks(2, 1, options_);
          ranks.Run([&](size_t r) {
            const int rank = static_cast<int>(r);
            const size_t rows = r + 1;
            ranks.Reduce(r, 2, {{rank, rank + 1}}, {Values(rows * kCols)},
                         rows * kCols, false);
          });
          std::_Exit(0);
        },
        ExitedWithCode(kToBeReplaced),
        "rank [01] of 2 has come to another collective 0 of a step than rank "
        "[01]");
  }
}

TEST_F(RanksDeathTest, MoreNodesThanCanBeToldEndTheProcess) {
  constexpr int kNodes = TellingExchange::kMostNodes + 1;
  EXPECT_EXIT(
      {
        Ranks ranks(2, 1, options_);
        ranks.Run([&](size_t r) {
          std::vector<kernels::TreeNode> nodes;
          for (int i = 0; r == 1 && i < kNodes; ++i)
            nodes.push_back({i, i + 1});
          ranks.Reduce(r, kNodes, nodes,
                       std::vector<Values>(nodes.size(), Values(kCols)), kCols,
                       false);
        });
        std::_Exit(0);
      },
      ExitedWithCode(kToBeReplaced),
      "rank 1 of 2 brings 1025 nodes to a sum, at most 1024 can be told");
}

TEST_F(RanksDeathTest, RanksWithoutAFaultGoOn) {
  EXPECT_EXIT(
      {
        Ranks ranks(2, options_);
        SumOn(ranks);
      },
      ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sluice::testing
