// One rank's sums over NCCL, among launches that are gathered: a graph has what
// NCCL enqueues. On emulated devices by a library that stands for NCCL; on a
// GPU by NCCL, where it is there.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/device/cuda/cuda_memory.h"
#include "common/device/cuda/gathered_ranks.h"
#include "common/device/cuda/nccl_exchange.h"
#include "common/device/cuda/own_ranks.h"
#include "common/device/cuda/rank_telling.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/cuda/shared/gather.h"
#include "tests/device/cuda/device_backends.h"
#include "tests/device/cuda/fake_nccl.h"

namespace sluice::testing {
namespace {

using kernels::Matrix;

constexpr int64_t kCols = 1000;
constexpr size_t kBytes = kCols * sizeof(float);

// out = the sum of four nodes, in two sums of two; the nodes are `from`'s rows.
void SumTwice(kernels::cuda::Runtime& device, GatheringCommunicator& ranks,
              const float* from, Matrix out) {
  const std::vector<kernels::TreeNode> nodes = {{0, 1}, {1, 2}};
  const auto part = [from](int64_t i) {
    return Matrix{const_cast<float*>(from) + i * kCols, 1, kCols, kCols};
  };
  const Matrix half = part(0);
  ranks.ReduceTree(2, nodes, std::vector<Matrix>{part(0), part(1)}, half);
  ranks.ReduceTree(2, nodes, std::vector<Matrix>{part(2), half}, half);
  kernels::cuda::TakeRows(device.stream(), half, nullptr, out);
}

TEST(NcclGraphTest, ListsWithGathersAreCapturedAndReplayed) {
  SLUICE_REQUIRE_DEVICE();
  FakeNccl plan;
  auto library = NcclLibrary::Load(NcclToTest(&plan));
  if (!library.ok()) GTEST_SKIP() << library.status();
  std::string error;
  const auto device = kernels::cuda::Runtime::Open(0, &error);
  ASSERT_NE(device, nullptr) << error;
  auto exchange =
      NcclExchange::Make(*std::move(library), {0}, std::chrono::seconds(60),
                         /*in_graphs=*/true);
  ASSERT_TRUE(exchange.ok()) << exchange.status();
  auto ranks = std::make_unique<GatheringCommunicator>(
      device.get(),
      std::make_shared<GatheredRankTable>(OwnRanks::All(1),
                                          *std::move(exchange)),
      0);
  GrowingMemory parts(device.get());
  GrowingMemory sum(device.get());
  const Matrix out = {sum.AtLeast<float>(kCols), 1, kCols, kCols};
  for (int step = 0; step < 8; ++step) {
    std::vector<float> values(3 * kCols);
    std::vector<float> want(kCols);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 7 + static_cast<size_t>(step));
      want[i % kCols] += values[i];
    }
    device->CopyIn(values.data(), parts.AtLeast(3 * kBytes), {3 * kBytes});
    ranks->BeginStep(/*is_new=*/step == 0);
    device->GatherLaunches(step > 0, /*alike=*/1);
    SumTwice(*device, *ranks, parts.AtLeast<float>(0), out);
    device->GatherLaunches(false);
    std::vector<float> got(kCols);
    device->CopyOut(out.data, got.data(), {kBytes});
    device->Sync();
    ranks->OnSynced(/*goes_on=*/false);
    EXPECT_EQ(got, want) << step;
    // A list that may become a graph notes no moments.
    ranks->SubmitStep();
    const CollectiveTimes times = ranks->TakeTimes();
    EXPECT_EQ(times.measured, step == 0) << step;
    EXPECT_EQ(times.reduce_ns > 0, step == 0) << step;
  }
  EXPECT_EQ(device->graph_counts().started, 1u);
  EXPECT_EQ(device->graph_counts().captured, 1u);
  EXPECT_EQ(device->graph_counts().replayed, 5u);
  // Else NCCL would wait for the graph.
  device->DropGraphs();
  ranks.reset();
  EXPECT_EQ(plan.held, 0);
}

// As a process with one rank joins others, which are none here.
TEST(NcclGraphTest, ARankThatJoinsByAnIdReadsWhatItTells) {
  SLUICE_REQUIRE_DEVICE();
  FakeNccl plan;
  auto library = NcclLibrary::Load(NcclToTest(&plan));
  if (!library.ok()) GTEST_SKIP() << library.status();
  std::string error;
  const auto device = kernels::cuda::Runtime::Open(0, &error);
  ASSERT_NE(device, nullptr) << error;
  const auto id = NcclExchange::MakeId(*library, /*in_graphs=*/false);
  ASSERT_TRUE(id.ok()) << id.status();
  const OwnRanks one = OwnRanks::All(1);
  kernels::cuda::Runtime* const runtime = device.get();
  auto exchange = NcclExchange::Join(*std::move(library), {&runtime, 1}, one,
                                     *id, std::chrono::seconds(60));
  ASSERT_TRUE(exchange.ok()) << exchange.status();
  auto telling = TellingExchange::Make(runtime, one, 0);
  ASSERT_TRUE(telling.ok()) << telling.status();
  RankTelling own = {{257, int64_t{1} << 40}, {{}, 5, 6}, 7, true};
  for (int i = 0; i < TellingExchange::kMostNodes; ++i) {
    own.share.nodes.push_back({i, 2 * i});
    const auto told = (*telling)->Tell(own, **exchange);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].of, own.of);
    EXPECT_EQ(told[0].share, own.share);
    EXPECT_EQ(told[0].rows, own.rows);
    EXPECT_EQ(told[0].copied, own.copied);
    own.copied = !own.copied;
  }
}

}  // namespace
}  // namespace sluice::testing
