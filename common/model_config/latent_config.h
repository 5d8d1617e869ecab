#ifndef SLUICE_COMMON_MODEL_CONFIG_LATENT_CONFIG_H_
#define SLUICE_COMMON_MODEL_CONFIG_LATENT_CONFIG_H_

#include <cstdint>

namespace sluice {

// The indexer of latent attention: each token sees the `top_k` positions whose
// index keys score best with its index queries (DeepSeek V3.2). A value.
struct IndexerConfig {
  int32_t top_k = 0;  // 0: no indexer, a token sees all
  int32_t num_heads = 0;
  int32_t head_dim = 0;
  int32_t rope = 0;       // index into ModelConfig::ropes
  bool own = false;       // else the choice is that of the layer before
  double norm_eps = 0.0;  // of the index keys' LayerNorm
  bool operator==(const IndexerConfig&) const = default;
};

// Latent attention (MLA): keys and values of all heads are products of one
// latent row per token, which the KV cache keeps behind the rotated part of the
// keys. A value.
struct LatentConfig {
  int32_t kv_rank = 0;    // of the latent row; 0: no latent attention
  int32_t q_rank = 0;     // of q's latent row; 0: q is one product
  int32_t nope_dim = 0;   // of a head's q and key, without RoPE
  int32_t rope_dim = 0;   // of a head's q and key, with RoPE
  int32_t value_dim = 0;  // of a head's values
  double norm_eps = 0.0;  // of both latent rows' norms
  // The files have keys and values of kv_b apart, keys transposed.
  bool split = false;
  IndexerConfig indexer;
  bool operator==(const LatentConfig&) const = default;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_LATENT_CONFIG_H_
