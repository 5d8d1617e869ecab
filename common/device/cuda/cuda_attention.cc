#include "common/device/cuda/cuda_attention.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/device/cuda/attention_pass.h"
#include "kernels/cuda/shared/row_ops.h"

namespace sluice {
namespace {

using kernels::ConstMatrix;
using kernels::Matrix;
namespace cuda = kernels::cuda;

Matrix ColumnsOf(Matrix x, int64_t begin, int64_t cols) {
  return {x.data + begin, x.rows, cols, x.stride};
}

cuda::HeadNorm NormOf(const NormSpec& norm) {
  return {static_cast<const float*>(norm.weight), norm.eps};
}
void NormHeads(cuda::Stream stream, const AttentionSpec& spec,
               const NormSpec& norm, Matrix x) {
  const auto [weight, eps] = NormOf(norm);
  if (weight == nullptr) return;
  cuda::RmsNormHeads(stream, x, spec.head_dim, weight, eps);
}

}  // namespace

void CudaAttention::RopeStoreKv(const AttentionSpec& spec,
                                const HeadNorms& norms, Matrix qkv,
                                const LayerKv& kv) {
  const int64_t q_cols = spec.num_heads * spec.head_dim;
  const int64_t kv_cols = spec.num_kv_heads * spec.head_dim;
  const Matrix k = ColumnsOf(qkv, q_cols, kv_cols);
  NormHeads(stream_, spec, norms.q, ColumnsOf(qkv, 0, q_cols));
  NormHeads(stream_, spec, norms.k, k);
  if (kv_type_ != kernels::WeightType::kQ8_0) {
    return cuda::RopeStoreKv(
        stream_, qkv,
        {spec.num_heads, inputs_.rope_style(spec.rope), inputs_.rope(spec.rope),
         inputs_.positions(), inputs_.slots(kv.group)},
        ViewOf(spec, kv));
  }
  // q and k are adjacent: all their heads rotate at once.
  cuda::Rope(stream_, ColumnsOf(qkv, 0, q_cols + kv_cols), spec.head_dim,
             inputs_.rope_style(spec.rope), inputs_.rope(spec.rope),
             inputs_.positions());
  cuda::StoreKv(stream_, k, ColumnsOf(qkv, q_cols + kv_cols, kv_cols),
                inputs_.slots(kv.group), ViewOf(spec, kv));
}

void CudaAttention::Attention(const AttentionSpec& spec, ConstMatrix qkv,
                              const float* sinks, const LayerKv& kv,
                              Matrix out) {
  const kernels::KvView view = ViewOf(spec, kv);
  Pass pass;
  for (int64_t t = 0; t < out.rows; t += pass.rows) {
    pass = NextPass(spec, view, t, out.rows);
    const kernels::AttentionQueries queries =
        QueriesOf(spec, qkv, sinks, kv.group, {t, pass.rows});
    const Matrix own = {out.row(t), pass.rows, out.cols, out.stride};
    if (fast_) {
      cuda::TilePagedAttention(stream_, queries, view, pass.cut, pass.memory,
                               own);
    } else {
      cuda::PagedAttention(stream_, queries, view, pass.memory, own);
    }
  }
}

bool CudaAttention::RopeAttention(const AttentionSpec& spec,
                                  const HeadNorms& norms, ConstMatrix qkv,
                                  const float* sinks, const LayerKv& kv,
                                  Matrix out) {
  // Tokens of one sequence read what each other stores.
  if (!fast_ || !inputs_.is_decode()) return false;
  const kernels::KvView view = ViewOf(spec, kv);
  const Pass pass = NextPass(spec, view, 0, out.rows);
  if (pass.rows < out.rows) return false;
  return cuda::TileRopeAttention(
      stream_,
      {QueriesOf(spec, qkv, sinks, kv.group, {0, out.rows}), NormOf(norms.q),
       NormOf(norms.k), inputs_.rope_style(spec.rope), inputs_.rope(spec.rope)},
      view, pass.cut, pass.memory, out);
}

CudaAttention::Pass CudaAttention::NextPass(const AttentionSpec& spec,
                                            const kernels::KvView& kv,
                                            int64_t token, int64_t tokens) {
  const int32_t chunks = inputs_.max_chunks();
  int64_t each =
      cuda::AttentionFloats(1, spec.num_heads, spec.head_dim, chunks);
  int64_t rows = tokens - token;
  // A call's tokens are cut alike.
  const int64_t short_tokens = inputs_.short_tokens() - token;
  if (short_tokens > 0) rows = std::min(rows, short_tokens);
  cuda::AttentionCut cut;
  if (fast_) {
    cut = inputs_.CutOf(spec, static_cast<int32_t>(token));
    each = cuda::TileAttentionFloats(spec.num_heads, kv, cut, chunks);
  }
  const AttentionPass pass = PassOf(rows, each);
  return {
      pass.rows,
      cut,
      {memory_.AtLeast<float>(pass.floats), chunks, short_tokens > 0 ? 0 : 1}};
}

kernels::AttentionQueries CudaAttention::QueriesOf(const AttentionSpec& spec,
                                                   ConstMatrix qkv,
                                                   const float* sinks,
                                                   int32_t group,
                                                   const Rows& rows) {
  kernels::AttentionQueries queries;
  queries.q = {qkv.row(rows.begin), rows.count, spec.num_heads * spec.head_dim,
               qkv.stride};
  queries.positions = inputs_.positions() + rows.begin;
  queries.block_tables = inputs_.block_tables(group);
  queries.table_offsets = inputs_.table_offsets(group) + rows.begin;
  queries.num_heads = spec.num_heads;
  queries.kv_heads = inputs_.KvHeads(spec);
  queries.scale = spec.scale;
  queries.window = spec.window;
  queries.sinks = sinks;
  return queries;
}

kernels::KvView CudaAttention::ViewOf(const AttentionSpec& spec,
                                      const LayerKv& kv) const {
  return {kv.keys,      kv.values,     kv.num_blocks, spec.num_kv_heads,
          kBlockTokens, spec.head_dim, kv_type_,      nullptr};
}

}  // namespace sluice
