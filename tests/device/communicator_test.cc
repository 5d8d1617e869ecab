#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/concurrency/meeting_point.h"
#include "common/device/cpu/thread_communicator.h"

namespace sluice {
namespace {

using kernels::AlignedNodes;
using kernels::ConstMatrix;
using kernels::Matrix;
using kernels::TreeNode;

constexpr int64_t kRows = 3;
constexpr int64_t kCols = 37;

using Values = std::vector<float>;  // [kRows, kCols]

ConstMatrix View(const Values& values) {
  return {values.data(), kRows, kCols, kCols};
}
Matrix View(Values& values) { return {values.data(), kRows, kCols, kCols}; }

// Leaves whose sum depends on the order of the additions.
std::vector<Values> MakeLeaves(int n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Values> leaves(n, Values(kRows * kCols));
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
      node.begin, node.end, [&](int32_t i) { return leaves[i]; },
      [](Values left, const Values& right) {
        for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
        return left;
      });
}

bool SameBits(const Values& a, const Values& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The communicators of so many ranks.
std::vector<ThreadCommunicator> MakeGroup(int ranks) {
  const auto table = std::make_shared<RankTable>(ranks);
  std::vector<ThreadCommunicator> group;
  for (int r = 0; r < ranks; ++r) group.emplace_back(table, r);
  return group;
}

// Runs body(rank) on one thread per rank.
void OnRanks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(body, r);
  for (auto& thread : threads) thread.join();
}

// Each rank owns leaves [cuts[r], cuts[r+1]) and brings their aligned nodes.
std::vector<Values> ReduceOverRanks(const std::vector<Values>& leaves,
                                    const std::vector<int>& cuts,
                                    bool in_place) {
  const int n = static_cast<int>(leaves.size());
  const int ranks = static_cast<int>(cuts.size()) - 1;
  auto group = MakeGroup(ranks);
  std::vector<Values> outs(ranks);
  OnRanks(ranks, [&](int r) {
    const auto nodes = AlignedNodes(cuts[r], cuts[r + 1], n);
    std::vector<Values> sums;
    for (TreeNode node : nodes) sums.push_back(SumNode(leaves, node));
    std::vector<ConstMatrix> parts;
    for (const Values& sum : sums) parts.push_back(View(sum));
    Values out(kRows * kCols);
    Values& target = in_place && !sums.empty() ? sums[0] : out;
    group[r].ReduceTree(n, nodes, parts, View(target));
    outs[r] = target;
  });
  return outs;
}

TEST(CommunicatorTest, EveryRankCountGivesTheBitsOfOneRank) {
  for (int n : {1, 2, 3, 6, 8, 9, 13, 16}) {
    const auto leaves = MakeLeaves(n, n);
    const Values root = SumNode(leaves, {0, n});
    for (int ranks = 1; ranks <= n; ++ranks) {
      std::vector<int> cuts;
      for (int r = 0; r <= ranks; ++r) cuts.push_back(r * n / ranks);
      for (bool in_place : {false, true}) {
        for (const Values& out : ReduceOverRanks(leaves, cuts, in_place)) {
          EXPECT_TRUE(SameBits(out, root)) << n << " leaves, " << ranks;
        }
      }
    }
  }
}

TEST(CommunicatorTest, AnySplitOfTheLeavesGivesTheSameBits) {
  std::mt19937 random(7);
  const int n = 16;
  const auto leaves = MakeLeaves(n, 1);
  const Values root = SumNode(leaves, {0, n});
  for (int trial = 0; trial < 30; ++trial) {
    std::vector<int> cuts = {0, n};
    for (int i = 0; i < 4; ++i) cuts.push_back(static_cast<int>(random() % 17));
    std::sort(cuts.begin(), cuts.end());  // some ranks may bring nothing
    for (const Values& out : ReduceOverRanks(leaves, cuts, false)) {
      ASSERT_TRUE(SameBits(out, root));
    }
  }
}

TEST(CommunicatorTest, RanksMayOwnLeavesInAnyOrder) {
  const int n = 12;
  const int ranks = 3;
  const auto leaves = MakeLeaves(n, 2);
  const Values root = SumNode(leaves, {0, n});
  // Aligned nodes, two of them pairs, dealt out like cards.
  const std::vector<TreeNode> nodes = {{0, 2}, {2, 3}, {3, 4},  {4, 6},  {6, 7},
                                       {7, 8}, {8, 9}, {9, 10}, {10, 12}};
  for (int shift = 0; shift < ranks; ++shift) {
    auto group = MakeGroup(ranks);
    OnRanks(ranks, [&](int r) {
      std::vector<TreeNode> own;
      std::vector<Values> sums;
      for (size_t i = 0; i < nodes.size(); ++i) {
        if (static_cast<int>(i + shift) % ranks != r) continue;
        own.push_back(nodes[i]);
        sums.push_back(SumNode(leaves, nodes[i]));
      }
      std::vector<ConstMatrix> parts;
      for (const Values& sum : sums) parts.push_back(View(sum));
      Values out(kRows * kCols);
      group[r].ReduceTree(n, own, parts, View(out));
      EXPECT_TRUE(SameBits(out, root)) << "rank " << r;
    });
  }
}

TEST(CommunicatorTest, OneRankJoinsSeveralNodesLikeTheTree) {
  const int n = 11;
  const auto leaves = MakeLeaves(n, 3);
  ThreadCommunicator self = MakeGroup(1)[0];
  std::vector<TreeNode> nodes;
  std::vector<ConstMatrix> parts;
  for (int i = 0; i < n; ++i) {
    nodes.push_back({i, i + 1});
    parts.push_back(View(leaves[i]));
  }
  Values out(kRows * kCols);
  self.ReduceTree(n, nodes, parts, View(out));
  EXPECT_TRUE(SameBits(out, SumNode(leaves, {0, n})));
}

TEST(CommunicatorTest, ANodeOfOneRankAloneReachesAllRanks) {
  const auto leaves = MakeLeaves(1, 5);
  const auto outs = ReduceOverRanks(leaves, {0, 1, 1, 1}, false);
  for (const Values& out : outs) EXPECT_TRUE(SameBits(out, leaves[0]));
}

TEST(CommunicatorTest, GatherPutsEveryRanksColumnsIntoRankZero) {
  constexpr int kRanks = 3;
  auto group = MakeGroup(kRanks);
  const std::vector<int64_t> cuts = {0, 5, 5, 12};
  Values all(2 * 12, -1.0f);
  OnRanks(kRanks, [&](int r) {
    const int64_t n = cuts[r + 1] - cuts[r];
    Values part(2 * n);
    for (int64_t t = 0; t < 2; ++t) {
      for (int64_t c = 0; c < n; ++c) {
        part[t * n + c] = static_cast<float>(100 * t + cuts[r] + c);
      }
    }
    group[r].GatherColumns({part.data(), 2, n, n}, cuts[r],
                           r == 0 ? Matrix{all.data(), 2, 12, 12} : Matrix{});
  });
  for (int64_t t = 0; t < 2; ++t) {
    for (int64_t c = 0; c < 12; ++c) {
      EXPECT_EQ(all[t * 12 + c], static_cast<float>(100 * t + c));
    }
  }
}

TEST(CommunicatorTest, ARanksTimesAreItsOwnAndTakenOnce) {
  // Who comes late is waited for. The others may be late by themselves, so
  // only many rounds tell.
  constexpr int64_t kLateNs = 300'000;
  constexpr int kRounds = 40;
  auto group = MakeGroup(2);
  MeetingPoint meeting(2);
  OnRanks(2, [&](int r) {
    ThreadCommunicator& self = group[r];
    int64_t most = 0;
    for (int round = 0; round < kRounds; ++round) {
      meeting.Arrive();
      const int64_t start = MonotonicNanos();
      while (r == 1 && MonotonicNanos() - start < kLateNs) {
      }
      float value = 1;
      const TreeNode node = {r, r + 1};
      const ConstMatrix part = {&value, 1, 1, 1};
      float sum = 0;
      self.ReduceTree(2, {&node, 1}, {&part, 1}, {&sum, 1, 1, 1});
      const int64_t reduced = MonotonicNanos();
      float both[2] = {};
      self.GatherColumns(part, r, r == 0 ? Matrix{both, 1, 2, 2} : Matrix{});
      const CollectiveTimes times = self.TakeTimes();
      EXPECT_GT(times.gather_ns, 0);
      EXPECT_LE(times.gather_ns, MonotonicNanos() - reduced);
      EXPECT_GT(times.reduce_ns, 0);
      EXPECT_LE(times.reduce_ns, reduced - start);
      EXPECT_LE(times.wait_ns, times.reduce_ns + times.gather_ns);
      most = std::max(most, times.wait_ns);
      const CollectiveTimes again = self.TakeTimes();
      EXPECT_EQ(again.reduce_ns + again.gather_ns + again.wait_ns, 0);
    }
    if (r == 0) {
      EXPECT_GE(most, kLateNs / 2);
    }
  });
  ThreadCommunicator alone = MakeGroup(1)[0];
  float value = 1;
  alone.GatherColumns({&value, 1, 1, 1}, 0, {&value, 1, 1, 1});
  const CollectiveTimes none = alone.TakeTimes();
  EXPECT_EQ(none.reduce_ns + none.gather_ns + none.wait_ns, 0);
}

TEST(CommunicatorTest, ManyRoundsWithMoreRanksThanCoresStayInStep) {
  constexpr int kRanks = 5;
  auto group = MakeGroup(kRanks);
  MeetingPoint meeting(kRanks);
  OnRanks(kRanks, [&](int r) {
    ThreadCommunicator& self = group[r];
    for (int round = 0; round < 300; ++round) {
      float value = static_cast<float>(round * (r + 1));
      const TreeNode node = {r, r + 1};
      const ConstMatrix part = {&value, 1, 1, 1};
      float sum = 0;
      self.ReduceTree(kRanks, {&node, 1}, {&part, 1}, {&sum, 1, 1, 1});
      ASSERT_EQ(sum, static_cast<float>(round * 15));
      if (round % 7 == 0) meeting.Arrive();
    }
  });
}

}  // namespace
}  // namespace sluice
