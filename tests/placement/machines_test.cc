#include "common/placement/machines.h"

#include <gtest/gtest.h>

namespace sluice::placement {
namespace {

TEST(ParseMachineTest, FiguresStandInAnOrder) {
  const auto machine = ParseMachine("48G,80,2000,900");
  ASSERT_TRUE(machine.ok());
  EXPECT_EQ(machine->memory, uint64_t{48} << 30);
  EXPECT_EQ(machine->rates.read_gb_per_s, 80);
  EXPECT_EQ(machine->rates.byte_gop_per_s, 2000);
  EXPECT_EQ(machine->rates.f32_gop_per_s, 900);
  EXPECT_GT(machine->rates.join_seconds, 0);
  for (const char* wrong : {"48G", "48G,x", "x,1", "48G,1,2,3,4", "48G,-1"}) {
    EXPECT_FALSE(ParseMachine(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace sluice::placement
