#include "kernels/cuda/streams.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/gather.h"
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

TEST(CudaGatherTest, RowsByIndexInOrderAndFilled) {
  const OwnedMatrix x(5, 200, RandomFloats(2, 1000));
  const std::vector<int32_t> rows = {4, 0, 0, 3};
  const auto taken = BothWays([&](Stream stream) {
    OwnedMatrix y(4, 200, 3);
    TakeRows(stream, x.view(), rows.data(), y.view());
    EXPECT_TRUE(y.MarkIntact());
    return y.values();
  });
  for (int64_t i = 0; i < 800; ++i) {
    ASSERT_EQ(taken[i], x.view().row(rows[i / 200])[i % 200]);
  }
  const auto all = BothWays([&](Stream stream) {
    OwnedMatrix y(5, 200, 1);
    TakeRows(stream, x.view(), nullptr, y.view());
    return y.values();
  });
  EXPECT_TRUE(SameBits(all, x.values()));
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
    const auto got = BothWays([&](Stream stream) {
      OwnedMatrix a(2, 20, 2);
      OwnedMatrix b(2, 20);
      const Matrix outs[] = {a.view(), b.view()};
      JoinNodes(stream, parts, 0, 7, outs);
      JoinNodes(stream, parts, 7, 20, outs);
      EXPECT_TRUE(a.MarkIntact());
      EXPECT_TRUE(SameBits(a.values(), b.values()));
      return a.values();
    });
    EXPECT_TRUE(SameBits(got, want)) << leaves;
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
