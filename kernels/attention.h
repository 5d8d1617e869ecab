#ifndef SLUICE_KERNELS_ATTENTION_H_
#define SLUICE_KERNELS_ATTENTION_H_

#include <cstdint>

#include "kernels/context.h"
#include "kernels/views.h"

namespace sluice::kernels {

// Positions per attention partial; see PagedAttention.
inline constexpr int32_t kAttentionChunk = 256;

// One layer's keys and values of one rank, of a plain type:
// [num_blocks, num_kv_heads, block_tokens, head_dim] each.
struct KvView {
  void* keys = nullptr;
  void* values = nullptr;
  int64_t num_blocks = 0;
  int64_t num_kv_heads = 0;
  int64_t block_tokens = 0;  // 16; divides kAttentionChunk
  int64_t head_dim = 0;
  WeightType type = WeightType::kF32;

  // Element `i` of keys or values.
  void* at(void* base, int64_t i) const {
    const int64_t bytes = type == WeightType::kF32 ? 4 : 2;
    return static_cast<char*>(base) + i * bytes;
  }
};

// Writes k and v [T, num_kv_heads * head_dim] to slots[t] = block *
// block_tokens + place in block; BF16 is rounded to nearest even.
void StoreKv(const Context& context, ConstMatrix k, ConstMatrix v,
             const int64_t* slots, const KvView& kv);

// Queries of a step. Token t belongs to the sequence whose block table starts
// at block_tables + table_offset[t] and sees positions [0, position[t]]
// (with window > 0 only the last `window` of these).
struct AttentionQueries {
  ConstMatrix q;                           // [T, num_heads * head_dim]
  const int32_t* positions = nullptr;      // [T]
  const int32_t* block_tables = nullptr;   // flattened block ids
  const int64_t* table_offsets = nullptr;  // [T]
  int64_t num_heads = 0;
  // kv_head[h]: which of the KvView's heads query head h reads, [num_heads].
  const int32_t* kv_heads = nullptr;
  float scale = 1.0f;
  int32_t window = 0;            // 0: all
  const float* sinks = nullptr;  // [num_heads] or null: one more logit
};

// out[t, h] = softmax(scale * q.k) v, paged, canonical order, k and v widened
// to F32 as they stand in the cache: per chunk of
// 256 absolute positions a partial (max m, sum l, accumulator acc): scores are
// dot(q, k) (matmul.h) * scale; m their maximum; p_j = Exp(s_j - m); l sums p
// over 16 lanes j % 16 (j absolute) joined like dot; acc[d] = fma(p_j, v[j,d],
// acc[d]) in rising j from +0. Partials are joined in the aligned binary tree
// over the chunk index (reduction_tree.h): m = max(a.m, b.m), ea = Exp(a.m -
// m), eb = Exp(b.m - m), l = fma(b.l, eb, a.l * ea), acc likewise. A sink is
// joined last as a partial (sink, 1, 0). The tree's leaves are chunks
// [0, position / 256 + 1); fully masked chunks are skipped. out [T, num_heads
// * head_dim]; out = acc / l.
void PagedAttention(const Context& context, const AttentionQueries& queries,
                    const KvView& kv, Matrix out);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_ATTENTION_H_
