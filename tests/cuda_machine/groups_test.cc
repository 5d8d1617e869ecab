// Products of warp groups on the machine that stands for a GPU: what they are,
// and what of a kernel's mistakes with them is found.
#include <cuda_device/groups.h>

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::kernels::cuda {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kThreads = 2 * kGroupWarps * kWarpLanes;
// More than an octet's own words lie between octets.
constexpr int kOctetWords = 2 * kWarpLanes + 4;

// Runs fn(block, b) on a block of two groups, whose `b` has the words of
// operand B that PutB writes; returns the first fault.
template <typename F>
std::string FirstFaultOf(Schedule schedule, const F& fn) {
  Machine machine(schedule);
  machine.Run(1, kThreads, 16 * 1024, [&](int thread) {
    Block block(&machine, thread);
    fn(block, block.Allocate<uint32_t>(kGroupOctets * kOctetWords));
  });
  return machine.faults().empty() ? "" : machine.faults()[0];
}

uint32_t PairOf(int lower, int upper) {
  return PackPair(static_cast<float>(lower), static_cast<float>(upper));
}
TileA OperandA(const Block& block) {
  const int n = block.thread() % 61;
  return {{PairOf(n, 3), PairOf(-n, 1), PairOf(2, n - 7), PairOf(n, n)}};
}
TileB OperandB(int octet, int lane) {
  return {{PairOf(octet - lane, 2), PairOf(lane % 5, octet)}};
}
void PutB(const Block& block, const Shared<uint32_t>& b) {
  for (int i = block.thread(); i < kGroupOctets * kWarpLanes; i += kThreads) {
    const int octet = i / kWarpLanes;
    const int lane = i % kWarpLanes;
    const TileB words = OperandB(octet, lane);
    for (int word = 0; word < 2; ++word) {
      b.Set(octet * kOctetWords + word * kWarpLanes + lane, words.words[word]);
    }
  }
}

class GroupsTest : public testing::TestWithParam<Schedule> {};

TEST_P(GroupsTest, AreTileProductsOfEveryWarpAndOctet) {
  const auto multiply = [](Block& block, const Shared<uint32_t>& b) {
    PutB(block, b);
    GroupProducts products;
    block.Sync();
    GroupSums sums = {};
    for (int o = 0; o < kGroupOctets; ++o) sums[o].values[1] = 0.5f;
    products.FenceRegisters(sums);
    const TileA a = OperandA(block);
    products.Multiply<kOctetWords>(block, a, b, 0, sums);
    products.Multiply<kOctetWords>(block, a, b, 0, sums);
    products.Commit();
    products.WaitFor(block, sums);
    for (int o = 0; o < kGroupOctets; ++o) {
      TileC want = {{0, 0.5f, 0, 0}};
      block.MultiplyTile(a, OperandB(o, block.lane()), want);
      block.MultiplyTile(a, OperandB(o, block.lane()), want);
      for (int v = 0; v < 4; ++v) {
        EXPECT_EQ(sums[o].values[v], want.values[v]) << o << ", " << v;
      }
    }
  };
  EXPECT_THAT(FirstFaultOf(GetParam(), multiply), IsEmpty());
}

TEST_P(GroupsTest, SumsAreThereOnceTheirGroupIsWaitedFor) {
  const auto multiply = [](Block& block, const Shared<uint32_t>& b) {
    PutB(block, b);
    GroupProducts products;
    block.Sync();
    GroupSums first = {};
    GroupSums second = {};
    for (GroupSums* sums : {&first, &second}) {
      products.FenceRegisters(*sums);
      products.Multiply<kOctetWords>(block, OperandA(block), b, 0, *sums);
      products.Commit();
    }
    products.Wait<2>(block);
    EXPECT_TRUE(std::isnan(first[3].values[2]));
    products.Wait<1>(block);
    EXPECT_FALSE(std::isnan(first[3].values[2]));
    EXPECT_TRUE(std::isnan(second[3].values[2]));
    // Of sums that wait for another group, too.
    products.FenceRegisters(second);
    products.Multiply<kOctetWords>(block, OperandA(block), b, 0, second);
    products.Commit();
    products.Wait<1>(block);
    EXPECT_TRUE(std::isnan(second[3].values[2]));
    products.WaitFor(block, second);
    EXPECT_EQ(second[3].values[2], 2 * first[3].values[2]);
  };
  EXPECT_THAT(FirstFaultOf(GetParam(), multiply), IsEmpty());
}

TEST_P(GroupsTest, ReadWhatIsThereAsLongAsTheyAreUnderWay) {
  const auto multiply = [](bool waits) {
    return [waits](Block& block, const Shared<uint32_t>& b) {
      PutB(block, b);
      GroupProducts products;
      block.Sync();
      GroupSums sums = {};
      products.FenceRegisters(sums);
      products.Multiply<kOctetWords>(block, OperandA(block), b, 0, sums);
      products.Commit();
      if (waits) products.WaitFor(block, sums);
      block.Sync();
      if (block.thread() == 0) b.Set(7, 0);
      products.WaitFor(block, sums);
    };
  };
  EXPECT_THAT(FirstFaultOf(GetParam(), multiply(true)), IsEmpty());
  EXPECT_THAT(FirstFaultOf(GetParam(), multiply(false)),
              HasSubstr("without a barrier"));
}

TEST_P(GroupsTest, OperandsThatAreNotThereAreFound) {
  EXPECT_THAT(FirstFaultOf(GetParam(),
                           [](Block& block, const Shared<uint32_t>& b) {
                             GroupProducts products;
                             GroupSums sums = {};
                             products.FenceRegisters(sums);
                             products.Multiply<kOctetWords>(block, {}, b, 0,
                                                            sums);
                           }),
              HasSubstr("not written"));
  EXPECT_THAT(
      FirstFaultOf(GetParam(),
                   [](Block& block, const Shared<uint32_t>& b) {
                     PutB(block, b);
                     GroupProducts products;
                     block.Sync();
                     GroupSums sums = {};
                     products.FenceRegisters(sums);
                     products.Multiply<kOctetWords>(block, {}, b, 0, sums);
                     products.Commit();
                     products.Multiply<kOctetWords>(block, {}, b, 0, sums);
                   }),
      HasSubstr("without a fence"));
}

INSTANTIATE_TEST_SUITE_P(, GroupsTest,
                         testing::Values(Schedule::kForward,
                                         Schedule::kBackward));

}  // namespace
}  // namespace sluice::kernels::cuda
