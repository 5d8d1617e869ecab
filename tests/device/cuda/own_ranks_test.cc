// A process with some of a stage's ranks: what it cannot have, and what NCCL
// and other processes refuse, is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/device/cuda/make_communicators.h"
#include "common/device/cuda/nccl_exchange.h"
#include "common/device/cuda/nccl_library.h"
#include "common/device/cuda/rank_telling.h"
#include "common/device/make_backends.h"
#include "tests/cuda_machine/open_machine.h"
#include "tests/device/cuda/emulated_gpus.h"
#include "tests/device/cuda/linked_ranks.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

// Ranks of one process among others that do not come: the status.
class OwnRanksTest : public ::testing::Test {
 protected:
  OwnRanksTest() {
    options_.nccl = UseFakeNccl(&plan_);
    options_.first_rank = 1;
    options_.all_ranks = 2;
    options_.share_id = [this](const std::string& own) {
      EXPECT_EQ(own.size(), options_.first_rank == 0 ? kIdBytes : 0u);
      ++shared_;
      return id_;
    };
    ::unsetenv("NCCL_COMM_BLOCKING");
    ::unsetenv("NCCL_RUNTIME_CONNECT");
  }
  ~OwnRanksTest() override {
    ::unsetenv("NCCL_COMM_BLOCKING");
    ::unsetenv("NCCL_RUNTIME_CONNECT");
  }
  // Ranks may join by it.
  std::string TrueId() const {
    const auto library = NcclLibrary::Load(options_.nccl);
    EXPECT_TRUE(library.ok()) << library.status();
    const auto id = NcclExchange::MakeId(*library, /*in_graphs=*/false);
    EXPECT_TRUE(id.ok()) << id.status();
    return *id;
  }
  Status Make(int ranks = 1) {
    const auto gpus = EmulatedGpus(ranks);
    std::vector<kernels::cuda::Runtime*> runtimes;
    for (const auto& gpu : gpus) runtimes.push_back(gpu.get());
    return MakeCommunicators(runtimes, options_).status();
  }
  void Expect(const Status& got, StatusCode code, const char* words) {
    EXPECT_EQ(got.code(), code) << got;
    EXPECT_THAT(Message(got), HasSubstr(words));
  }

  static constexpr size_t kIdBytes = 129;
  FakeNccl plan_;
  CommunicatorOptions options_;
  StatusOr<std::string> id_ = std::string(kIdBytes - 1, 'x') + '\0';
  int shared_ = 0;
};

TEST_F(OwnRanksTest, RanksThatAreNotOfTheStageAreNamed) {
  struct Case {
    int32_t first;
    int32_t all;
    const char* words;
  };
  for (const Case& tested :
       {Case{1, 2, "cannot have 2 ranks from rank 1 on of 2 ranks"},
        Case{-1, 4, "cannot have 2 ranks from rank -1 on of 4 ranks"},
        Case{0, 1, "cannot have 2 ranks from rank 0 on of 1 ranks"},
        Case{0, -2, "cannot have 2 ranks from rank 0 on of -2 ranks"},
        Case{1, 0, "cannot have 2 ranks from rank 1 on of 2 ranks"},
        Case{INT32_MAX, 4, "cannot have 2 ranks from rank 2147483647 on"}}) {
    options_.first_rank = tested.first;
    options_.all_ranks = tested.all;
    Expect(Make(2), StatusCode::kInvalidArgument, tested.words);
  }
  EXPECT_EQ(shared_, 0);
}

TEST_F(OwnRanksTest, ALinkWithinOneProcessIsRefused) {
  for (const char* link : {"peer", "staged"}) {
    options_.link = link;
    Expect(Make(), StatusCode::kInvalidArgument,
           (std::string("reach each other by nccl alone, got the link '") +
            link + "'")
               .c_str());
  }
}

