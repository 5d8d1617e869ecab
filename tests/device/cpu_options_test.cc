#include "common/device/cpu/cpu_options.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

using kernels::DotIsa;

TEST(ParseIsaTest, ASetOfThisCpuIsTakenAndAnotherRefusedByName) {
  int taken = 0;
  for (int i = 0; i < kernels::kNumDotIsas; ++i) {
    const auto dot = static_cast<DotIsa>(i);
    const std::string name = kernels::ToString(dot);
    const auto isa = ParseIsa(name);
    ASSERT_EQ(isa.ok(), kernels::HasDotIsa(dot)) << name;
    if (isa.ok()) {
      EXPECT_EQ(isa->dot, dot);
      EXPECT_TRUE(kernels::HasIsa(isa->vectors)) << name;
      ++taken;
    } else {
      EXPECT_EQ(isa.status().message(),
                "isa " + name + ": this CPU has " +
                    kernels::ToString(ParseIsa("auto")->dot) + " at most");
    }
  }
  EXPECT_GE(taken, 1);
  // No CPU has both.
  EXPECT_FALSE(ParseIsa("avx2").ok() && ParseIsa("neon").ok());
}

TEST(ParseIsaTest, AnUnknownSetIsRefusedWithThoseThatThereAre) {
  EXPECT_EQ(ParseIsa("sve").status().message(),
            "isa must be auto, avx512vnni, avx512, avxvnni, avx2, neoni8mm, "
            "neondot, neon or portable, got 'sve'");
}

}  // namespace
}  // namespace sluice
