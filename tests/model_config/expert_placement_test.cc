#include "common/model_config/expert_placement.h"

#include <gtest/gtest.h>

#include <string>

#include "common/model_config/model_config.h"

namespace sluice {
namespace {

// Layer 0 dense, layers 1 to 3 with eight experts.
ModelConfig Sparse() {
  ModelConfig config;
  config.model_type = "test";
  config.layers.resize(4);
  for (int i = 1; i < 4; ++i) config.layers[i].moe.num_experts = 8;
  return config;
}

std::string WithEntries(const std::string& entries) {
  return R"({"hosts": [{"name": "a", "address": "127.0.0.1:1"},
                       {"name": "b", "address": "127.0.0.1:2"}],
             "experts": [)" +
         entries + "]}";
}

std::string ErrorOf(const std::string& text) {
  const auto placement = ParseExpertPlacement(text, Sparse());
  EXPECT_EQ(placement.status().code(), StatusCode::kInvalidArgument) << text;
  return Message(placement.status());
}

TEST(ExpertPlacementTest, SaysWhoHasWhatAndWhatStays) {
  const auto placement = ParseExpertPlacement(
      WithEntries(R"({"layers": "1-3", "experts": "0-3", "hosts": ["b", "a"]},
                     {"layers": "1-2", "experts": "4-7", "hosts": ["local"]},
                     {"layers": "3", "experts": "4-5", "hosts": ["a"]},
                     {"layers": "3", "experts": "6-7", "hosts": ["local"]})"),
      Sparse());
  ASSERT_TRUE(placement.ok()) << placement.status();
  EXPECT_TRUE(placement->layers[0].empty());
  EXPECT_EQ(placement->layers[1],
            (std::vector<PlacedExperts>{{{0, 4}, {0, 1}}, {{4, 8}, {}}}));
  EXPECT_EQ(placement->Local(0, 0), std::vector<ExpertRange>{});
  EXPECT_EQ(placement->Local(2, 8), (std::vector<ExpertRange>{{4, 8}}));
  EXPECT_EQ(placement->Local(3, 8), (std::vector<ExpertRange>{{6, 8}}));
  EXPECT_EQ(placement->On(0, 3), (std::vector<ExpertRange>{{0, 6}}));
  EXPECT_EQ(placement->On(1, 3), (std::vector<ExpertRange>{{0, 4}}));
  EXPECT_EQ(*placement->HostIndex("b"), 1);
  EXPECT_FALSE(placement->IsRemote(0, 1));
  EXPECT_TRUE(placement->IsRemote(0, 2));
}

TEST(ExpertPlacementTest, WithoutLayersEverythingStays) {
  const ExpertPlacement nothing;
  EXPECT_EQ(nothing.Local(2, 8), (std::vector<ExpertRange>{{0, 8}}));
  EXPECT_EQ(nothing.On(0, 2), std::vector<ExpertRange>{});
  EXPECT_FALSE(nothing.IsRemote(0, 4));
}

TEST(ExpertPlacementTest, NeighboursOnTheSameHostsAreOneRange) {
  const auto placement = ParseExpertPlacement(
      WithEntries(R"({"layers": "1-3", "experts": "4-7", "hosts": ["a"]},
                     {"layers": "1-3", "experts": "0-3", "hosts": ["a"]})"),
      Sparse());
  ASSERT_TRUE(placement.ok()) << placement.status();
  EXPECT_EQ(placement->layers[2], (std::vector<PlacedExperts>{{{0, 8}, {0}}}));
}

TEST(ExpertPlacementTest, ReadsBackAsItWasWritten) {
  const auto placement = ParseExpertPlacement(
      WithEntries(R"({"layers": "1-3", "experts": "0-2", "hosts": ["a", "b"]},
                     {"layers": "1", "experts": "3-7", "hosts": ["local"]},
                     {"layers": "2-3", "experts": "3-7", "hosts": ["b"]})"),
      Sparse());
  ASSERT_TRUE(placement.ok()) << placement.status();
  const auto again = ParseExpertPlacement(ToText(*placement), Sparse());
  ASSERT_TRUE(again.ok()) << again.status() << ToText(*placement);
  EXPECT_EQ(*again, *placement);
}

TEST(ExpertPlacementTest, RangesOfLayersPassOverTheDenseOnes) {
  ModelConfig config = Sparse();
  config.layers.resize(6);
  config.layers[2] = config.layers[5] = LayerConfig();
  config.layers[4] = config.layers[1];
  const auto placement = ParseExpertPlacement(
      WithEntries(R"({"layers": "1-4", "experts": "0-7", "hosts": ["a"]})"),
      config);
  ASSERT_TRUE(placement.ok()) << placement.status();
  for (int32_t layer = 0; layer < config.num_layers(); ++layer) {
    EXPECT_EQ(placement->layers[layer].empty(), !config.is_sparse(layer));
  }
  const auto again = ParseExpertPlacement(ToText(*placement), config);
  ASSERT_TRUE(again.ok()) << again.status() << ToText(*placement);
  EXPECT_EQ(*again, *placement);
  EXPECT_EQ(
      Message(ParseExpertPlacement(
                  WithEntries(
                      R"({"layers": "2", "experts": "0-7", "hosts": ["a"]})"),
                  config)
                  .status()),
      "placement: experts[0]: layers 2 have no experts, layers 1, 3-4 have");
}

TEST(ExpertPlacementTest, NamesTheExpertThatIsNowhere) {
  EXPECT_EQ(ErrorOf(WithEntries(
                R"({"layers": "1-3", "experts": "0-5", "hosts": ["a"]},
                   {"layers": "1-2", "experts": "6-7", "hosts": ["local"]})")),
            "placement: layer 3: experts 6 to 7 are placed nowhere");
  EXPECT_EQ(ErrorOf(WithEntries("")),
            "placement: layer 1: experts 0 to 7 are placed nowhere");
}

TEST(ExpertPlacementTest, NamesTheExpertThatIsTwice) {
  EXPECT_EQ(ErrorOf(WithEntries(
                R"({"layers": "1-3", "experts": "0-7", "hosts": ["a"]},
                   {"layers": "2", "experts": "3", "hosts": ["b"]})")),
            "placement: layer 2: expert 3 is placed twice, on a and on b; "
            "replicas stand in one entry");
}

TEST(ExpertPlacementTest, NamesWhatTheModelDoesNotHave) {
  EXPECT_EQ(ErrorOf(WithEntries(
                R"({"layers": "0-3", "experts": "0-7", "hosts": ["a"]})")),
            "placement: experts[0]: layers must be within 1 and 3, got '0-3'");
  EXPECT_EQ(ErrorOf(WithEntries(
                R"({"layers": "1-3", "experts": "0-8", "hosts": ["a"]})")),
            "placement: experts[0]: experts must be within 0 and 7, got '0-8'");
  EXPECT_EQ(ErrorOf(WithEntries(
                R"({"layers": "1-3", "experts": "0-7", "hosts": ["c"]})")),
            "placement: experts[0]: host 'c' is none of the placement's: a, b");
  ModelConfig dense = Sparse();
  dense.layers.assign(4, LayerConfig());
  EXPECT_EQ(Message(ParseExpertPlacement("{}", dense).status()),
            "placement: a model of type test has no experts");
  ModelConfig mixed = Sparse();
  mixed.layers[2].moe.num_experts = 4;
  EXPECT_EQ(Message(ParseExpertPlacement("{}", mixed).status()),
            "layer 2 has 4 experts, 0 per token, the first sparse layer 8, 0 "
            "per token: experts on hosts are the same in all layers");
}

TEST(ExpertPlacementTest, RefusesWhatIsNoPlacement) {
  for (const char* text :
       {"", "[]", "{}", R"({"hosts": []})", R"({"hosts": 1, "experts": []})",
        R"({"hosts": [{"name": "local"}], "experts": []})",
        R"({"hosts": [{"name": ""}], "experts": []})",
        R"({"hosts": [{"name": "a b"}], "experts": []})",
        R"({"hosts": [{"name": "a"}, {"name": "a"}], "experts": []})",
        R"({"hosts": [{"name": "a", "port": 1}], "experts": []})",
        R"({"hosts": [3], "experts": []})",
        R"({"hosts": [], "experts": [3]})"}) {
    EXPECT_NE(ErrorOf(text), "") << text;
  }
  for (const char* entry :
       {R"({"layers": "1-3", "experts": "0-7", "hosts": []})",
        R"({"layers": "1-3", "experts": "0-7"})",
        R"({"layers": "1-3", "experts": "0-7", "hosts": ["a", "a"]})",
        R"({"layers": "1-3", "experts": "0-7", "hosts": ["a", "local"]})",
        R"({"layers": "1-3", "experts": "0-7", "hosts": [1]})",
        R"({"layers": "3-1", "experts": "0-7", "hosts": ["a"]})",
        R"({"layers": "1-", "experts": "0-7", "hosts": ["a"]})",
        R"({"layers": "1-3", "experts": "-1-7", "hosts": ["a"]})",
        R"({"layers": "1-3", "experts": "0-99999999999", "hosts": ["a"]})",
        R"({"layers": 1, "experts": "0-7", "hosts": ["a"]})"}) {
    EXPECT_NE(ErrorOf(WithEntries(entry)), "") << entry;
  }
}

}  // namespace
}  // namespace sluice
