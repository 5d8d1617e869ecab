#include "common/device/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/experts.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"

namespace sluice {
namespace {

using kernels::ConstMatrix;
using kernels::Matrix;

class HostMemory final : public DeviceMemory {
 public:
  explicit HostMemory(size_t bytes) : buffer_(bytes) {}
  float* data() override { return buffer_.as<float>(); }

 private:
  Buffer buffer_;
};

class CpuWeight final : public Weight {
 public:
  explicit CpuWeight(HostWeight weight) : weight_(std::move(weight)) {}
  int64_t rows() const override { return weight_.rows; }
  int64_t cols() const override { return weight_.cols; }
  size_t bytes() const override {
    return weight_.data.size() + weight_.scales.size();
  }
  kernels::WeightView view() const {
    return {weight_.data.data(), weight_.type, weight_.rows, weight_.cols,
            weight_.scales.as<uint8_t>()};
  }

 private:
  HostWeight weight_;
};

kernels::WeightView ViewOf(const Weight& weight) {
  return static_cast<const CpuWeight&>(weight).view();
}

// Columns [begin, begin + cols) of x.
Matrix Columns(Matrix x, int64_t begin, int64_t cols) {
  return {x.data + begin, x.rows, cols, x.stride};
}
ConstMatrix Columns(ConstMatrix x, int64_t begin, int64_t cols) {
  return {x.data + begin, x.rows, cols, x.stride};
}

void FillZero(Matrix x) {
  for (int64_t t = 0; t < x.rows; ++t) {
    std::memset(x.row(t), 0, sizeof(float) * x.cols);
  }
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const kernels::Context& context, const BackendShape& shape)
      : context_(context),
        shape_(shape),
        normed_(sizeof(float) * shape.limits.max_step_tokens *
                shape.hidden_size) {
    const size_t half = shape.inv_freq.size();
    const size_t entries = half * shape.limits.max_context;
    rope_cos_ = Buffer(sizeof(float) * entries);
    rope_sin_ = Buffer(sizeof(float) * entries);
    rope_ = {rope_cos_.as<float>(), rope_sin_.as<float>(), 0,
             static_cast<int64_t>(half)};
  }

  std::unique_ptr<DeviceMemory> Allocate(size_t bytes) override {
    return std::make_unique<HostMemory>(bytes);
  }
  std::unique_ptr<Weight> Pack(HostWeight weight) override {
    return std::make_unique<CpuWeight>(std::move(weight));
  }

  void BeginStep(const StepInputs& step) override {
    step_ = &step;
    int32_t last = -1;
    for (int32_t t = 0; t < step.num_tokens; ++t) {
      last = std::max(last, step.positions[t]);
    }
    GrowRope(last);
  }

  void CopyIn(const float* rows, Matrix out) override {
    for (int64_t t = 0; t < out.rows; ++t) {
      std::memcpy(out.row(t), rows + t * out.cols, sizeof(float) * out.cols);
    }
  }
  void CopyOut(ConstMatrix x, float* rows) override {
    for (int64_t t = 0; t < x.rows; ++t) {
      std::memcpy(rows + t * x.cols, x.row(t), sizeof(float) * x.cols);
    }
  }

  ConstMatrix ToHost(ConstMatrix x) override { return x; }

  void Embed(const Weight& table, Matrix x) override {
    kernels::Embed(context_, ViewOf(table), step_->token_ids.data(), x);
  }

  void NormLinear(ConstMatrix x, const float* norm, const Weight& weight,
                  const float* bias, Matrix y) override {
    const Matrix normed = Normed(x.rows);
    Norm(x, norm, normed);
    Linear(normed, weight, bias, y);
  }

  void Norm(ConstMatrix x, const float* norm, Matrix y) override {
    kernels::RmsNorm(context_, x, norm, shape_.norm_eps, y);
  }

  void Linear(ConstMatrix x, const Weight& weight, const float* bias,
              Matrix y) override {
    Product(x, ViewOf(weight), bias, y);
  }

  void RopeStoreKv(Matrix qkv, const HeadNorms& norms,
                   const LayerKv& kv) override {
    const int64_t q_cols = shape_.num_heads * shape_.head_dim;
    const int64_t kv_cols = shape_.num_kv_heads * shape_.head_dim;
    const Matrix k = Columns(qkv, q_cols, kv_cols);
    if (norms.q != nullptr) NormHeads(Columns(qkv, 0, q_cols), norms.q);
    if (norms.k != nullptr) NormHeads(k, norms.k);
    // q and k stand side by side: all their heads rotate in one go.
    kernels::Rope(context_, Columns(qkv, 0, q_cols + kv_cols), shape_.head_dim,
                  shape_.rope_style, rope_, step_->positions.data());
    kernels::StoreKv(context_, k, Columns(qkv, q_cols + kv_cols, kv_cols),
                     step_->kv_groups[kv.group].slots.data(), KvOf(kv));
  }

