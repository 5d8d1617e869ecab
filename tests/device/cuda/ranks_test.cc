// Ranks with an emulated GPU each: every way in which their devices reach each
// other gives the bits of one rank, and one that ends does not stand still.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/end_process.h"
#include "common/base/log.h"
#include "common/device/cuda/cuda_memory.h"
#include "common/device/cuda/make_communicators.h"
#include "common/device/cuda/nccl_library.h"
#include "kernels/cuda/device_host/open_machine.h"
#include "tests/device/cuda/emulated_gpus.h"

namespace sluice::testing {
namespace {

using kernels::AlignedNodes;
using kernels::Matrix;
using kernels::TreeNode;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

constexpr int64_t kCols = 37;

using Values = std::vector<float>;  // [rows, kCols]

// Leaves whose sum depends on the order of the additions.
std::vector<Values> MakeLeaves(int n, int64_t rows) {
  std::mt19937 random(static_cast<uint32_t>(n));
  std::vector<Values> leaves(static_cast<size_t>(n),
                             Values(static_cast<size_t>(rows * kCols)));
  for (Values& leaf : leaves) {
    for (float& value : leaf) {
      const int exponent = static_cast<int>(random() % 24);
      value = std::ldexp(static_cast<float>(random()) - 2e9f, -exponent);
    }
  }
  return leaves;
}

Values SumNode(const std::vector<Values>& leaves, TreeNode node) {
  return kernels::ReduceTree(
      node.begin, node.end,
      [&](int32_t i) { return leaves[static_cast<size_t>(i)]; },
      [](Values left, const Values& right) {
        for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
        return left;
      });
}

bool SameBits(const Values& a, const Values& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Ranks over emulated GPUs, connected by a link.
class Ranks {
 public:
  Ranks(int count, CommunicatorOptions options) : gpus_(EmulatedGpus(count)) {
    if (options.link == "nccl") options.nccl = UseFakeNccl(&plan_);
    std::vector<kernels::cuda::Runtime*> runtimes;
    for (const auto& gpu : gpus_) runtimes.push_back(gpu.get());
    auto made = MakeCommunicators(runtimes, options);
    EXPECT_TRUE(made.ok()) << made.status();
    communicators_ = *std::move(made);
  }

  FakeNccl& plan() { return plan_; }

  // Runs body(rank) on a thread per rank.
  void Run(const std::function<void(size_t)>& body) {
    std::vector<std::thread> threads;
    for (size_t r = 0; r < gpus_.size(); ++r) threads.emplace_back(body, r);
    for (auto& thread : threads) thread.join();
  }

  // On rank r's thread: the sum of its nodes with the other ranks'.
  Values Reduce(size_t r, int num_leaves, const std::vector<TreeNode>& nodes,
                const std::vector<Values>& sums, size_t size, bool in_place) {
    kernels::cuda::Runtime& gpu = *gpus_[r];
    const auto rows = static_cast<int64_t>(size) / kCols;
    std::vector<std::unique_ptr<GrowingMemory>> memory;
    const auto place = [&](const Values* values) {
      auto& made = memory.emplace_back(std::make_unique<GrowingMemory>(&gpu));
      auto* const data = made->AtLeast<float>(static_cast<int64_t>(size));
      if (values != nullptr) {
        gpu.CopyIn(values->data(), data, {size * sizeof(float)});
      }
      return Matrix{data, rows, kCols, kCols};
    };
    std::vector<Matrix> parts;
    for (const Values& sum : sums) parts.push_back(place(&sum));
    const Matrix out = in_place && !parts.empty() ? parts[0] : place(nullptr);
    communicators_[r]->ReduceTree(num_leaves, nodes, parts, out);
    Values result(size);
    gpu.CopyOut(out.data, result.data(), {size * sizeof(float)});
    Sync(r);
    return result;
  }

  // Likewise: columns [begin, begin + n) of rank 0's matrix [2, all].
  Values Gather(size_t r, const Values& part, int64_t begin, int64_t all) {
    kernels::cuda::Runtime& gpu = *gpus_[r];
    GrowingMemory from(&gpu);
    GrowingMemory to(&gpu);
    const auto n = static_cast<int64_t>(part.size()) / 2;
    gpu.CopyIn(part.data(), from.AtLeast<float>(2 * n),
               {part.size() * sizeof(float)});
    Matrix out;
    if (r == 0) out = {to.AtLeast<float>(2 * all), 2, all, all};
    communicators_[r]->GatherColumns({from.AtLeast<float>(0), 2, n, n}, begin,
                                     out);
    Values result(static_cast<size_t>(r == 0 ? 2 * all : 0));
    gpu.CopyOut(out.data, result.data(), {result.size() * sizeof(float)});
    Sync(r);
    return result;
  }

  CollectiveTimes TakeTimes(size_t r) { return communicators_[r]->TakeTimes(); }

 private:
  void Sync(size_t r) {
    gpus_[r]->Sync();
    communicators_[r]->OnSynced();
  }

  FakeNccl plan_;
  std::vector<std::unique_ptr<kernels::cuda::Runtime>> gpus_;
  std::vector<std::unique_ptr<DeviceCommunicator>> communicators_;
};

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

INSTANTIATE_TEST_SUITE_P(, LinkTest,
                         ::testing::Values("nccl", "peer", "staged"),
                         [](const auto& tested) {
                           return std::string(tested.param);
                         });

StatusOr<std::vector<std::unique_ptr<DeviceCommunicator>>> Connect(
    const CommunicatorOptions& options) {
  const auto gpus = EmulatedGpus(2);
  const std::vector<kernels::cuda::Runtime*> runtimes = {gpus[0].get(),
                                                         gpus[1].get()};
  return MakeCommunicators(runtimes, options);
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
