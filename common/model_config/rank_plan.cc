#include "common/model_config/rank_plan.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/tensor/weight_format.h"

namespace sluice {
namespace {

// The cut unit of every type of weights that there is.
constexpr int64_t kMlpShardColumns =
    FormatOf(kernels::WeightType::kF32).cut_unit;

// `units` of `unit_columns` (the last may be short of `columns`) over
// num_leaves shards, of which this rank owns [begin, end).
RowShards MakeShards(int64_t columns, int64_t unit_columns, int32_t num_leaves,
                     int32_t begin, int32_t end) {
  const int64_t units = (columns + unit_columns - 1) / unit_columns;
  const auto column = [&](int32_t shard) {
    return std::min(columns, CutAt(units, num_leaves, shard) * unit_columns);
  };
  RowShards shards;
  shards.num_leaves = num_leaves;
  shards.col_begin = column(begin);
  shards.col_end = column(end);
  for (int32_t s = begin; s <= end; ++s) {
    shards.bounds.push_back(static_cast<int32_t>(column(s) - column(begin)));
  }
  shards.nodes = kernels::AlignedNodes(begin, end, num_leaves);
  for (const kernels::TreeNode& node : shards.nodes) {
    shards.own_nodes.push_back({node.begin - begin, node.end - begin});
  }
  return shards;
}

// The share of rank `rank` when the ids of `runs` are cut into `ranks`.
std::vector<ExpertRange> CutRuns(const std::vector<ExpertRange>& runs,
                                 int32_t ranks, int32_t rank) {
  int64_t total = 0;
  for (const ExpertRange& run : runs) total += run.size();
  const auto begin = static_cast<int32_t>(CutAt(total, ranks, rank));
  const auto end = static_cast<int32_t>(CutAt(total, ranks, rank + 1));
  std::vector<ExpertRange> own;
  int32_t first = 0;  // how many ids stand before the run
  for (const ExpertRange& run : runs) {
    const int32_t from = std::max(begin - first, 0);
    const int32_t to = std::min(end - first, run.size());
    if (from < to) own.push_back({run.begin + from, run.begin + to});
    first += run.size();
  }
  return own;
}

}  // namespace

OwnRange OwnRangeOf(const RankPlan& plan, const ModelConfig& config,
                    char letter) {
  const int64_t dim = config.head_dim;
  const std::pair<char, OwnRange> ranges[] = {
      {'Q', {plan.attention.col_begin, plan.attention.col_end}},
      {'K', {plan.kv_head_begin * dim, plan.kv_head_end * dim}},
      {'N', {plan.head_begin, plan.head_end}},
      {'F', {plan.mlp.col_begin, plan.mlp.col_end}},
      {'S', {plan.shared_mlp.col_begin, plan.shared_mlp.col_end}},
      {'V', {plan.vocab_begin, plan.vocab_end}}};
  for (const auto& [name, range] : ranges) {
    if (name == letter) return range;
  }
  SLUICE_CHECK(false);
}

StatusOr<RankPlan> PlanRank(const ModelConfig& config, int32_t ranks,
                            int32_t rank, const ExpertPlacement& placement) {
  const int32_t num_shards = NumShards(config);
  if (ranks < 1 || ranks > num_shards) {
    return InvalidArgument("ranks must be between 1 and ", num_shards,
                           " for a model of ", config.num_heads,
                           " query heads, got ", ranks);
  }
  RankPlan plan;
  plan.rank = rank;
  plan.ranks = ranks;
  const auto begin = static_cast<int32_t>(CutAt(num_shards, ranks, rank));
  const auto end = static_cast<int32_t>(CutAt(num_shards, ranks, rank + 1));
  const RankHeads heads = HeadsOf(config, ranks, rank);
  plan.head_begin = heads.begin;
  plan.head_end = heads.end;
  plan.kv_head_begin = heads.kv_begin;
  plan.kv_head_end = heads.kv_end;
  const int64_t group = config.num_heads / config.num_kv_heads;
  for (int64_t head = plan.head_begin; head < plan.head_end; ++head) {
    plan.kv_heads.push_back(
        static_cast<int32_t>(head / group - plan.kv_head_begin));
  }
  plan.attention = MakeShards(config.num_heads * config.head_dim,
                              config.head_dim, num_shards, begin, end);
  plan.mlp = MakeShards(config.intermediate_size, kMlpShardColumns, num_shards,
                        begin, end);
  plan.shared_mlp = MakeShards(config.moe.shared_intermediate_size,
                               kMlpShardColumns, num_shards, begin, end);
  plan.num_experts = config.moe.num_experts;
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const int32_t experts = config.is_sparse(i) ? plan.num_experts : 0;
    plan.experts.push_back(CutRuns(placement.Local(i, experts), ranks, rank));
  }
  plan.vocab_begin = CutAt(config.vocab_size, ranks, rank);
  plan.vocab_end = CutAt(config.vocab_size, ranks, rank + 1);
  return plan;
}

}  // namespace sluice
