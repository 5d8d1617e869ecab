#include "common/stage/layer_specs.h"

#include "common/model_config/kv_layout.h"

namespace sluice {
namespace {

// Returns the columns of the rank's q and k of each of its shards.
kernels::HeadRuns HeadRunsOf(const AttentionConfig& attention,
                             const LayerShare& share) {
  const int64_t dim = attention.head_dim;
  const int64_t group = attention.num_heads / attention.num_kv_heads;
  const int64_t q_cols = share.num_heads() * dim;
  kernels::HeadRuns runs;
  runs.head_dim = dim;
  for (size_t s = 0; s + 1 < share.attention.bounds.size(); ++s) {
    const int64_t begin = share.attention.bounds[s];
    const int64_t end = share.attention.bounds[s + 1];
    runs.q.push_back({begin, end});
    // The kv heads that begin in the shard.
    const auto kv_at = [&](int64_t column) {
      const int64_t head = share.head_begin + column / dim;
      return (head + group - 1) / group - share.kv_head_begin;
    };
    runs.k.push_back({q_cols + kv_at(begin) * dim, q_cols + kv_at(end) * dim});
  }
  return runs;
}

}  // namespace

LayerSpec SpecOf(const LayerConfig& layer, const LayerShare& share,
                 std::span<const RopeHandle> ropes) {
  const AttentionConfig& attention = layer.attention;
  const IndexerConfig& indexer = attention.latent.indexer;
  const MoeConfig& moe = layer.moe;
  LayerSpec spec;
  spec.norm_eps = static_cast<float>(layer.norm.eps);
  spec.layer_norm = layer.norm.layer_norm;
  spec.parallel = layer.norm.parallel;
  spec.residual_scale = static_cast<float>(layer.residual_scale);
  const auto scale = [&layer](double own) {
    return static_cast<float>(layer.residual_scale * own);
  };
  spec.attention_scale = scale(attention.out_scale);
  spec.state_scale = scale(layer.state.out_scale);
  spec.mlp_scale = scale(layer.mlp.out_scale);
  spec.gate_scale = static_cast<float>(layer.mlp.gate_scale);
  spec.gates_heads = attention.gate;
  spec.norms_once = attention.present && layer.state.present();
  spec.clip_qkv = static_cast<float>(attention.clip_qkv);
  if (attention.qk_norm == QkNorm::kAllHeads) {
    spec.norm_heads = HeadRunsOf(attention, share);
    spec.norm_q_count = attention.q_size();
    spec.norm_k_count = attention.kv_size();
  }
  spec.attention = {
      share.num_heads(),
      share.num_kv_heads(),
      attention.head_dim,
      share.kv_heads,
      static_cast<float>(attention.scale),
      attention.window,
      ropes[attention.rope],
      attention.kv_layer >= 0,
      attention.qk_norm == QkNorm::kHeadsAfterRope,
      static_cast<float>(attention.soft_cap),
      {static_cast<float>(attention.growth.beta), attention.growth.original},
      {attention.latent.kv_rank,
       attention.latent.nope_dim,
       attention.latent.rope_dim,
       {indexer.top_k, indexer.num_heads, indexer.head_dim,
        ropes[indexer.rope]}}};
  spec.has_indexer = indexer.own;
  spec.index_norm_eps = static_cast<float>(indexer.norm_eps);
  spec.latent_norm_eps = static_cast<float>(attention.latent.norm_eps);
  spec.activation = layer.is_sparse() ? moe.activation : layer.mlp.activation;
  spec.router = {moe.score,
                 moe.num_experts,
                 moe.experts_per_token,
                 moe.num_groups,
                 moe.groups_per_token,
                 moe.normalise,
                 static_cast<float>(moe.scale),
                 static_cast<float>(moe.sum_floor),
                 moe.group_best};
  return spec;
}

bool IsLongRope(const RopeConfig& rope, int32_t asked) {
  return !rope.long_inv_freq.empty() &&
         asked > rope.scaling.original_max_position_embeddings;
}

RopeSpec RopeOf(const RopeConfig& rope, int64_t positions, int32_t asked) {
  return {IsLongRope(rope, asked) ? rope.long_inv_freq : rope.inv_freq,
          rope.scaling.attention_factor,
          rope.interleaved ? kernels::RopeStyle::kInterleaved
                           : kernels::RopeStyle::kHalfSplit,
          positions};
}

}  // namespace sluice
