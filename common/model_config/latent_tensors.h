#ifndef SLUICE_COMMON_MODEL_CONFIG_LATENT_TENSORS_H_
#define SLUICE_COMMON_MODEL_CONFIG_LATENT_TENSORS_H_

#include "common/model_config/tensor_table.h"

// The rows of latent attention, for the tables of tensor_table.cc.
namespace sluice::latent {

using enum RankCut;
using enum WeightPlace;
using enum StoredAs;

inline bool HasQueryLatent(const LayerConfig& layer) {
  return layer.attention.latent.q_rank > 0;
}
inline bool HasPlainQuery(const LayerConfig& layer) {
  return !HasQueryLatent(layer);
}
inline bool HasIndexer(const LayerConfig& layer) {
  return layer.attention.latent.indexer.own;
}
inline bool HasJoinedHeads(const LayerConfig& layer) {
  return !layer.attention.latent.split;
}
inline bool HasSplitHeads(const LayerConfig& layer) {
  return layer.attention.latent.split;
}

// The cache's rows begin with the rotated part, which kv_a_proj_with_mqa has
// last.
inline constexpr TensorRow kLatentAttention[] = {
    {"self_attn.q_a_proj.weight", "attn_q_a.weight", "l H", kNone, kQkv,
     HasQueryLatent},
    {"self_attn.q_proj.weight", "attn_q.weight", "a H", kRows, kQkv,
     HasPlainQuery},
    {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight", "c+r H",
     kNone, kQkv, nullptr, kWeight, /*again=*/false, RowsTaken::kLastRunFirst},
    {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight", "l", kNone,
     kQueryLatentNorm, HasQueryLatent},
    {"self_attn.q_b_proj.weight", "attn_q_b.weight", "a l", kRows, kQueryHeads,
     HasQueryLatent},
    {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight", "c", kNone,
     kLatentNorm},
    {"self_attn.kv_b_proj.weight", "attn_kv_b.weight", "b c", kRows, kHeadKeys,
     HasJoinedHeads, kWeight, /*again=*/false, RowsTaken::kHeadKeys},
    {"self_attn.kv_b_proj.weight", "", "b c", kRows, kHeadValues,
     HasJoinedHeads, kWeight, /*again=*/true, RowsTaken::kHeadValues},
    {"self_attn.k_b_proj.weight", "attn_k_b.weight", "N c p", kRows, kHeadKeys,
     HasSplitHeads},
    {"self_attn.v_b_proj.weight", "attn_v_b.weight", "N w c", kRows,
     kHeadValues, HasSplitHeads},
    {"self_attn.o_proj.weight", "attn_output.weight", "H o", kColumns, kO},
};

inline constexpr TensorRow kIndexer[] = {
    {"self_attn.indexer.wq_b.weight", "indexer.attn_q_b.weight", "e l", kNone,
     kQueryHeads, HasIndexer},
    {"self_attn.indexer.wk.weight", "indexer.attn_k.weight", "d H", kNone, kQkv,
     HasIndexer},
    {"self_attn.indexer.weights_proj.weight", "indexer.proj.weight", "h H",
     kNone, kQkv, HasIndexer},
    {"self_attn.indexer.k_norm.weight", "indexer.k_norm.weight", "d", kNone,
     kIndexNorm, HasIndexer},
    {"self_attn.indexer.k_norm.bias", "indexer.k_norm.bias", "d", kNone,
     kIndexNormBias, HasIndexer},
};

}  // namespace sluice::latent

#endif  // SLUICE_COMMON_MODEL_CONFIG_LATENT_TENSORS_H_
