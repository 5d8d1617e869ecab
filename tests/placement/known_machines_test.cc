#include "common/placement/known_machines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace sluice::placement {
namespace {

using ::testing::HasSubstr;

TEST(KnownMachinesTest, EveryRowIsAMachine) {
  std::set<std::string> names;
  for (const KnownMachine& known : KnownMachines()) {
    EXPECT_TRUE(names.insert(known.name).second) << known.name;
    EXPECT_NE(std::string(known.source), "");
    const std::string name =
        known.memory_gib > 0 ? known.name : Cat(known.name, "-64");
    const auto machine = FindKnownMachine(name);
    ASSERT_TRUE(machine.ok()) << machine.status();
    EXPECT_EQ(machine->name, name);
    EXPECT_EQ(machine->memory, known.memory_gib > 0
                                   ? static_cast<uint64_t>(known.memory_gib)
                                         << 30
                                   : uint64_t{64} << 30);
    EXPECT_GE(machine->rates.read_gb_per_s, 0.8 * known.read_gb_per_s);
    EXPECT_LE(machine->rates.read_gb_per_s, known.read_gb_per_s);
    EXPECT_EQ(machine->rates.is_gpu, known.is_gpu);
    EXPECT_FALSE(machine->is_measured);
  }
  EXPECT_GE(names.size(), 25u);
}

TEST(KnownMachinesTest, NamesAreToldWhereOneIsWrong) {
  const auto wrong = FindKnownMachine("h300");
  EXPECT_EQ(wrong.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(wrong.status()), HasSubstr("rtx4090, "));
  EXPECT_THAT(Message(wrong.status()), HasSubstr("m4-max-GIB"));
  EXPECT_EQ(FindKnownMachine("h100-64").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(FindKnownMachine("m4-max").status()),
              HasSubstr("different memories"));
}

TEST(KnownMachinesTest, AGpuIsKnownByItsDriversName) {
  ASSERT_NE(KnownGpu("NVIDIA H200"), nullptr);
  EXPECT_EQ(KnownGpu("NVIDIA H200")->name, std::string("h200"));
  EXPECT_EQ(KnownGpu("Apple M4"), nullptr);
}

// SLUICE_WRITE=1 in the environment writes the page.
TEST(KnownMachinesTest, ThePageIsTheTable) {
  const std::string path =
      std::string(SLUICE_SOURCE_DIR) + "/common/placement/MACHINES.md";
  if (std::getenv("SLUICE_WRITE") != nullptr) {
    std::ofstream(path) << KnownMachinesPage();
  }
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), KnownMachinesPage());
}

}  // namespace
}  // namespace sluice::placement
