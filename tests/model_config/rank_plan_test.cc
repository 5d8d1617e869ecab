#include "common/model_config/rank_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

ModelConfig Shape(int32_t heads, int32_t kv_heads, int32_t intermediate) {
  ModelConfig config;
  config.hidden_size = 64;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = 8;
  config.intermediate_size = intermediate;
  config.vocab_size = 1000;
  return config;
}

std::vector<RankPlan> PlanAll(const ModelConfig& config, int32_t ranks) {
  std::vector<RankPlan> plans;
  for (int32_t r = 0; r < ranks; ++r) {
    auto plan = PlanRank(config, ranks, r);
    EXPECT_TRUE(plan.ok()) << plan.status();
    plans.push_back(*std::move(plan));
  }
  return plans;
}

TEST(RankPlanTest, RanksTogetherCoverEverythingOnce) {
  for (const ModelConfig& config :
       {Shape(8, 4, 172), Shape(9, 3, 1536), Shape(32, 8, 8192),
        Shape(6, 2, 176), Shape(4, 4, 100), Shape(40, 10, 40)}) {
    const int32_t most = std::min(config.num_heads, kMaxShards);
    for (int32_t ranks = 1; ranks <= most; ++ranks) {
      int64_t head = 0, o = 0, down = 0, vocab = 0;
      for (const RankPlan& plan : PlanAll(config, ranks)) {
        EXPECT_EQ(plan.head_begin, head);
        EXPECT_GT(plan.head_end, plan.head_begin);
        EXPECT_EQ(plan.attention.col_begin, o);
        EXPECT_EQ(plan.attention.cols(), plan.num_heads() * config.head_dim);
        EXPECT_EQ(plan.mlp.col_begin, down);
        EXPECT_EQ(plan.mlp.bounds.back(), plan.mlp.cols());
        EXPECT_EQ(plan.vocab_begin, vocab);
        head = plan.head_end;
        o = plan.attention.col_end;
        down = plan.mlp.col_end;
        vocab = plan.vocab_end;
        for (int64_t h = 0; h < plan.num_heads(); ++h) {
          const int64_t kv =
              (plan.head_begin + h) / (config.num_heads / config.num_kv_heads);
          EXPECT_EQ(plan.kv_head_begin + plan.kv_heads[h], kv);
          EXPECT_LT(kv, plan.kv_head_end);
        }
      }
      EXPECT_EQ(head, config.num_heads);
      EXPECT_EQ(o, config.num_heads * config.head_dim);
      EXPECT_EQ(down, config.intermediate_size);
      EXPECT_EQ(vocab, config.vocab_size);
    }
  }
}

TEST(RankPlanTest, ShardBordersDependOnTheModelAlone) {
  const ModelConfig config = Shape(8, 4, 172);
  const auto whole = PlanAll(config, 1)[0];
  ASSERT_EQ(whole.mlp.num_leaves, 8);
  for (int32_t ranks : {2, 3, 5, 8}) {
    std::vector<int32_t> borders = {0};
    for (const RankPlan& plan : PlanAll(config, ranks)) {
      for (size_t i = 1; i < plan.mlp.bounds.size(); ++i) {
        borders.push_back(
            static_cast<int32_t>(plan.mlp.col_begin + plan.mlp.bounds[i]));
      }
    }
    EXPECT_EQ(borders, whole.mlp.bounds);
  }
}

TEST(RankPlanTest, DownProjIsCutAtMultiplesOf32AndShardsMayBeEmpty) {
  const auto plan = PlanAll(Shape(8, 8, 70), 1)[0];  // units 32, 32, 6
  for (size_t i = 0; i + 1 < plan.mlp.bounds.size(); ++i) {
    EXPECT_EQ(plan.mlp.bounds[i] % 32, 0);
  }
  EXPECT_EQ(plan.mlp.bounds.size(), 9u);
  EXPECT_EQ(plan.mlp.bounds[0], plan.mlp.bounds[1]);  // empty
}

TEST(RankPlanTest, AKvHeadNeededByTwoRanksIsHeldByBoth) {
  const auto plans = PlanAll(Shape(8, 2, 64), 4);
  EXPECT_EQ(plans[0].kv_head_begin, 0);
  EXPECT_EQ(plans[1].kv_head_begin, 0);
  EXPECT_EQ(plans[1].num_kv_heads(), 1);
  EXPECT_EQ(plans[2].kv_head_begin, 1);
}

TEST(RankPlanTest, MoreRanksThanShardsAreRefusedNamingBoth) {
  const auto plan = PlanRank(Shape(6, 2, 64), 7, 0);
  ASSERT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  const std::string message = Message(plan.status());
  EXPECT_NE(message.find("between 1 and 6"), std::string::npos) << message;
  EXPECT_NE(message.find("got 7"), std::string::npos) << message;
  EXPECT_FALSE(PlanRank(Shape(64, 8, 64), 17, 0).ok());
  EXPECT_TRUE(PlanRank(Shape(64, 8, 64), 16, 0).ok());
  EXPECT_FALSE(PlanRank(Shape(6, 2, 64), 0, 0).ok());
}

}  // namespace
}  // namespace sluice
