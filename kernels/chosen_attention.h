#ifndef SLUICE_KERNELS_CHOSEN_ATTENTION_H_
#define SLUICE_KERNELS_CHOSEN_ATTENTION_H_

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/context.h"
#include "kernels/views.h"

namespace sluice::kernels {

// Attention over positions that an indexer chooses for each token (DeepSeek
// V3.2's sparse attention).

// One layer's index keys, F32 or BF16: [num_blocks, block_tokens, dim].
struct IndexKeys {
  void* keys = nullptr;
  int64_t num_blocks = 0;
  int64_t block_tokens = 0;
  int64_t dim = 0;
  WeightType type = WeightType::kF32;
};

// Writes rows k [T, dim] to slots[t], as StoreKv does keys.
void StoreIndexKeys(ConstMatrix k, const int64_t* slots, const IndexKeys& keys);

// The indexer's queries; positions and tables as in AttentionQueries.
struct IndexQueries {
  ConstMatrix q;        // [T, num_heads * dim]
  ConstMatrix weights;  // [T, num_heads]
  const int32_t* positions = nullptr;
  const int32_t* block_tables = nullptr;
  const int64_t* table_offsets = nullptr;
  int64_t num_heads = 0;
  float scale = 1.0f;         // of q.k
  float weight_scale = 1.0f;  // of the weights
};

// chosen [T, count]: of the positions [0, position[t]] the `count` with the
// largest scores, the lower position on ties, all if there are not more;
// rising, with -1 behind the last. A position's score is the sum over heads, in
// rising order from +0, of (weight * weight_scale) * max(0, dot(q, k) * scale),
// each operation rounded once; dot as in matmul.h. A NaN counts as -inf.
void ChoosePositions(const Context& context, const IndexQueries& queries,
                     const IndexKeys& keys, int64_t count, int32_t* chosen);

// PagedAttention of each token over its chosen positions alone, as if these
// were the positions of its sequence: the i-th chosen stands at i. A view
// without values, of F32 or BF16; no window. chosen [T, count] as above.
void ChosenAttention(const Context& context, const AttentionQueries& queries,
                     const KvView& kv, const int32_t* chosen, int64_t count,
                     Matrix out);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_CHOSEN_ATTENTION_H_
