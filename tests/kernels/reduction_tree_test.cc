#include "kernels/reduction_tree.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice::kernels {
namespace {

std::string Pair(const std::string& a, const std::string& b) {
  std::string pair(1, '(');
  pair.append(a).append(1, ' ').append(b).append(1, ')');
  return pair;
}

std::string Tree(int32_t begin, int32_t end) {
  return ReduceTree(
      begin, end, [](int32_t i) { return std::to_string(i); }, Pair);
}

// Joins aligned nodes into the tree over [begin, end).
std::string FromNodes(const std::vector<TreeNode>& nodes, int32_t begin,
                      int32_t end) {
  for (const TreeNode& node : nodes) {
    if (node == TreeNode{begin, end}) return Tree(begin, end);
  }
  if (end - begin == 1) return "missing";
  const int32_t middle = begin + SplitPoint(end - begin);
  return Pair(FromNodes(nodes, begin, middle), FromNodes(nodes, middle, end));
}

TEST(ReductionTreeTest, SplitsAtTheLargestPowerOfTwoBelow) {
  EXPECT_EQ(SplitPoint(2), 1);
  EXPECT_EQ(SplitPoint(3), 2);
  EXPECT_EQ(SplitPoint(4), 2);
  EXPECT_EQ(SplitPoint(5), 4);
  EXPECT_EQ(SplitPoint(8), 4);
  EXPECT_EQ(SplitPoint(9), 8);
}

TEST(ReductionTreeTest, JoinsNeighboursFirst) {
  EXPECT_EQ(Tree(0, 1), "0");
  EXPECT_EQ(Tree(0, 3), "((0 1) 2)");
  EXPECT_EQ(Tree(0, 5), "(((0 1) (2 3)) 4)");
  EXPECT_EQ(Tree(0, 6), "(((0 1) (2 3)) (4 5))");
  EXPECT_EQ(Tree(4, 7), "((4 5) 6)");
}

TEST(ReductionTreeTest, TheWholeRangeIsOneNode) {
  for (int32_t n = 1; n <= 40; ++n) {
    const auto nodes = AlignedNodes(0, n, n);
    ASSERT_EQ(nodes.size(), 1u) << n;
    EXPECT_EQ(nodes[0], (TreeNode{0, n}));
  }
  EXPECT_TRUE(AlignedNodes(3, 3, 9).empty());
}

TEST(ReductionTreeTest, NodesCoverTheirRangeInOrder) {
  for (int32_t n = 1; n <= 33; ++n) {
    for (int32_t begin = 0; begin < n; ++begin) {
      for (int32_t end = begin + 1; end <= n; ++end) {
        int32_t at = begin;
        for (const TreeNode& node : AlignedNodes(begin, end, n)) {
          ASSERT_EQ(node.begin, at);
          ASSERT_LT(node.begin, node.end);
          at = node.end;
        }
        ASSERT_EQ(at, end);
      }
    }
  }
}

TEST(ReductionTreeTest, AnySplitIntoThreeRanksFinishesTheSameTree) {
  for (int32_t n = 1; n <= 24; ++n) {
    const std::string whole = Tree(0, n);
    for (int32_t a = 0; a <= n; ++a) {
      for (int32_t b = a; b <= n; ++b) {
        std::vector<TreeNode> nodes = AlignedNodes(0, a, n);
        for (const TreeNode& node : AlignedNodes(a, b, n)) {
          nodes.push_back(node);
        }
        for (const TreeNode& node : AlignedNodes(b, n, n)) {
          nodes.push_back(node);
        }
        ASSERT_EQ(FromNodes(nodes, 0, n), whole) << n << " " << a << " " << b;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels
