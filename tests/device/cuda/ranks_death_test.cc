// Ranks with an emulated GPU each, of which one stands still, or does something
// else than the others: the process ends, and says why.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "common/base/end_process.h"
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
