#include "common/model_config/rank_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

LayerConfig Layer(int32_t heads, int32_t kv_heads, int32_t intermediate) {
  LayerConfig layer;
  layer.attention.num_heads = heads;
  layer.attention.num_kv_heads = kv_heads;
  layer.attention.head_dim = 8;
  layer.mlp.intermediate_size = intermediate;
  return layer;
}

ModelConfig Shape(const std::vector<LayerConfig>& layers) {
  ModelConfig config;
  config.hidden_size = 64;
  config.vocab_size = 1000;
  config.layers = layers;
  return config;
}

ModelConfig Shape(int32_t heads, int32_t kv_heads, int32_t intermediate) {
  return Shape({Layer(heads, kv_heads, intermediate)});
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

// The ranks' shares of layer `index` are the whole layer, in order.
void ExpectCovered(const std::vector<RankPlan>& plans,
                   const ModelConfig& config, size_t index) {
  const AttentionConfig& attention = config.layers[index].attention;
  int64_t head = 0, o = 0, down = 0;
  for (const RankPlan& plan : plans) {
    const LayerShare& share = plan.layers[index];
    EXPECT_EQ(share.head_begin, head);
    EXPECT_GT(share.head_end, share.head_begin);
    EXPECT_EQ(share.attention.col_begin, o);
    EXPECT_EQ(share.attention.cols(), share.num_heads() * attention.head_dim);
    EXPECT_EQ(share.mlp.col_begin, down);
    EXPECT_EQ(share.mlp.bounds.back(), share.mlp.cols());
    head = share.head_end;
    o = share.attention.col_end;
    down = share.mlp.col_end;
    for (int64_t h = 0; h < share.num_heads(); ++h) {
      const int64_t kv = (share.head_begin + h) /
                         (attention.num_heads / attention.num_kv_heads);
      EXPECT_EQ(share.kv_head_begin + share.kv_heads[h], kv);
      EXPECT_LT(kv, share.kv_head_end);
    }
  }
  EXPECT_EQ(head, attention.num_heads);
  EXPECT_EQ(o, attention.q_size());
  EXPECT_EQ(down, config.layers[index].mlp.intermediate_size);
}

TEST(RankPlanTest, RanksTogetherCoverEverythingOnce) {
  for (const ModelConfig& config :
       {Shape(8, 4, 172), Shape(9, 3, 1536), Shape(32, 8, 8192),
        Shape(6, 2, 176), Shape(4, 4, 100), Shape(40, 10, 40),
        Shape({Layer(8, 4, 172), Layer(6, 2, 96), Layer(32, 32, 40)})}) {
    for (int32_t ranks = 1; ranks <= MostRanks(config); ++ranks) {
      const std::vector<RankPlan> plans = PlanAll(config, ranks);
      int64_t vocab = 0;
      for (const RankPlan& plan : plans) {
        EXPECT_EQ(plan.vocab_begin, vocab);
        vocab = plan.vocab_end;
      }
      EXPECT_EQ(vocab, config.vocab_size);
      for (size_t i = 0; i < config.layers.size(); ++i) {
        ExpectCovered(plans, config, i);
      }
    }
  }
}

TEST(RankPlanTest, ShardBordersDependOnTheModelAlone) {
  const ModelConfig config = Shape(8, 4, 172);
  const auto whole = PlanAll(config, 1)[0].layers[0];
  ASSERT_EQ(whole.mlp.num_leaves, 8);
  for (int32_t ranks : {2, 3, 5, 8}) {
    std::vector<int32_t> borders = {0};
    for (const RankPlan& plan : PlanAll(config, ranks)) {
      const RowShards& mlp = plan.layers[0].mlp;
      for (size_t i = 1; i < mlp.bounds.size(); ++i) {
        borders.push_back(static_cast<int32_t>(mlp.col_begin + mlp.bounds[i]));
      }
    }
    EXPECT_EQ(borders, whole.mlp.bounds);
  }
}

TEST(RankPlanTest, DownProjIsCutAtMultiplesOf32AndShardsMayBeEmpty) {
  // Units 32, 32, 6.
  const auto share = PlanAll(Shape(8, 8, 70), 1)[0].layers[0];
  for (size_t i = 0; i + 1 < share.mlp.bounds.size(); ++i) {
    EXPECT_EQ(share.mlp.bounds[i] % 32, 0);
  }
  EXPECT_EQ(share.mlp.bounds.size(), 9u);
  EXPECT_EQ(share.mlp.bounds[0], share.mlp.bounds[1]);  // empty
}

TEST(RankPlanTest, AKvHeadNeededByTwoRanksIsHeldByBoth) {
  const auto plans = PlanAll(Shape(8, 2, 64), 4);
  EXPECT_EQ(plans[0].layers[0].kv_head_begin, 0);
  EXPECT_EQ(plans[1].layers[0].kv_head_begin, 0);
  EXPECT_EQ(plans[1].layers[0].num_kv_heads(), 1);
  EXPECT_EQ(plans[2].layers[0].kv_head_begin, 1);
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
  // The layer with the fewest counts.
  EXPECT_FALSE(PlanRank(Shape({Layer(8, 2, 64), Layer(4, 2, 64)}), 5, 0).ok());
}

// A format of blocks of so many elements, as quantised ones are.
WeightFormat Blocks(int32_t elements) {
  return {kernels::WeightType::kF32,
          "blocks",
          elements,
          elements,
          elements,
          "exact"};
}

void ExpectTheSameShards(const ModelConfig& config,
                         const std::vector<ColumnFormats>& formats,
                         const std::vector<ColumnFormats>& others) {
  const int32_t most = MostRanks(config, formats);
  ASSERT_EQ(most, MostRanks(config, others));
  for (int32_t ranks = 1; ranks <= most; ++ranks) {
    for (int32_t r = 0; r < ranks; ++r) {
      const auto plan = PlanRank(config, ranks, r, {}, formats);
      const auto want = PlanRank(config, ranks, r, {}, others);
      ASSERT_TRUE(plan.ok() && want.ok());
      const LayerShare& share = plan->layers[0];
      const LayerShare& wanted = want->layers[0];
      ASSERT_EQ(share.attention.col_begin, wanted.attention.col_begin);
      ASSERT_EQ(share.attention.bounds, wanted.attention.bounds);
      ASSERT_EQ(share.mlp.col_begin, wanted.mlp.col_begin);
      ASSERT_EQ(share.mlp.bounds, wanted.mlp.bounds);
      ASSERT_EQ(share.shared_mlp.bounds, wanted.shared_mlp.bounds);
    }
  }
}

// FP8 is in wide runs where that moves no shard's end, for any number of ranks,
// also beside an attention output that is not in FP8.
TEST(RankPlanTest, WideRunsOfFp8HaveTheShardsOfShortOnes) {
  const WeightFormat* const narrow = &FormatOf(kernels::WeightType::kE4m3);
  const WeightFormat* const wide = &FormatOf(kernels::WeightType::kE4m3Wide);
  const WeightFormat* const plain = &FormatOf(kernels::WeightType::kBf16);
  int32_t whole = 0;
  for (const int64_t head_dim : {32, 48, 64, 80, 96, 128, 192, 256}) {
    for (const int32_t heads : {1, 2, 6, 8, 9, 12, 16, 28, 32, 40, 64, 96}) {
      for (const int32_t mlp :
           {96, 128, 1024, 1408, 5120, 8192, 14336, 25600}) {
        ModelConfig config = Shape(heads, 1, mlp);
        config.layers[0].attention.head_dim = head_dim;
        config.layers[0].moe.shared_intermediate_size = mlp;
        const auto of = [&](char letter) {
          const int64_t unit = ShardUnitOf(config.layers[0], letter);
          return unit % kernels::kE4m3WideRun == 0 ? wide : narrow;
        };
        if (of('Q') == wide && of('F') == wide) ++whole;
        ExpectTheSameShards(config, {{of('Q'), of('F'), of('S')}}, {{narrow}});
        ExpectTheSameShards(config, {{plain, of('F'), of('S')}}, {{plain}});
      }
    }
  }
  EXPECT_GT(whole, 50);
}

TEST(RankPlanTest, NoShardEndsWithinABlock) {
  const WeightFormat small = Blocks(32);
  const WeightFormat large = Blocks(256);
  // Heads of 8: a block of 32 is four heads, one of 256 is 32.
  const ModelConfig config = Shape(64, 8, 1024);
  for (const WeightFormat* format : {&small, &large}) {
    const std::vector<ColumnFormats> formats = {{format, format, format}};
    const int64_t block = format->block_elements;
    const int32_t most = MostRanks(config, formats);
    EXPECT_EQ(most, block == 32 ? 16 : 2);
    for (int32_t ranks = 1; ranks <= most; ++ranks) {
      int64_t columns = 0;
      for (int32_t r = 0; r < ranks; ++r) {
        const auto plan = PlanRank(config, ranks, r, {}, formats);
        ASSERT_TRUE(plan.ok()) << plan.status();
        const LayerShare& share = plan->layers[0];
        for (const RowShards* shards : {&share.attention, &share.mlp}) {
          for (const int32_t bound : shards->bounds) {
            EXPECT_EQ((shards->col_begin + bound) % block, 0);
          }
        }
        EXPECT_EQ(share.head_begin * 8, share.attention.col_begin);
        columns += share.attention.cols();
      }
      EXPECT_EQ(columns, 512);
    }
    EXPECT_EQ(Message(PlanRank(config, most + 1, 0, {}, formats).status()),
              Cat("ranks must be between 1 and ", most,
                  " for a model of 64 query heads in shards of whole ",
                  block / 8, ", got ", most + 1));
  }
  // A block within a head asks for nothing more.
  ModelConfig wide = Shape(6, 2, 64);
  wide.layers[0].attention.head_dim = 64;
  const std::vector<ColumnFormats> formats = {{&small, &small, &small}};
  EXPECT_EQ(MostRanks(wide, formats), 6);
}

}  // namespace
}  // namespace sluice
