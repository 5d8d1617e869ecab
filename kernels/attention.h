#ifndef SLUICE_KERNELS_ATTENTION_H_
#define SLUICE_KERNELS_ATTENTION_H_

#include <cstdint>

#include "kernels/context.h"
#include "kernels/views.h"

namespace sluice::kernels {
namespace cpu {
struct BlockOps;
}

// Positions per attention partial; see PagedAttention.
inline constexpr int32_t kAttentionChunk = 256;

// One layer's keys and values of one rank, F32, BF16 or Q8_0:
// [num_blocks, num_kv_heads, block_tokens, head_dim] each. Q8_0 takes 34 bytes
// for 32 elements, as GGUF does: a head's keys of a block are a packed group of
// block_pack.h with a row per token, its values are signed codes
// [block_tokens, head_dim] and behind them F16 scales [block_tokens, head_dim /
// 32]. Without `values` (F32 and BF16) these are the last value_dim elements of
// the keys.
struct KvView {
  void* keys = nullptr;
  void* values = nullptr;
  int64_t num_blocks = 0;
  int64_t num_kv_heads = 0;
  int64_t block_tokens = 0;  // 16; divides kAttentionChunk
  int64_t head_dim = 0;      // Q8_0: a multiple of 32
  WeightType type = WeightType::kF32;
  // Q8_0: BlockOpsFor (block_matmul.h) of a set that this CPU has.
  const cpu::BlockOps* blocks = nullptr;
  int64_t value_dim = 0;  // without `values`: at most head_dim

  // The elements of a head's values.
  int64_t value_size() const {
    return values != nullptr ? head_dim : value_dim;
  }

  // Of `elements` that Q8_0 has whole blocks of.
  int64_t bytes(int64_t elements) const {
    if (type == WeightType::kQ8_0) return elements / 32 * 34;
    return elements * (type == WeightType::kF32 ? 4 : 2);
  }
  // Where elements from `i` on stand in keys or values.
  void* at(void* base, int64_t i) const {
    return static_cast<char*>(base) + bytes(i);
  }
};

// Writes k and v [T, num_kv_heads * head_dim] (no v where the view has no
// values) to slots[t] = block *
// block_tokens + place in block. BF16 is rounded to nearest even. Q8_0's codes
// are those of block_matmul.h's activations in blocks of 32 elements of a head,
// the scales are theirs rounded to F16; a head with a NaN or an infinity gets
// scales of NaN.
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
  float soft_cap = 0.0f;         // 0: none
};

// out[t, h] = softmax(scale * q.k) v, paged, canonical order, k and v widened
// to F32 as they stand in the cache (Q8_0's values: code * scale, rounded
// once): per chunk of
// 256 absolute positions a partial (max m, sum l, accumulator acc): scores are
// dot(q, k) (matmul.h) * scale, with a soft cap then cap * tanh(score / cap); m
// their maximum; p_j = Exp(s_j - m); l sums p over 16 lanes j % 16 (j absolute)
// joined like dot; acc[d] = fma(p_j, v[j,d], acc[d]) in rising j from +0.
// Partials are joined in the aligned binary tree over the chunk index
// (reduction_tree.h): m = max(a.m, b.m), ea = Exp(a.m - m), eb = Exp(b.m - m),
// l = fma(b.l, eb, a.l * ea), acc likewise. A sink is joined last as a partial
// (sink, 1, 0). The tree's leaves are chunks [0, position / 256 + 1); fully
// masked chunks are skipped. out [T, num_heads
// * the view's value_size()]; out = acc / l. With Q8_0, dot(q, k) is
// block_matmul.h's product of k's blocks with q quantised per 32 elements of a
// head, one shard; a head of q with a NaN or an infinity gets an output of NaN.
void PagedAttention(const Context& context, const AttentionQueries& queries,
                    const KvView& kv, Matrix out);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_ATTENTION_H_
