// The parts of the client that know no host: who has what, batches made and
// answers put together, when something is late.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "common/experts/client/latency_window.h"
#include "common/experts/client/layer_dispatch.h"
#include "common/experts/client/shard_map.h"
#include "common/model_config/model_config.h"

namespace sluice {
namespace {

ExpertPlacement Placement() {
  ModelConfig config;
  config.layers.resize(4);
  for (int i = 1; i < 4; ++i) config.layers[i].moe.num_experts = 8;
  auto placement = ParseExpertPlacement(
      R"({"hosts": [{"name": "a"}, {"name": "b"}],
          "experts": [
            {"layers": "1-2", "experts": "0-2", "hosts": ["a"]},
            {"layers": "1-2", "experts": "3", "hosts": ["local"]},
            {"layers": "1-2", "experts": "4-7", "hosts": ["a", "b"]},
            {"layers": "3", "experts": "0-7", "hosts": ["local"]}]})",
      config);
  EXPECT_TRUE(placement.ok()) << placement.status();
  return *placement;
}

using Nodes = std::vector<kernels::TreeNode>;

TEST(ShardMapTest, HasTheNodesOfWhatIsElsewhere) {
  const ShardMap map(Placement(), {0, 4}, 8);
  EXPECT_TRUE(map.shards(0).empty());
  EXPECT_TRUE(map.nodes(3).empty());
  ASSERT_EQ(map.shards(1).size(), 2u);
  const ExpertShard& first = map.shards(1)[0];
  EXPECT_EQ(first.nodes, (Nodes{{0, 2}, {2, 3}}));
  const ExpertShard& second = map.shards(1)[1];
  EXPECT_EQ(second.nodes, (Nodes{{4, 8}}));
  EXPECT_EQ(second.first_node, 2);
  EXPECT_EQ(ToString(second), "experts 4-7 of layers 1-2");
  EXPECT_EQ(map.nodes(2).size(), 3u);
  EXPECT_EQ(map.max_nodes(), 3);
  EXPECT_EQ(map.ShardOf(1, 3), -1);
  EXPECT_EQ(map.ShardOf(1, 2), 0);
  EXPECT_EQ(map.ShardOf(1, 7), 1);
}

// Four rows of two experts each, of layer 1.
class LayerDispatchTest : public ::testing::Test {
 protected:
  LayerDispatch Dispatch(int32_t max_rows) {
    const RoutedRows routed = {
        1, {x_.data(), 4, 2, 2}, {ids_.data(), weights_.data(), 2}};
    return LayerDispatch(routed, map_, max_rows);
  }
  // An answer of the host: node i of row r is 100 i + r, plus a column's half.
  std::shared_ptr<HostReply> Reply(const wire::ExpertBatch& batch,
                                   const std::vector<int32_t>& rows) {
    auto reply = std::make_shared<HostReply>();
    reply->rows = rows;
    reply->result.rows = batch.rows();
    reply->result.nodes = static_cast<int32_t>(batch.nodes.size());
    reply->result.sums =
        Buffer(sizeof(float) * 2 * rows.size() * batch.nodes.size());
    auto* to = reply->result.sums.as<float>();
    for (size_t node = 0; node < batch.nodes.size(); ++node) {
      for (const int32_t row : rows) {
        *to++ = static_cast<float>(100 * batch.nodes[node].begin + row);
        *to++ = static_cast<float>(100 * batch.nodes[node].begin + row) + 0.5f;
      }
    }
    return reply;
  }
  std::vector<RowFailure> Combine(const LayerDispatch& dispatch) {
    std::vector<kernels::Matrix> matrices;
    for (auto& part : parts_) matrices.push_back({part.data(), 4, 2, 2});
    return dispatch.Combine(matrices);
  }

  std::vector<float> x_ = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<int32_t> ids_ = {0, 3, 2, 6, 3, 3, 5, 7};
  std::vector<float> weights_ = {1, 2, 3, 4, 5, 6, 7, 8};
  const ShardMap map_{Placement(), {0, 4}, 8};
  // Of nodes [0, 2), [2, 3) and [4, 8).
  std::vector<std::vector<float>> parts_{3, std::vector<float>(8, 9.0f)};
};

