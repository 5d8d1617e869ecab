#ifndef SLUICE_COMMON_DEVICE_LAYER_SPEC_H_
#define SLUICE_COMMON_DEVICE_LAYER_SPEC_H_

#include <cstdint>
#include <vector>

#include "common/device/memory.h"
#include "kernels/elementwise.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"

// A model's constants as arguments of operations: values that may differ from
// layer to layer. Vectors are F32 on the device.
namespace sluice {

// A norm; none if `weight` is null.
struct NormSpec {
  const void* weight = nullptr;
  float eps = 0;
  bool is_layer_norm = false;  // else an RMS norm
  const void* bias = nullptr;  // of a LayerNorm; null: none
};

// The RMS norms of q and k over all their heads, of which this rank has some:
// of squares' two columns.
struct SquaresNorm {
  DeviceMatrix squares;  // [T, 2]: the sums of q's and of k's squares
  const void* q_weight = nullptr;
  const void* k_weight = nullptr;
  float eps = 0;
  int64_t q_cols = 0;  // this rank's
  int64_t k_cols = 0;
  int64_t q_count = 0;  // all ranks'
  int64_t k_count = 0;
};

// q *= 1 + beta ln(1 + floor(position / original)), behind RoPE.
struct QueryGrowth {
  float beta = 0;  // 0: none
  double original = 1;
};

// RoPE of some layers: cos and sin of a position are [inv_freq.size()] each.
struct RopeSpec {
  std::vector<double> inv_freq;
  double scale = 1;  // multiplies cos and sin
  kernels::RopeStyle style = kernels::RopeStyle::kHalfSplit;
  int64_t positions = 0;  // at most so many
};

// A RopeSpec in a backend: see Backend::AddRope.
enum class RopeHandle : int32_t {};

// The indexer of latent attention: a token sees the `top_k` positions that
// score best (kernels/chosen_attention.h).
struct IndexSpec {
  int64_t top_k = 0;  // 0: none, a token sees all
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  RopeHandle rope = {};
};

// The sizes of latent attention: a query head is `nope_dim` elements and
// behind them `rope_dim` that rotate, `nope_dim` of which become `kv_rank` by a
// product of the head's own. A row of the cache is `rope_dim` rotated elements
// and behind them `kv_rank`, which are the values, too.
struct LatentSpec {
  int64_t kv_rank = 0;  // 0: none
  int64_t nope_dim = 0;
  int64_t rope_dim = 0;
  IndexSpec index;
};

// Attention of one layer, over one rank's heads. With latent attention
// head_dim = rope_dim + kv_rank, num_kv_heads = 1.
struct AttentionSpec {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  // kv_heads[h]: the rank's own kv head that query head h reads.
  std::vector<int32_t> kv_heads;
  float scale = 1;
  int32_t window = 0;  // tokens seen, the query's own included; 0: all
  RopeHandle rope = {};
  bool shares_kv = false;         // of another layer, which stores them
  bool norms_after_rope = false;  // of the heads of q and k
  float soft_cap = 0;             // of the scores; 0: none
  QueryGrowth growth;
  LatentSpec latent;
  // Elements of a head's output.
  int64_t value_dim() const {
    return latent.kv_rank > 0 ? latent.kv_rank : head_dim;
  }
};

using kernels::Activation;

// Keys and values of one layer on the device, and the KV group whose block
// tables the layer follows. [num_blocks, num_kv_heads, kBlockTokens, head_dim]
// each. With latent attention there are no values: they are parts of the keys.
struct LayerKv {
  void* keys = nullptr;
  void* values = nullptr;
  ElementType type = ElementType::kF32;
  int64_t num_blocks = 0;
  int32_t group = 0;
  void* index_keys = nullptr;  // [num_blocks, kBlockTokens, dim], or none
};

// The blocks of states of one layer (kernels/recurrence.h) on the device, and
// their KV group.
struct LayerState {
  void* data = nullptr;
  int64_t num_blocks = 0;
  int32_t group = 0;
};

// As kernels::StateMixerVectors.
struct StateVectors {
  const void* taps = nullptr;
  const void* conv_bias = nullptr;
  const void* rate = nullptr;
  const void* time_bias = nullptr;
  const void* skip = nullptr;
  const void* norm = nullptr;
};

// The experts of a step's tokens, [T, k] each: ids (INT32), rising within a
// token, and the router's weights (F32).
struct DeviceRouting {
  DeviceMatrix ids;
  DeviceMatrix weights;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_LAYER_SPEC_H_