TEST_F(OwnRanksTest, RanksThatShareAGpuAreRefused) {
  options_.all_ranks = 4;
  std::vector<std::unique_ptr<kernels::cuda::Runtime>> gpus;
  std::vector<kernels::cuda::Runtime*> runtimes;
  for (const int index : {3, 5, 3}) {
    gpus.push_back(kernels::cuda::OpenMachine({.index = index}));
    runtimes.push_back(gpus.back().get());
  }
  Expect(MakeCommunicators(runtimes, options_).status(),
         StatusCode::kInvalidArgument,
         "need a GPU each, but GPU 3 has several of ranks 1 to 3 of 4");
}

TEST_F(OwnRanksTest, AGpuWithoutMemoryForTellingsIsNamedBeforeOthersWait) {
  const auto gpu = kernels::cuda::OpenMachine(
      {.index = 5, .memory = 2 * sizeof(TellingWords)});
  kernels::cuda::Runtime* const runtime = gpu.get();
  Expect(MakeCommunicators({&runtime, 1}, options_).status(),
         StatusCode::kResourceExhausted,
         ("GPU 5 has no " + std::to_string(2 * sizeof(TellingWords)) +
          " bytes left of " + std::to_string(2 * sizeof(TellingWords)))
             .c_str());
  EXPECT_EQ(shared_, 0);
}

TEST_F(OwnRanksTest, ACpuHasAllRanks) {
  BackendOptions backends;
  backends.ranks = 2;
  for (const auto& [first, all] : {std::pair{0, 4}, {1, 0}, {0, 1}}) {
    backends.first_rank = first;
    backends.all_ranks = all;
    Expect(MakeBackends(backends).status(), StatusCode::kInvalidArgument,
           "ranks of several processes need GPUs, device is cpu");
  }
  backends.first_rank = 0;
  backends.all_ranks = 2;
  EXPECT_TRUE(MakeBackends(backends).ok());
}

TEST_F(OwnRanksTest, WithoutNcclThereIsNoOtherLink) {
  options_.nccl = "libnccl-that-is-nowhere.so.2";
  Expect(Make(), StatusCode::kFailedPrecondition,
         "rank 1 of 2: ranks of several processes need NCCL: "
         "libnccl-that-is-nowhere.so.2");
  EXPECT_EQ(shared_, 0);
}

TEST_F(OwnRanksTest, WhatNcclSaysIsTold) {
  plan_.init_result = 2;
  Expect(Make(), StatusCode::kUnavailable,
         "NCCL 2.28.9 cannot connect rank 1 of 2 with those of other "
         "processes: unhandled system error");
  options_.first_rank = 2;
  options_.all_ranks = 5;
  Expect(Make(2), StatusCode::kUnavailable,
         "cannot connect ranks 2 to 3 of 5 with those");
  plan_.init_result = 0;
  options_.first_rank = 0;
  plan_.id_result = 1;
  Expect(Make(), StatusCode::kUnavailable,
         "NCCL 2.28.9 makes no id for ranks of several processes: unhandled "
         "cuda error");
}

TEST_F(OwnRanksTest, AGroupThatHasNoPlaceForTheRankRefusesIt) {
  id_ = TrueId();
  options_.all_ranks = 3;
  plan_.init_result = 2;
  Expect(Make(), StatusCode::kUnavailable, "unhandled system error");
  // The place is taken, also for the second of two ranks.
  plan_.init_result = 0;
  Expect(Make(), StatusCode::kUnavailable, "invalid argument");
  options_.first_rank = 0;
  Expect(Make(2), StatusCode::kUnavailable, "invalid argument");
}

TEST_F(OwnRanksTest, CommunicatorsOfAFailedJoinAreGivenBack) {
  for (const int ranks : {1, 2}) {
    id_ = TrueId();
    options_.all_ranks = 3;
    plan_.init_result = 2;
    Expect(Make(ranks), StatusCode::kUnavailable, "unhandled system error");
    EXPECT_EQ(plan_.alive, 0);
  }
}

