#include "common/model_config/rank_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "common/model_config/tensor_table.h"

namespace sluice {
namespace {

const ColumnFormats& FormatsAt(std::span<const ColumnFormats> formats,
                               size_t layer) {
  static const ColumnFormats plain;
  return formats.empty() ? plain : formats[layer];
}

// Splits units of `unit_columns` (the last may be shorter) over `num_leaves`
// shards, of which this rank owns [begin, end).
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

// Returns the share of rank `rank` of the ids of `runs`, cut into `ranks`.
std::vector<ExpertRange> CutRuns(const std::vector<ExpertRange>& runs,
                                 int32_t ranks, int32_t rank) {
  int64_t total = 0;
  for (const ExpertRange& run : runs) total += run.size();
  const auto begin = static_cast<int32_t>(CutAt(total, ranks, rank));
  const auto end = static_cast<int32_t>(CutAt(total, ranks, rank + 1));
  std::vector<ExpertRange> own;
  int32_t first = 0;  // ids before the run
  for (const ExpertRange& run : runs) {
    const int32_t from = std::max(begin - first, 0);
    const int32_t to = std::min(end - first, run.size());
    if (from < to) own.push_back({run.begin + from, run.begin + to});
    first += run.size();
  }
  return own;
}

// Returns the mixer over the heads of which the rank has the output columns.
kernels::StateMixer MixerOf(const StateConfig& state, const RowShards& out) {
  kernels::StateMixer mixer = state.mixer;
  kernels::StateShape& shape = mixer.shape;
  if (mixer.kind == kernels::StateMixer::Kind::kShortConvolution) {
    shape.channels = out.cols();
    return mixer;
  }
  const int64_t per_key = shape.values() / shape.num_key_heads;
  mixer.norm_groups = mixer.norm_groups * out.cols() / shape.values();
  shape.num_key_heads = out.cols() / per_key;
  shape.num_heads = out.cols() / shape.value_dim;
  shape.channels = 2 * shape.keys() + shape.values();
  return mixer;
}

// Returns the rank's share of the layer's heads, sizes and experts.
LayerShare ShareOf(const LayerConfig& layer, const ColumnFormats& formats,
                   int32_t ranks, int32_t rank) {
  const AttentionConfig& attention = layer.attention;
  const HeadShards shards(attention, *formats.o);
  const auto begin = static_cast<int32_t>(CutAt(shards.count, ranks, rank));
  const auto end = static_cast<int32_t>(CutAt(shards.count, ranks, rank + 1));
  const int64_t group = attention.num_heads / attention.num_kv_heads;
  LayerShare share;
  share.head_begin = shards.HeadAt(begin);
  share.head_end = shards.HeadAt(end);
  share.kv_head_begin = share.head_begin / group;
  share.kv_head_end = (share.head_end - 1) / group + 1;
  for (int64_t head = share.head_begin; head < share.head_end; ++head) {
    share.kv_heads.push_back(
        static_cast<int32_t>(head / group - share.kv_head_begin));
  }
  const auto cut = [&](int64_t columns, int64_t unit) {
    return MakeShards(columns, unit, shards.count, begin, end);
  };
  share.attention = cut(attention.o_size(), shards.unit * attention.o_dim());
  if (!attention.present) {
    share.head_end = share.head_begin;
    share.kv_head_end = share.kv_head_begin;
    share.kv_heads.clear();
  }
  if (layer.state.present()) {
    share.state = cut(
        layer.state.mixer.out_columns(),
        std::lcm<int64_t>(layer.state.unit(), formats.state->block_elements));
    share.mixer = MixerOf(layer.state, share.state);
  }
  share.mlp = cut(layer.mlp.intermediate_size, formats.down->cut_unit);
  share.shared_mlp =
      cut(layer.moe.shared_intermediate_size, formats.shared_down->cut_unit);
  share.num_experts = layer.moe.num_experts;
  return share;
}

}  // namespace

HeadShards::HeadShards(const AttentionConfig& attention, const WeightFormat& o)
    : heads(attention.num_heads),
      unit(o.block_elements /
           std::gcd<int64_t>(o.block_elements, attention.o_dim())),
      count(static_cast<int32_t>(
          std::min<int64_t>(kMaxShards, (heads + unit - 1) / unit))) {}

int64_t HeadShards::HeadAt(int64_t shard) const {
  return std::min(heads, CutAt((heads + unit - 1) / unit, count, shard) * unit);
}

int64_t ShardUnitOf(const LayerConfig& layer, char letter) {
  using kernels::WeightType;
  int64_t unit = 0;
  // How many shards there are is the attention output's to say, which may be
  // in FP8 or not.
  for (const WeightType o : {WeightType::kE4m3, WeightType::kF32}) {
    const bool is_attention = letter == 'Q' || letter == 'o';
    if (is_attention && o != WeightType::kE4m3) continue;
    const LayerShare share = ShareOf(layer, {&FormatOf(o)}, 1, 0);
    const RowShards& shards = is_attention    ? share.attention
                              : letter == 'F' ? share.mlp
                              : letter == 'S' ? share.shared_mlp
                                              : share.state;
    for (const int32_t bound : shards.bounds) {
      unit = std::gcd<int64_t>(unit, bound);
    }
  }
  return unit;
}

std::vector<ColumnFormats> ColumnFormatsOf(const ModelConfig& config,
                                           const weights::ModelFile& model,
                                           WeightsMode mode) {
  std::vector<ColumnFormats> formats(config.layers.size());
  for (int32_t i = 0; i < config.num_layers(); ++i) {
    for (const WeightRows& weight :
         WeightsOf(config, i, ExpertStorage::kSeparate)) {
      if (weight.first().cut != RankCut::kColumns) continue;
      const WeightFormat& format = FormatOf(TypesOf(weight, i, model, mode)[0]);
      (weight.place == WeightPlace::kO          ? formats[i].o
       : weight.place == WeightPlace::kDown     ? formats[i].down
       : weight.place == WeightPlace::kStateOut ? formats[i].state
                                                : formats[i].shared_down) =
          &format;
    }
  }
  return formats;
}

int32_t MostRanks(const ModelConfig& config,
                  std::span<const ColumnFormats> formats) {
  int32_t most = kMaxShards;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    most = std::min(
        most,
        HeadShards(config.layers[i].attention, *FormatsAt(formats, i).o).count);
  }
  return most;
}

