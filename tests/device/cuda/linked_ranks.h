#ifndef SLUICE_TESTS_DEVICE_CUDA_LINKED_RANKS_H_
#define SLUICE_TESTS_DEVICE_CUDA_LINKED_RANKS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/device/cuda/cuda_memory.h"
#include "common/device/cuda/make_communicators.h"
#include "kernels/reduction_tree.h"
#include "tests/device/cuda/emulated_gpus.h"

namespace sluice::testing {

inline constexpr int64_t kCols = 37;

using Values = std::vector<float>;  // [rows, kCols]

// Leaves whose sum depends on the order of the additions.
inline std::vector<Values> MakeLeaves(int n, int64_t rows) {
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

inline Values SumNode(const std::vector<Values>& leaves,
                      kernels::TreeNode node) {
  return kernels::ReduceTree(
      node.begin, node.end,
      [&](int32_t i) { return leaves[static_cast<size_t>(i)]; },
      [](Values left, const Values& right) {
        for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
        return left;
      });
}

inline bool SameBits(const Values& a, const Values& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Ranks over emulated GPUs, connected by a link.
class Ranks {
 public:
  // All of a stage, or those that the options say.
  Ranks(int count, CommunicatorOptions options) : first_(options.first_rank) {
    if (options.link == "nccl") options.nccl = UseFakeNccl(&plan_);
    Add(count, options);
  }
  // So many processes, which are threads of this one, with `each` ranks.
  Ranks(int processes, int each, CommunicatorOptions options) {
    options.nccl = UseFakeNccl(&plan_);
    options.all_ranks = processes * each;
    SharedId id;
    options.share_id = [&id](const std::string& own) { return id.Share(own); };
    std::vector<std::unique_ptr<Ranks>> made(static_cast<size_t>(processes));
    std::vector<std::thread> threads;
    for (int p = 0; p < processes; ++p) {
      options.first_rank = p * each;
      threads.emplace_back([&made, p, each, options] {
        made[static_cast<size_t>(p)] = std::make_unique<Ranks>();
        made[static_cast<size_t>(p)]->Add(each, options);
      });
    }
    for (auto& thread : threads) thread.join();
    for (auto& process : made) {
      std::ranges::move(process->gpus_, std::back_inserter(gpus_));
      std::ranges::move(process->communicators_,
                        std::back_inserter(communicators_));
    }
  }
  Ranks() = default;

  FakeNccl& plan() { return plan_; }
  kernels::cuda::Runtime& gpu(size_t r) { return *gpus_[r]; }
  DeviceCommunicator& communicator(size_t r) { return *communicators_[r]; }

  // Runs body(rank) on a thread per rank.
  void Run(const std::function<void(size_t)>& body) {
    std::vector<std::thread> threads;
    for (size_t r = 0; r < gpus_.size(); ++r) threads.emplace_back(body, r);
    for (auto& thread : threads) thread.join();
  }

  // On rank r's thread: the sum of its nodes with the other ranks'.
  Values Reduce(size_t r, int num_leaves,
                const std::vector<kernels::TreeNode>& nodes,
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
      return kernels::Matrix{data, rows, kCols, kCols};
    };
    std::vector<kernels::Matrix> parts;
    for (const Values& sum : sums) parts.push_back(place(&sum));
    const kernels::Matrix out =
        in_place && !parts.empty() ? parts[0] : place(nullptr);
    communicators_[r]->ReduceTree(num_leaves, nodes, parts, out);
    Values result(size);
    gpu.CopyOut(out.data, result.data(), {size * sizeof(float)});
    Sync(r);
    return result;
  }

  // Likewise, while a later step may go on: columns [begin, begin + n) of rank
  // 0's matrix [2, all].
  Values Gather(size_t r, const Values& part, int64_t begin, int64_t all,
                bool goes_on = false) {
    kernels::cuda::Runtime& gpu = *gpus_[r];
    GrowingMemory from(&gpu);
    GrowingMemory to(&gpu);
    const auto n = static_cast<int64_t>(part.size()) / 2;
    gpu.CopyIn(part.data(), from.AtLeast<float>(2 * n),
               {part.size() * sizeof(float)});
    kernels::Matrix out;
    const bool takes = first_ + static_cast<int>(r) == 0;
    if (takes) out = {to.AtLeast<float>(2 * all), 2, all, all};
    communicators_[r]->GatherColumns({from.AtLeast<float>(0), 2, n, n}, begin,
                                     out);
    Values result(static_cast<size_t>(takes ? 2 * all : 0));
    gpu.CopyOut(out.data, result.data(), {result.size() * sizeof(float)});
    Sync(r, goes_on);
    return result;
  }

  // Rank r's device computes until another one has waited so long for it.
  void EnqueueLateness(size_t r, std::chrono::milliseconds late) {
    plan_.enqueue(gpus_[r]->stream(), [this, late] {
      while (plan_.waiting == 0) std::this_thread::yield();
      std::this_thread::sleep_for(late);
    });
  }
  void BeginStep(size_t r, bool is_new) {
    communicators_[r]->BeginStep(is_new);
  }
  void NoteCopy(size_t r) { communicators_[r]->NoteCopy(); }
  bool StepIsCut(size_t r) const { return communicators_[r]->step_is_cut(); }
  // Ends a step: the times since the last call.
  CollectiveTimes TakeTimes(size_t r) {
    communicators_[r]->SubmitStep();
    return communicators_[r]->TakeTimes();
  }

 private:
  void Add(int count, const CommunicatorOptions& options) {
    gpus_ = EmulatedGpus(count);
    std::vector<kernels::cuda::Runtime*> runtimes;
    for (const auto& gpu : gpus_) runtimes.push_back(gpu.get());
    auto made = MakeCommunicators(runtimes, options);
    EXPECT_TRUE(made.ok()) << made.status();
    communicators_ = *std::move(made);
  }
  void Sync(size_t r, bool goes_on = false) {
    gpus_[r]->Sync();
    communicators_[r]->OnSynced(goes_on);
  }

  FakeNccl plan_;
  int first_ = 0;
  std::vector<std::unique_ptr<kernels::cuda::Runtime>> gpus_;
  std::vector<std::unique_ptr<DeviceCommunicator>> communicators_;
};

inline StatusOr<std::vector<std::unique_ptr<DeviceCommunicator>>> Connect(
    const CommunicatorOptions& options) {
  const auto gpus = EmulatedGpus(2);
  const std::vector<kernels::cuda::Runtime*> runtimes = {gpus[0].get(),
                                                         gpus[1].get()};
  return MakeCommunicators(runtimes, options);
}

// Returns what becomes of two processes, threads of this one, with a rank each,
// which join by `options`.
inline std::vector<Status> JoinTwo(CommunicatorOptions options) {
  SharedId id;
  options.all_ranks = 2;
  options.share_id = [&id](const std::string& own) { return id.Share(own); };
  std::vector<Status> joined(2);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < joined.size(); ++r) {
    options.first_rank = static_cast<int32_t>(r);
    threads.emplace_back([&joined, r, options] {
      const auto gpus = EmulatedGpus(1);
      kernels::cuda::Runtime* const runtime = gpus[0].get();
      joined[r] = MakeCommunicators({&runtime, 1}, options).status();
    });
  }
  for (auto& thread : threads) thread.join();
  return joined;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_DEVICE_CUDA_LINKED_RANKS_H_