TEST_F(OwnRanksTest, AFirstGatherThatFailsIsAnErrorOfTheLoad) {
  plan_.gather_result = 1;
  plan_.faulty_gather = 1;
  const auto joined = JoinTwo(options_);
  for (size_t r = 0; r < 2; ++r) {
    Expect(joined[r], StatusCode::kUnavailable,
           ("NCCL 2.28.9 connected rank " + std::to_string(r) +
            " of 2 with those of other processes, but does not gather: "
            "unhandled cuda error")
               .c_str());
  }
  EXPECT_EQ(plan_.alive, 0);
}

TEST_F(OwnRanksTest, NcclConnectsRanksOfProcessesBeforeTheyGather) {
  for (const auto& status : JoinTwo(options_)) EXPECT_TRUE(status.ok());
  EXPECT_EQ(plan_.runtime_connect, 0);
  EXPECT_EQ(plan_.gathers, 2);
  // What a user set stays.
  ::setenv("NCCL_RUNTIME_CONNECT", "1", 1);
  for (const auto& status : JoinTwo(options_)) EXPECT_TRUE(status.ok());
  EXPECT_EQ(plan_.runtime_connect, 1);
}

TEST_F(OwnRanksTest, RanksOfOneProcessConnectAsNcclDoes) {
  options_.first_rank = 0;
  options_.link = "nccl";
  EXPECT_TRUE(Make(2).ok());
  EXPECT_EQ(std::getenv("NCCL_RUNTIME_CONNECT"), nullptr);
  EXPECT_EQ(plan_.gathers, 0);
}

TEST_F(OwnRanksTest, CallsOfNcclThatReturnAtOnceAreRefused) {
  for (const char* value : {"0", "0x0", "no"}) {
    ::setenv("NCCL_COMM_BLOCKING", value, 1);
    for (const int first : {0, 1}) {
      options_.first_rank = first;
      Expect(Make(), StatusCode::kFailedPrecondition,
             (std::string("NCCL_COMM_BLOCKING must be 1 or not set, got '") +
              value + "'")
                 .c_str());
    }
  }
  EXPECT_EQ(shared_, 0);
  for (const char* value : {"", "1"}) {
    ::setenv("NCCL_COMM_BLOCKING", value, 1);
    for (const auto& status : JoinTwo(options_)) EXPECT_TRUE(status.ok());
  }
}

TEST_F(OwnRanksTest, AnIdThatIsNotSharedIsTold) {
  for (const size_t size : {kIdBytes - 1, kIdBytes + 1}) {
    id_ = std::string(size, '\0');
    Expect(Make(), StatusCode::kInvalidArgument,
           ("has 129 bytes, rank 1 of 2 got one of " + std::to_string(size))
               .c_str());
  }
  id_ = std::string(kIdBytes, '\2');
  Expect(Make(), StatusCode::kInvalidArgument,
         "ends with 0 or 1, rank 1 of 2 got one that ends with 2");
  id_ = Unavailable("the process of rank 0 has gone");
  Expect(Make(), StatusCode::kUnavailable, "the process of rank 0 has gone");
  options_.first_rank = 0;
  Expect(Make(), StatusCode::kUnavailable, "the process of rank 0 has gone");
  EXPECT_EQ(shared_, 5);
  options_.share_id = nullptr;
  Expect(Make(), StatusCode::kInvalidArgument,
         "rank 0 of 2: ranks of several processes have no way to share");
}

TEST_F(OwnRanksTest, AProcessThatHasAllRanksSharesNothing) {
  options_.first_rank = 0;
  for (const char* link : {"nccl", "peer"}) {
    options_.link = link;
    EXPECT_TRUE(Make(2).ok());
  }
  EXPECT_EQ(shared_, 0);
}

TEST_F(OwnRanksTest, CommunicatorsOfNcclAreGivenBack) {
  {
    Ranks group(2, 2, {});
    plan_.alive = group.plan().alive.load();
    EXPECT_EQ(plan_.alive, 4);
    UseFakeNccl(&plan_);
  }
  EXPECT_EQ(plan_.alive, 0);
}

}  // namespace
}  // namespace sluice::testing
