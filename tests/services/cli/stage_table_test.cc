#include <gtest/gtest.h>

#include <vector>

#include "services/cli/model_tables.h"

namespace sluice::cli {
namespace {

TEST(StageTableTest, ALineTellsAStagesLayersAndItsShareOfTheMemory) {
  LayerLoads loads;
  loads.layers = {10'000'000, 20'000'000, 30'000'000};
  loads.kv = {1'000'000, 1'000'000, 1'000'000};
  const auto table = StageTable(loads, 2, {});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(*table,
            "stage 0: --layers 0-1            30.00 MB of weights         2.00 "
            "MB of KV\n"
            "stage 1: --layers 2-2            30.00 MB of weights         1.00 "
            "MB of KV\n");
  const auto shares =
      StageTable(loads, 2, std::vector<uint64_t>{110'000'000, 62'000'000});
  ASSERT_TRUE(shares.ok()) << shares.status();
  EXPECT_NE(shares->find("2.00 MB of KV  29.1 % of its memory\n"),
            std::string::npos)
      << *shares;
  EXPECT_FALSE(StageTable(loads, 4, {}).ok());
}

}  // namespace
}  // namespace sluice::cli