TEST_F(LayerDispatchTest, IsCutByShardsAndRows) {
  LayerDispatch dispatch = Dispatch(8);
  ASSERT_EQ(dispatch.units().size(), 2u);
  EXPECT_EQ(dispatch.units()[0].rows, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(dispatch.units()[1].rows, (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(dispatch.units()[1].pairs, 3);

  LayerDispatch short_batches = Dispatch(2);
  ASSERT_EQ(short_batches.units().size(), 3u);
  EXPECT_EQ(short_batches.units()[2].chunk, 1);
  EXPECT_EQ(short_batches.units()[2].rows, (std::vector<int32_t>{3}));
}

TEST_F(LayerDispatchTest, ABatchHasTheRowsAndIdsOfItsUnitsAlone) {
  LayerDispatch dispatch = Dispatch(8);
  std::vector<int32_t> rows;
  const size_t second[] = {1};
  const wire::ExpertBatch one = dispatch.MakeBatch(second, rows);
  EXPECT_EQ(rows, (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(one.layer, 1);
  EXPECT_EQ(one.nodes, (Nodes{{4, 8}}));
  EXPECT_EQ(one.counts, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(one.expert_ids, (std::vector<int32_t>{6, 5, 7}));
  EXPECT_EQ(one.weights, (std::vector<float>{4, 7, 8}));
  EXPECT_EQ(one.x.values()[0], 2);
  EXPECT_EQ(one.x.values()[3], 7);

  const size_t both[] = {0, 1};
  const wire::ExpertBatch all = dispatch.MakeBatch(both, rows);
  EXPECT_EQ(rows, (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(all.nodes, (Nodes{{0, 2}, {2, 3}, {4, 8}}));
  EXPECT_EQ(all.counts, (std::vector<int32_t>{1, 2, 2}));
  EXPECT_EQ(all.expert_ids, (std::vector<int32_t>{0, 2, 6, 5, 7}));
}

TEST_F(LayerDispatchTest, AnswersOfOneOrSeveralBatchesGiveTheSameParts) {
  std::vector<std::vector<std::vector<float>>> joined;
  for (const bool together : {true, false}) {
    LayerDispatch dispatch = Dispatch(8);
    const std::vector<std::vector<size_t>> batches =
        together ? std::vector<std::vector<size_t>>{{0, 1}}
                 : std::vector<std::vector<size_t>>{{1}, {0}};
    for (const auto& units : batches) {
      EXPECT_TRUE(dispatch.open());
      std::vector<int32_t> rows;
      const auto batch = dispatch.MakeBatch(units, rows);
      dispatch.Take(units, Reply(batch, rows));
    }
    EXPECT_FALSE(dispatch.open());
    EXPECT_TRUE(Combine(dispatch).empty());
    joined.push_back(parts_);
  }
  EXPECT_EQ(joined[0], joined[1]);
  // Row 1 asks node [2, 3) and [4, 8); row 2 asks nothing elsewhere.
  EXPECT_EQ(joined[0][1][2], 201);
  EXPECT_EQ(joined[0][2][2], 401);
  EXPECT_EQ(joined[0][2][7], 403.5f);
  EXPECT_TRUE(joined[0][2][4] == 0 && std::signbit(joined[0][2][4]));
}

TEST_F(LayerDispatchTest, AUnitIsCutForAHostThatTakesFewerRows) {
  LayerDispatch whole = Dispatch(8);
  std::vector<int32_t> rows;
  const size_t both[] = {0, 1};
  auto batch = whole.MakeBatch(both, rows);
  whole.Take(both, Reply(batch, rows));
  EXPECT_TRUE(Combine(whole).empty());
  const auto wanted = parts_;

  LayerDispatch dispatch = Dispatch(8);
  EXPECT_EQ(dispatch.units()[1].chunk_rows, 4);
  // Asked once already, as a whole.
  DispatchUnit& unit = dispatch.units()[1];
  unit.state = DispatchUnit::State::kSent;
  unit.sent_to = {0};
  unit.refused_by = {5};
  unit.attempts = 3;
  const size_t second[] = {1};
  batch = dispatch.MakeBatch(second, rows);
  const auto late = Reply(batch, rows);
  dispatch.Split(1, 1);
  ASSERT_EQ(dispatch.units().size(), 3u);
  const DispatchUnit& kept = dispatch.units()[1];
  const DispatchUnit& fresh = dispatch.units()[2];
  EXPECT_EQ(kept.rows, (std::vector<int32_t>{1}));
  EXPECT_EQ(kept.pairs, 1);
  EXPECT_EQ(kept.state, DispatchUnit::State::kSent);
  EXPECT_EQ(fresh.rows, (std::vector<int32_t>{3}));
  EXPECT_EQ(fresh.pairs, 2);
  EXPECT_EQ(fresh.state, DispatchUnit::State::kToSend);
  EXPECT_TRUE(fresh.sent_to.empty());
  EXPECT_EQ(fresh.refused_by, (std::vector<int32_t>{5}));
  EXPECT_EQ(fresh.attempts, 3);
  // Chunks of their own: one batch never has two of them.
  EXPECT_EQ(kept.chunk_rows, 1);
  EXPECT_NE(kept.chunk, dispatch.units()[0].chunk);
  EXPECT_NE(kept.chunk, fresh.chunk);

  // The answer to the whole unit is good for what is left of it.
  dispatch.Take(second, late);
  for (const size_t index : {size_t{0}, size_t{2}}) {
    batch = dispatch.MakeBatch(std::span(&index, 1), rows);
    dispatch.Take(std::span(&index, 1), Reply(batch, rows));
  }
  EXPECT_FALSE(dispatch.open());
  EXPECT_TRUE(Combine(dispatch).empty());
  EXPECT_EQ(parts_, wanted);
}

TEST_F(LayerDispatchTest, FailedRowsAreNamedAndFinite) {
  LayerDispatch dispatch = Dispatch(8);
  std::vector<int32_t> rows;
  const size_t first[] = {0};
  const auto batch = dispatch.MakeBatch(first, rows);
  auto reply = Reply(batch, rows);
  reply->result.failures.push_back({1, InvalidArgument("not finite")});
  reply->result.sums.as<float>()[2] = std::nanf("");
  dispatch.Take(first, reply);
  dispatch.units()[1].state = DispatchUnit::State::kFailed;
  dispatch.units()[1].why = Unavailable("nobody");
  const auto failures = Combine(dispatch);
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_EQ(failures[0].row, 1);
  EXPECT_EQ(failures[0].status.code(), StatusCode::kInternal);
  EXPECT_EQ(failures[1].row, 3);
  EXPECT_EQ(failures[1].status.code(), StatusCode::kUnavailable);
  for (const auto& part : parts_) {
    for (const float value : part) EXPECT_TRUE(std::isfinite(value));
  }
  EXPECT_EQ(parts_[0][0], 0);  // row 0 is well
}

TEST(LatencyWindowTest, LateIsTheNinetyNinthPercentileOfTheSize) {
  LatencyWindow window;
  EXPECT_EQ(window.LateNanos(5), LatencyWindow::kUnknownNs);
  for (int64_t i = 1; i <= 256; ++i) window.Add(5, i * 100'000);
  EXPECT_NEAR(static_cast<double>(window.LateNanos(4)), 25.3e6, 0.2e6);
  EXPECT_EQ(window.LateNanos(8), LatencyWindow::kUnknownNs);
  // The latest count: an hour ago is forgotten.
  for (int i = 0; i < 256; ++i) window.Add(7, 10);
  EXPECT_EQ(window.LateNanos(5), LatencyWindow::kMinNs);
  window.Add(0, 1);
  window.Add(int64_t{1} << 62, 1);
}

}  // namespace
}  // namespace sluice
