#include "tests/cuda_machine/probes/memory_passes.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/shared/gather.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

// Memory of whole loads, aligned for them.
struct alignas(16) Four {
  float values[4];
};

TEST(CudaStreamsTest, EveryFloatIsReadAndCopiedOnce) {
  for (const int64_t fours : {1, 255, 1024, 1025, 5000}) {
    std::vector<Four> from(static_cast<size_t>(fours), Four{{1, 1, 1, 1}});
    const float* const data = from[0].values;
    float total = 0;
    BothWays([&](Stream stream) {
      std::vector<float> sums(kStreamThreads, 0.0f);
      ReadAll(stream, data, 4 * fours, sums.data());
      total = 0;
      for (const float sum : sums) total += sum;
      return std::vector<float>{total};
    });
    EXPECT_EQ(total, static_cast<float>(4 * fours));
    const auto values = RandomFloats(1, 4 * fours);
    std::copy(values.begin(), values.end(), from[0].values);
    const auto copied = BothWays([&](Stream stream) {
      std::vector<Four> to(from.size());
      CopyAll(stream, data, 4 * fours, to[0].values);
      DoNothing(stream);
      return std::vector<float>(to[0].values, to[0].values + 4 * fours);
    });
    EXPECT_TRUE(SameBits(copied, values));
  }
}

// Through both places, of one block and of several.
TEST(CudaStreamsTest, LaunchesPassOnWhatOthersWroteAndOne) {
  constexpr int kLanes = 32;
  for (const int64_t blocks : {1, 3}) {
    const auto passed = BothWays([&](Stream stream) {
      std::vector<uint32_t> from(static_cast<size_t>(blocks) * kLanes);
      std::iota(from.begin(), from.end(), 0u);
      std::vector<uint32_t> to(from.size());
      PassOn(stream, from.data(), to.data(), blocks);
      PassOn(stream, to.data(), from.data(), blocks);
      return std::vector<float>(from.begin(), from.end());
    });
    for (size_t i = 0; i < passed.size(); ++i) {
      EXPECT_EQ(passed[i],
                static_cast<float>((i + 2 * kLanes) % passed.size() + 2));
    }
  }
  Machine machine(Schedule::kForward);
  machine.Limit({48 * 1024, 7, false});
  EXPECT_EQ(Multiprocessors(&machine), 7);
}

// Aligned rows, and rows that are not, of one and of two pieces.
TEST(CudaGatherTest, RowsByIndexInOrderAndFilled) {
  const std::vector<int32_t> rows = {4, 0, 0, 3};
  for (const int64_t cols : {3, 200, 201, 512, 600}) {
    SCOPED_TRACE(cols);
    const OwnedMatrix x(5, cols, RandomFloats(2, 5 * cols));
    for (const int64_t pad : {3, 4}) {
      const auto taken = BothWays([&](Stream stream) {
        OwnedMatrix y(4, cols, pad);
        TakeRows(stream, x.view(), rows.data(), y.view());
        EXPECT_TRUE(y.MarkIntact());
        return y.values();
      });
      for (int64_t i = 0; i < 4 * cols; ++i) {
        ASSERT_EQ(taken[i], x.view().row(rows[i / cols])[i % cols]);
      }
      const auto all = BothWays([&](Stream stream) {
        OwnedMatrix y(5, cols, pad);
        TakeRows(stream, x.view(), nullptr, y.view());
        return y.values();
      });
      EXPECT_TRUE(SameBits(all, x.values()));
    }
  }
  const auto filled = BothWays([&](Stream stream) {
    OwnedMatrix y(3, 130, 2);
    Fill(stream, -1.5f, y.view());
    EXPECT_TRUE(y.MarkIntact());
    return y.values();
  });
  EXPECT_EQ(filled, std::vector<float>(390, -1.5f));
}

// Every tree of up to 13 leaves, cut into the nodes of three ranks, and one of
// more parts than small launches take: every rank has every third leaf.
TEST(CudaGatherTest, NodesAreJoinedInTheTree) {
  for (const int32_t leaves :
       {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 333}) {
    const auto values = RandomFloats(3, leaves * 40);
    const auto leaf = [&](int32_t i) {
      return std::vector<float>(values.begin() + i * 40,
                                values.begin() + (i + 1) * 40);
    };
    const auto join = [](std::vector<float> a, const std::vector<float>& b) {
      for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
      return a;
    };
    std::vector<OwnedMatrix> owned;
    std::vector<TreeNode> nodes;
    for (int32_t rank = 0; rank < 3; ++rank) {
      for (const TreeNode& node :
           AlignedNodes(leaves * rank / 3, leaves * (rank + 1) / 3, leaves)) {
        nodes.push_back(node);
        owned.emplace_back(2, 20, ReduceTree(node.begin, node.end, leaf, join));
      }
    }
    if (leaves > 13) {
      nodes.clear();
      owned.clear();
      for (int32_t i = 0; i < leaves; ++i) {
        nodes.push_back({i, i + 1});
        owned.emplace_back(2, 20, leaf(i));
      }
    }
    std::vector<NodeRows> parts;
    for (size_t i = 0; i < nodes.size(); ++i) {
      parts.push_back({nodes[i], owned[i].view()});
    }
    const auto want = ReduceTree(0, leaves, leaf, join);
    // Aligned columns, and columns that are not.
    for (const auto& [pad, middle] : {std::pair(2, 7), {4, 8}}) {
      const auto got = BothWays([&](Stream stream) {
        OwnedMatrix a(2, 20, pad);
        OwnedMatrix b(2, 20);
        const Matrix outs[] = {a.view(), b.view()};
        JoinNodes(stream, parts, 0, middle, outs);
        JoinNodes(stream, parts, middle, 20, outs);
        EXPECT_TRUE(a.MarkIntact());
        EXPECT_TRUE(SameBits(a.values(), b.values()));
        return a.values();
      });
      EXPECT_TRUE(SameBits(got, want)) << leaves;
    }
  }
}

// One part, and several, of which one is an output.
TEST(CudaGatherTest, PiecesOfRowsAreJoinedInPlace) {
  constexpr int64_t kCols = 1036;
  for (const int32_t count : {1, 2, 9}) {
    for (const int64_t begin : {4, 5}) {
      const auto values = RandomFloats(4, count * kCols);
      const auto leaf = [&](int32_t i) {
        return std::vector<float>(values.begin() + i * kCols,
                                  values.begin() + (i + 1) * kCols);
      };
      const auto sum =
          ReduceTree(0, count, leaf,
                     [](std::vector<float> a, const std::vector<float>& b) {
                       for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
                       return a;
                     });
      auto want = leaf(count - 1);
      std::copy(sum.begin() + begin, sum.end(), want.begin() + begin);
      const auto got = BothWays([&](Stream stream) {
        std::vector<OwnedMatrix> owned;
        std::vector<NodeRows> parts;
        for (int32_t i = 0; i < count; ++i)
          owned.emplace_back(1, kCols, leaf(i));
        for (int32_t i = 0; i < count; ++i) {
          parts.push_back({{i, i + 1}, owned[i].view()});
        }
        const Matrix out = owned.back().view();
        JoinNodes(stream, parts, begin, kCols, {&out, 1});
        return owned.back().values();
      });
      EXPECT_TRUE(SameBits(got, want)) << count;
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