  void Attention(ConstMatrix qkv, const float* sinks, const LayerKv& kv,
                 Matrix out) override {
    const KvGroupInputs& group = step_->kv_groups[kv.group];
    kernels::AttentionQueries queries;
    queries.q = Columns(qkv, 0, shape_.num_heads * shape_.head_dim);
    queries.positions = step_->positions.data();
    queries.block_tables = group.block_tables.data();
    queries.table_offsets = group.table_offsets.data();
    queries.num_heads = shape_.num_heads;
    queries.kv_heads = shape_.kv_heads.data();
    queries.scale = shape_.attention_scale;
    queries.window = kv.window;
    queries.sinks = sinks;
    kernels::PagedAttention(context_, queries, KvOf(kv), out);
  }

  void SiluMul(ConstMatrix x, Matrix y) override {
    if (y.cols > 0) kernels::SiluMul(context_, x, y);
  }

  void RowParallel(ConstMatrix x, const Weight& weight, const RowShards& shards,
                   std::span<const Matrix> parts) override {
    SLUICE_CHECK(parts.size() == shards.nodes.size());
    if (shards.cols() == 0) {  // a rank whose shards are all empty
      for (const Matrix& part : parts) FillZero(part);
      return;
    }
    kernels::MatMulSharded(context_, x, ViewOf(weight),
                           {shards.bounds, shards.own_nodes}, parts);
  }

  void Add(ConstMatrix y, Matrix x) override { kernels::Add(context_, y, x); }

  void AddNormed(ConstMatrix y, const float* bias, const float* norm,
                 Matrix x) override {
    if (bias == nullptr && norm == nullptr) return Add(y, x);
    const Matrix sum = Normed(y.rows);
    CopyIn(y.data, sum);
    if (bias != nullptr) {
      // One row of all tokens' rows: a stride of zero.
      kernels::Add(context_, {bias, y.rows, y.cols, 0}, sum);
    }
    if (norm != nullptr) Norm(sum, norm, sum);
    Add(sum, x);
  }

  void Route(ConstMatrix logits, const float* correction,
             const Routing& routing) override {
    kernels::Route(context_, logits, shape_.router, correction, routing.ids,
                   routing.weights);
  }

  void ExpertNodes(ConstMatrix x, const Routing& routing,
                   const ExpertWeights& experts,
                   std::span<const kernels::TreeNode> nodes,
                   std::span<const Matrix> parts) override {
    gate_up_.clear();
    down_.clear();
    for (const auto& weight : experts.gate_up) {
      gate_up_.push_back(ViewOf(*weight));
    }
    for (const auto& weight : experts.down) down_.push_back(ViewOf(*weight));
    kernels::ExpertsView view = {experts.first, gate_up_, down_};
    if (experts.gate_up_bias) view.gate_up_bias = experts.gate_up_bias->data();
    if (experts.down_bias) view.down_bias = experts.down_bias->data();
    view.swiglu_limit = shape_.swiglu_limit;
    kernels::ExpertNodes(context_, view,
                         {x, routing.ids, routing.weights, routing.per_token},
                         nodes, parts);
  }

  void Logits(ConstMatrix x, int32_t begin, const float* norm,
              const Weight& head, Matrix y) override {
    const Matrix normed = Normed(y.rows);
    for (int64_t i = 0; i < y.rows; ++i) {
      std::memcpy(normed.row(i), x.row(step_->logits_rows[begin + i]),
                  sizeof(float) * x.cols);
    }
    kernels::RmsNorm(context_, normed, norm, shape_.norm_eps, normed);
    kernels::WeightView view = ViewOf(head);
    view.rows = y.cols;
    Product(normed, view, /*bias=*/nullptr, y);
  }

 private:
  // Makes RoPE's rows up to position `last`, some ahead at a time: pages of
  // positions that no sequence reaches are never touched.
  void GrowRope(int64_t last) {
    constexpr int64_t kAhead = 256;
    if (last < rope_.positions) return;
    const int64_t end =
        std::min<int64_t>(last + kAhead, shape_.limits.max_context);
    kernels::MakeRopeTable(shape_.inv_freq, {rope_.positions, end},
                           shape_.rope_scale, rope_cos_.as<float>(),
                           rope_sin_.as<float>());
    rope_.positions = std::max(rope_.positions, end);
  }
  Matrix Normed(int64_t rows) {
    return {normed_.as<float>(), rows, shape_.hidden_size, shape_.hidden_size};
  }
  void Product(ConstMatrix x, const kernels::WeightView& weight,
               const float* bias, Matrix y) {
    if (weight.rows > 0) kernels::MatMul(context_, x, weight, bias, y);
  }
  void NormHeads(Matrix x, const float* norm) {
    kernels::RmsNormHeads(context_, x, shape_.head_dim, norm, shape_.norm_eps);
  }
  kernels::KvView KvOf(const LayerKv& kv) const {
    return {kv.keys,      kv.values,      kv.num_blocks, shape_.num_kv_heads,
            kBlockTokens, shape_.head_dim};
  }

  const kernels::Context context_;
  const BackendShape shape_;
  Buffer normed_;    // [max_step_tokens, H]
  Buffer rope_cos_;  // [max_context, R / 2], as far as rope_ says
  Buffer rope_sin_;
  kernels::RopeTable rope_;
  const StepInputs* step_ = nullptr;
  std::vector<kernels::WeightView> gate_up_;  // of ExpertNodes
  std::vector<kernels::WeightView> down_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(const kernels::Context& context,
                                        const BackendShape& shape) {
  return std::make_unique<CpuBackend>(context, shape);
}

}  // namespace sluice