int64_t KvHeadsOnRanks(const LayerConfig& layer, const ColumnFormats& formats,
                       int32_t ranks) {
  int64_t heads = 0;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    heads += ShareOf(layer, formats, ranks, rank).num_kv_heads();
  }
  return heads;
}

namespace {

// Of a short convolution both are empty.
OwnRange KeysOf(const StateConfig& state, const RowShards& out) {
  const kernels::StateShape& shape = state.mixer.shape;
  if (shape.num_heads == 0) return {};
  const int64_t per_key = shape.values() / shape.num_key_heads;
  return {out.col_begin / per_key * shape.key_dim,
          out.col_end / per_key * shape.key_dim};
}
OwnRange HeadsOf(const StateConfig& state, const RowShards& out) {
  const kernels::StateShape& shape = state.mixer.shape;
  if (shape.num_heads == 0) return {};
  return {out.col_begin / shape.value_dim, out.col_end / shape.value_dim};
}

}  // namespace

OwnRange OwnRangeOf(const RankPlan& plan, const ModelConfig& config,
                    int32_t layer, char letter) {
  if (letter == 'V') return {plan.vocab_begin, plan.vocab_end};
  const auto at = static_cast<size_t>(layer);
  const LayerShare& share = plan.layers[at];
  const int64_t dim = config.layers[at].attention.head_dim;
  const LatentConfig& latent = config.layers[at].attention.latent;
  const int64_t q_dim = latent.nope_dim + latent.rope_dim;
  const std::pair<char, OwnRange> ranges[] = {
      {'Q', {share.attention.col_begin, share.attention.col_end}},
      {'K', {share.kv_head_begin * dim, share.kv_head_end * dim}},
      {'N', {share.head_begin, share.head_end}},
      {'o', {share.attention.col_begin, share.attention.col_end}},
      {'a', {share.head_begin * q_dim, share.head_end * q_dim}},
      {'F', {share.mlp.col_begin, share.mlp.col_end}},
      {'S', {share.shared_mlp.col_begin, share.shared_mlp.col_end}},
      {'C', {share.state.col_begin, share.state.col_end}},
      {'J', KeysOf(config.layers[at].state, share.state)},
      {'Z', {share.state.col_begin, share.state.col_end}},
      {'T', HeadsOf(config.layers[at].state, share.state)}};
  for (const auto& [name, range] : ranges) {
    if (name == letter) return range;
  }
  SLUICE_CHECK(false);
}

StatusOr<RankPlan> PlanRank(const ModelConfig& config, int32_t ranks,
                            int32_t rank, const ExpertPlacement& placement,
                            std::span<const ColumnFormats> formats) {
  RankPlan plan;
  plan.rank = rank;
  plan.ranks = ranks;
  for (int32_t i = 0; i < config.num_layers(); ++i) {
    const LayerConfig& layer = config.layers[i];
    const ColumnFormats& of_layer = FormatsAt(formats, i);
    const HeadShards shards(layer.attention, *of_layer.o);
    if (ranks < 1 || ranks > shards.count) {
      return InvalidArgument(
          "ranks must be between 1 and ", shards.count, " for a model of ",
          shards.heads, " query heads",
          shards.unit > 1 ? Cat(" in shards of whole ", shards.unit) : "",
          ", got ", ranks);
    }
    LayerShare share = ShareOf(layer, of_layer, ranks, rank);
    share.experts = CutRuns(placement.Local(i, share.num_experts), ranks, rank);
    plan.layers.push_back(std::move(share));
  }
  plan.vocab_begin = CutAt(config.vocab_size, ranks, rank);
  plan.vocab_end = CutAt(config.vocab_size, ranks, rank + 1);
  return plan;
}

}  // namespace sluice
