#include "common/model/latent_attention.h"

#include <cstdint>

namespace sluice {
void RunLatentAttention(Backend& device, const StageLayer& layer,
                        const LayerActivations& a, DeviceMatrix x,
                        const NormSpec& norm, DeviceMatrix heads) {
  const AttentionSpec& spec = layer.spec.attention;
  const LayerWeights& weights = layer.weights;
  const LatentWeights& latent = weights.latent;
  const float eps = layer.spec.latent_norm_eps;
  const int64_t num_heads = spec.num_heads;

  // q's latent row, or q; and the row of the cache.
  const DeviceMatrix both = a.qkv.Packed(weights.qkv->rows);
  device.Linear(x, norm, *weights.qkv, /*bias=*/nullptr, both);
  const IndexSpec& index = spec.latent.index;
  // The layer's own indexer, else a layer before has chosen.
  const bool chooses = latent.index_norm.data() != nullptr;
  const int64_t of_index = chooses ? index.head_dim + index.num_heads : 0;
  const int64_t before = both.cols - of_index - spec.head_dim;
  device.StoreLatent(spec, {latent.norm.data(), eps},
                     both.Columns(before, spec.head_dim), layer.kv);
  DeviceMatrix q = both.Columns(0, before);
  if (latent.q_heads != nullptr) {
    const DeviceMatrix of_heads = a.latent.q.Packed(latent.q_heads->rows);
    device.Linear(q, {latent.q_norm.data(), eps}, *latent.q_heads,
                  /*bias=*/nullptr, of_heads);
    q = of_heads;
  }
  if (chooses) {
    const int64_t at = before + spec.head_dim;
    device.StoreIndexKeys(
        spec,
        {latent.index_norm.data(), layer.spec.index_norm_eps,
         /*is_layer_norm=*/true, latent.index_norm_bias.data()},
        both.Columns(at, index.head_dim), layer.kv);
    const int64_t cols = index.num_heads * index.head_dim;
    device.ChoosePositions(spec, q.Columns(q.cols - cols, cols),
                           both.Columns(at + index.head_dim, index.num_heads),
                           layer.kv, a.latent.chosen);
    q = q.Columns(0, q.cols - cols);
  }

  const DeviceMatrix queries =
      a.latent.queries.Packed(num_heads * spec.head_dim);
  device.LatentQueries(spec, q, *latent.keys, queries);
  const DeviceMatrix weighted =
      a.latent.weighted.Packed(num_heads * spec.value_dim());
  if (index.top_k > 0) {
    device.ChosenAttention(spec, queries, a.latent.chosen, layer.kv, weighted);
  } else {
    device.Attention(spec, queries, /*sinks=*/nullptr, layer.kv, weighted);
  }
  device.HeadLinear(weighted, *latent.values, heads);
}

}  // namespace sluice
