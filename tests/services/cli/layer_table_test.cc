#include <gtest/gtest.h>

#include "services/cli/model_tables.h"

namespace sluice::cli {
namespace {

TEST(LayerTableTest, EveryRunOfEqualLayersHasALine) {
  ModelBytes bytes;
  bytes.layers = {3'000'000, 3'000'000, 3'000'000, 4'500'000, 3'000'000};
  bytes.experts.assign(5, 0);
  EXPECT_EQ(LayerTable(bytes, 0),
            "layers 0-2, each                   3.00 MB\n"
            "layer 3                            4.50 MB\n"
            "layer 4                            3.00 MB\n");
}

TEST(LayerTableTest, ExpertsAreToldOfWhereThereAreSomeAndTellLayersApart) {
  ModelBytes bytes;
  bytes.layers = {3'000'000, 9'000'000, 9'000'000, 9'000'000};
  bytes.experts = {0, 8'000'000, 8'000'000, 6'000'000};
  EXPECT_EQ(LayerTable(bytes, 4),
            "layer 0                            3.00 MB\n"
            "layers 1-2, each                   9.00 MB\n"
            "  its experts                      8.00 MB\n"
            "  one of them                      2.00 MB\n"
            "layer 3                            9.00 MB\n"
            "  its experts                      6.00 MB\n"
            "  one of them                      1.50 MB\n");
}

TEST(LayerTableTest, AModelWithoutLayersHasNoLine) {
  EXPECT_EQ(LayerTable(ModelBytes(), 0), "");
}

}  // namespace
}  // namespace sluice::cli
