#include "common/device/cpu/cpu_backend.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/device/cpu/available_memory.h"
#include "common/device/cpu/cpu_options.h"
#include "common/device/cpu/rope_tables.h"
#include "common/device/cpu/row_sampler.h"
#include "common/device/cpu/weight_products.h"
#include "common/tensor/weight_format.h"
#include "kernels/attention.h"
#include "kernels/block_pack.h"
#include "kernels/chosen_attention.h"
#include "kernels/elementwise.h"
#include "kernels/exp_log.h"
#include "kernels/experts.h"
#include "kernels/head_matmul.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"

namespace sluice {
namespace {

using kernels::ConstMatrix;
using kernels::Matrix;

// The kernels' view of x.
Matrix View(const DeviceMatrix& x) {
  SLUICE_CHECK(x.type == ElementType::kF32);
  return {static_cast<float*>(x.data), x.rows, x.cols, x.stride};
}
const float* Floats(const void* vector) {
  return static_cast<const float*>(vector);
}

// Columns [begin, begin + cols) of x.
Matrix Columns(Matrix x, int64_t begin, int64_t cols) {
  return {x.data + begin, x.rows, cols, x.stride};
}

void FillZero(Matrix x) {
  for (int64_t t = 0; t < x.rows; ++t) {
    std::memset(x.row(t), 0, sizeof(float) * x.cols);
  }
}

void CopyRows(ConstMatrix x, Matrix y) {
  for (int64_t t = 0; t < x.rows; ++t) {
    std::memcpy(y.row(t), x.row(t), sizeof(float) * x.cols);
  }
}

ElementType ElementOf(kernels::WeightType kv_type) {
  if (kv_type == kernels::WeightType::kBf16) return ElementType::kBf16;
  if (kv_type == kernels::WeightType::kQ8_0) return ElementType::kQ8_0;
  SLUICE_CHECK(kv_type == kernels::WeightType::kF32);
  return ElementType::kF32;
}

// The kernels' views of `parts`, in `views`, whose memory is kept.
std::span<const Matrix> View(std::span<const DeviceMatrix> parts,
                             std::vector<Matrix>& views) {
  views.clear();
  for (const DeviceMatrix& part : parts) views.push_back(View(part));
  return views;
}

DeviceMemory Adopt(Backend* owner, Buffer buffer) {
  const size_t bytes = buffer.size();
  return DeviceMemory(owner, buffer.Release(), bytes);
}

void ApplyNorm(const kernels::Context& context, ConstMatrix x,
               const NormSpec& norm, Matrix y) {
  if (norm.is_layer_norm) {
    return kernels::LayerNorm(context, x, Floats(norm.weight),
                              Floats(norm.bias), norm.eps, y);
  }
  kernels::RmsNorm(context, x, Floats(norm.weight), norm.eps, y);
}

void NormHeads(const kernels::Context& context, const AttentionSpec& spec,
               const NormSpec& norm, Matrix x) {
  if (norm.weight == nullptr || x.cols == 0) return;
  kernels::RmsNormHeads(context, x, spec.head_dim, Floats(norm.weight),
                        norm.eps);
}

BackendInfo InfoOf(const CpuBackendOptions& options) {
  BackendInfo info;
  info.numerics = kF32Canonical;
  info.isa = kernels::ToString(options.isa.dot);
  info.layout = kernels::kPackedLayout;
  info.threads = options.team.num_threads;
  info.available_memory = AvailableMemory();
  info.shares_host_memory = true;
  info.kv_type = ElementOf(options.kv_type);
  info.memory_node = NodeOfCpus(options.team.cpus);
  return info;
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(CpuBackendOptions options)
      : info_(InfoOf(options)),
        team_(options.team),
        context_{&team_, options.isa.vectors},
        dot_{&team_, &kernels::BlockOpsFor(options.isa.dot),
             options.activations},
        kv_type_(options.kv_type),
        products_(context_, dot_),
        communicator_(std::move(options.ranks), options.rank),
        sampler_(context_) {}

  const BackendInfo& info() const override { return info_; }

  DeviceMemory Allocate(size_t bytes) override {
    Buffer buffer(bytes);
    if (bytes >= Buffer::kHugePage) {
      PreferNode(buffer.data(), bytes, info_.memory_node);
    }
    return Adopt(this, std::move(buffer));
  }
  void Free(void* data) override { std::free(data); }
  void GiveBack(void* data, size_t bytes) override {
    // Whole pages alone. Where the system refuses, they stay.
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto at = reinterpret_cast<uintptr_t>(data);
    const uintptr_t begin = (at + page - 1) / page * page;
    const uintptr_t end = (at + bytes) / page * page;
    if (begin >= end) return;
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  std::unique_ptr<Weight> Pack(std::vector<HostWeight> parts) override {
    auto weight = std::make_unique<Weight>();
    weight->cols = parts[0].cols;
    for (HostWeight& part : parts) {
      SLUICE_CHECK(part.cols == weight->cols);
      WeightPart& packed = weight->parts.emplace_back();
      packed.type = part.type;
      packed.rows = part.rows;
      weight->rows += part.rows;
      packed.data = Adopt(this, PackPart(std::move(part)));
    }
    return weight;
  }
  RopeHandle AddRope(RopeSpec spec) override {
    return ropes_.Add(std::move(spec));
  }
  void CopyIn(const void* rows, DeviceMatrix out) override {
    const size_t bytes = BytesOf(out.type) * out.cols;
    for (int64_t t = 0; t < out.rows; ++t) {
      std::memcpy(out.row(t), static_cast<const std::byte*>(rows) + t * bytes,
                  bytes);
    }
  }
  void CopyOut(DeviceMatrix x, void* rows) override {
    const size_t bytes = BytesOf(x.type) * x.cols;
    for (int64_t t = 0; t < x.rows; ++t) {
      std::memcpy(static_cast<std::byte*>(rows) + t * bytes, x.row(t), bytes);
    }
  }

  void BeginStep(const StepInputs& step) override {
    team_.AdoptCaller();
    step_ = &step;
    state_runs_.clear();
    sampling_ = TraceSpan();
    joins_ = team_.joins();
    int32_t last = -1;
    for (int32_t t = 0; t < step.num_tokens; ++t) {
      last = std::max(last, step.positions[t]);
    }
    ropes_.Reach(last);
  }
  void Sync() override {}
  StepTimes EndStep() override {
    return {communicator_.TakeTimes(), sampling_, team_.joins() - joins_};
  }

  // The rank with the table gives its rows to all: the root of a one-leaf tree.
  void Embed(const Weight* table, DeviceMatrix x) override {
    if (table == nullptr) return communicator_.ReduceTree(1, {}, {}, View(x));
    products_.Embed(*table, step_->token_ids.data(), View(x));
    const kernels::TreeNode node = {0, 1};
    const ConstMatrix part = View(x);
    communicator_.ReduceTree(1, {&node, 1}, {&part, 1}, View(x));
  }

  void Norm(DeviceMatrix x, const NormSpec& norm, DeviceMatrix y) override {
    ApplyNorm(context_, View(x), norm, View(y));
  }

  void Linear(DeviceMatrix x, const NormSpec& norm, const Weight& weight,
              const void* bias, DeviceMatrix y) override {
    ConstMatrix in = View(x);
    if (norm.weight != nullptr) {
      const Matrix normed = Scratch(x.rows, x.cols);
      ApplyNorm(context_, in, norm, normed);
      in = normed;
    }
    products_.Multiply(in, weight, Floats(bias), View(y));
  }

  void RopeStoreKv(const AttentionSpec& spec, const NormSpec& q_norm,
                   const NormSpec& k_norm, DeviceMatrix qkv,
                   const LayerKv& kv) override {
    const int64_t q_cols = spec.num_heads * spec.head_dim;
    const int64_t kv_cols =
        spec.shares_kv ? 0 : spec.num_kv_heads * spec.head_dim;
    const Matrix all = View(qkv);
    const Matrix k = Columns(all, q_cols, kv_cols);
    const auto norm_heads = [&] {
      NormHeads(context_, spec, q_norm, Columns(all, 0, q_cols));
      NormHeads(context_, spec, k_norm, k);
    };
    if (!spec.norms_after_rope) norm_heads();
    // q and k are adjacent: all their heads rotate at once.
    Rotate(spec, Columns(all, 0, q_cols + kv_cols));
    if (spec.norms_after_rope) norm_heads();
    if (spec.growth.beta != 0) Grow(spec.growth, Columns(all, 0, q_cols));
    if (spec.shares_kv) return;
    kernels::StoreKv(context_, k, Columns(all, q_cols + kv_cols, kv_cols),
                     step_->kv_groups[kv.group].slots.data(), KvOf(spec, kv));
  }

  void Attention(const AttentionSpec& spec, DeviceMatrix qkv, const void* sinks,
                 const LayerKv& kv, DeviceMatrix out) override {
    kernels::AttentionQueries queries = QueriesOf(spec, qkv, kv);
    queries.sinks = Floats(sinks);
    kernels::PagedAttention(context_, queries, KvOf(spec, kv), View(out));
  }

  void StoreIndexKeys(const AttentionSpec& spec, const NormSpec& norm,
                      DeviceMatrix rows, const LayerKv& kv) override {
    const Matrix keys = View(rows);
    ApplyNorm(context_, keys, norm, keys);
    RotateIndex(spec, keys);
    kernels::StoreIndexKeys(keys, step_->kv_groups[kv.group].slots.data(),
                            IndexOf(spec, kv));
  }

  void ChoosePositions(const AttentionSpec& spec, DeviceMatrix queries,
                       DeviceMatrix weights, const LayerKv& kv,
                       DeviceMatrix chosen) override {
    const KvGroupInputs& group = step_->kv_groups[kv.group];
    const IndexSpec& index = spec.latent.index;
    RotateIndex(spec, View(queries));
    kernels::IndexQueries of_tokens;
    of_tokens.q = View(queries);
    of_tokens.weights = View(weights);
    of_tokens.positions = step_->positions.data();
    of_tokens.block_tables = group.block_tables.data();
    of_tokens.table_offsets = group.table_offsets.data();
    of_tokens.num_heads = index.num_heads;
    of_tokens.scale = InverseRoot(index.head_dim);
    of_tokens.weight_scale = InverseRoot(index.num_heads);
    kernels::ChoosePositions(context_, of_tokens, IndexOf(spec, kv),
                             index.top_k, static_cast<int32_t*>(chosen.data));
  }

  void ChosenAttention(const AttentionSpec& spec, DeviceMatrix q,
                       DeviceMatrix chosen, const LayerKv& kv,
                       DeviceMatrix out) override {
    kernels::ChosenAttention(context_, QueriesOf(spec, q, kv), KvOf(spec, kv),
                             static_cast<const int32_t*>(chosen.data),
                             spec.latent.index.top_k, View(out));
  }

  void StoreLatent(const AttentionSpec& spec, const NormSpec& norm,
                   DeviceMatrix rows, const LayerKv& kv) override {
    const Matrix all = View(rows);
    const Matrix latent =
        Columns(all, spec.latent.rope_dim, spec.latent.kv_rank);
    ApplyNorm(context_, latent, norm, latent);
    Rotate(spec, all);
    kernels::StoreKv(context_, all, {}, step_->kv_groups[kv.group].slots.data(),
                     KvOf(spec, kv));
  }

  void LatentQueries(const AttentionSpec& spec, DeviceMatrix q,
                     const Weight& keys, DeviceMatrix out) override {
    const LatentSpec& latent = spec.latent;
    const int64_t q_dim = latent.nope_dim + latent.rope_dim;
    const Matrix from = View(q);
    const Matrix to = View(out);
    MultiplyHeads(keys, Columns(from, 0, latent.nope_dim), q_dim,
                  Columns(to, latent.rope_dim, latent.kv_rank), spec.head_dim);
    for (int64_t h = 0; h < spec.num_heads; ++h) {
      CopyRows(Columns(from, h * q_dim + latent.nope_dim, latent.rope_dim),
               Columns(to, h * spec.head_dim, latent.rope_dim));
    }
    Rotate(spec, to);
  }

  void HeadLinear(DeviceMatrix x, const Weight& heads,
                  DeviceMatrix y) override {
    if (heads.parts.empty()) return;
    const int64_t rows = heads.parts[0].rows;
    MultiplyHeads(heads, Columns(View(x), 0, heads.cols), heads.cols,
                  Columns(View(y), 0, rows), rows);
  }

  void Gate(const Activation& activation, DeviceMatrix x,
            DeviceMatrix y) override {
    if (y.cols == 0) return;
    kernels::Activate(context_, activation, View(x), View(y));
  }

  void Map(const kernels::ElementMap& map, DeviceMatrix x) override {
    kernels::Map(context_, map, View(x));
  }

  void Multiply(DeviceMatrix x, DeviceMatrix y) override {
    kernels::Multiply(context_, View(x), View(y));
  }

  void GateRows(DeviceMatrix gate, DeviceMatrix y) override {
    kernels::SigmoidGateRows(context_, View(gate), View(y));
  }

  void SigmoidGate(DeviceMatrix gate, DeviceMatrix y) override {
    kernels::SigmoidMul(context_, View(gate), View(y));
  }

  void MixState(const kernels::StateMixer& mixer, const StateVectors& vectors,
                const LayerState& state, DeviceMatrix x, DeviceMatrix scratch,
                DeviceMatrix y) override {
    if (state_runs_.empty()) MakeStateRuns(step_->kv_groups[state.group]);
    kernels::MixState(
        context_, mixer,
        {Floats(vectors.taps), Floats(vectors.conv_bias), Floats(vectors.rate),
         Floats(vectors.time_bias), Floats(vectors.skip), Floats(vectors.norm)},
        state_runs_,
        {static_cast<float*>(state.data), state.num_blocks, kBlockTokens,
         mixer.shape},
        View(x), View(scratch), View(y));
  }

  void NormEachHead(DeviceMatrix x, int64_t head_dim,
                    const NormSpec& norm) override {
    kernels::RmsNormHeads(context_, View(x), head_dim, Floats(norm.weight),
                          norm.eps);
  }

  void ScaleRouting(const DeviceRouting& routing, const void* scales,
                    int32_t num_experts) override {
    for (int64_t t = 0; t < routing.ids.rows; ++t) {
      const auto* ids = static_cast<const int32_t*>(routing.ids.row(t));
      auto* weights = static_cast<float*>(routing.weights.row(t));
      for (int64_t j = 0; j < routing.ids.cols; ++j) {
        SLUICE_CHECK(ids[j] >= 0 && ids[j] < num_experts);
        weights[j] *= Floats(scales)[ids[j]];
      }
    }
  }

  void HeadSquares(const kernels::HeadRuns& runs, DeviceMatrix qkv,
                   std::span<const kernels::TreeNode> nodes,
                   std::span<const DeviceMatrix> parts) override {
    kernels::HeadSquares(context_, View(qkv), runs, nodes, View(parts, parts_));
  }

  void NormBySquares(const SquaresNorm& norm, DeviceMatrix qkv) override {
    const Matrix all = View(qkv);
    const Matrix squares = View(norm.squares);
    kernels::RmsNormBySquares(context_, Columns(all, 0, norm.q_cols),
                              {squares.data, squares.stride, norm.q_count},
                              Floats(norm.q_weight), norm.eps);
    kernels::RmsNormBySquares(context_, Columns(all, norm.q_cols, norm.k_cols),
                              {squares.data + 1, squares.stride, norm.k_count},
                              Floats(norm.k_weight), norm.eps);
  }

  void RowParallel(DeviceMatrix x, const Weight& weight,
                   const RowShards& shards,
                   std::span<const DeviceMatrix> parts) override {
    SLUICE_CHECK(parts.size() == shards.nodes.size());
    const std::span<const Matrix> out = View(parts, parts_);
    if (shards.cols() == 0) {  // a rank whose shards are all empty
      for (const Matrix& part : out) FillZero(part);
      return;
    }
    products_.MultiplySharded(View(x), weight,
                              {shards.bounds, shards.own_nodes}, out);
  }

  void ReduceTree(int32_t num_leaves, std::span<const kernels::TreeNode> nodes,
                  std::span<const DeviceMatrix> parts,
                  DeviceMatrix out) override {
    const std::span<const Matrix> views = View(parts, parts_);
    const_parts_.assign(views.begin(), views.end());
    communicator_.ReduceTree(num_leaves, nodes, const_parts_, View(out));
  }

  void Add(DeviceMatrix y, const void* bias, const NormSpec& norm,
           DeviceMatrix x) override {
    ConstMatrix sum = View(y);
    if (bias != nullptr || norm.weight != nullptr) {
      const Matrix changed = Scratch(y.rows, y.cols);
      CopyRows(sum, changed);
      if (bias != nullptr) {
        // One row of all tokens' rows: a stride of zero.
        kernels::Add(context_, {Floats(bias), y.rows, y.cols, 0}, changed);
      }
      if (norm.weight != nullptr) ApplyNorm(context_, changed, norm, changed);
      sum = changed;
    }
    kernels::Add(context_, sum, View(x));
  }

  void Route(DeviceMatrix logits, const kernels::RouterRule& rule,
             const void* correction, const DeviceRouting& routing) override {
    kernels::Route(context_, View(logits), rule, Floats(correction),
                   static_cast<int32_t*>(routing.ids.data),
                   static_cast<float*>(routing.weights.data));
  }

  void ExpertNodes(DeviceMatrix x, const DeviceRouting& routing,
                   const ExpertWeights& experts, const Activation& activation,
                   std::span<const kernels::TreeNode> nodes,
                   std::span<const DeviceMatrix> parts) override {
    gate_up_.clear();
    down_.clear();
    for (const auto& weight : experts.gate_up) {
      gate_up_.push_back(ViewOf(*weight));
    }
    for (const auto& weight : experts.down) down_.push_back(ViewOf(*weight));
    const kernels::ExpertsView view = {experts.first,
                                       gate_up_,
                                       down_,
                                       Floats(experts.gate_up_bias.data()),
                                       Floats(experts.down_bias.data()),
                                       activation};
    const kernels::ExpertRows rows = {
        View(x), static_cast<const int32_t*>(routing.ids.data),
        Floats(routing.weights.data), static_cast<int32_t>(routing.ids.cols)};
    kernels::ExpertNodes(context_, dot_, view, rows, nodes,
                         View(parts, parts_));
  }

  void Logits(DeviceMatrix x, int32_t begin, const NormSpec& norm,
              const Weight& head, const LogitsOut& out) override {
    const Matrix normed = Scratch(out.own.rows, x.cols);
    for (int64_t i = 0; i < normed.rows; ++i) {
      std::memcpy(normed.row(i), x.row(step_->logits_rows[begin + i]),
                  sizeof(float) * x.cols);
    }
    ApplyNorm(context_, normed, norm, normed);
    products_.Multiply(normed, head, /*bias=*/nullptr, View(out.own));
    communicator_.GatherColumns(View(out.own), out.first_column, View(out.all));
  }

  void Sample(DeviceMatrix logits, int32_t begin,
              std::span<const RowTask> tasks,
              std::span<StatusOr<TokenResult>> answers) override {
    sampling_.start_ns = MonotonicNanos();
    sampler_.Run(View(logits), begin, tasks, answers);
    sampling_.stop_ns = MonotonicNanos();
  }

 private:
  // The step's runs of one sequence's tokens.
  void MakeStateRuns(const KvGroupInputs& group) {
    for (int32_t t = 0; t < step_->num_tokens; ++t) {
      const bool follows =
          t > 0 && group.table_offsets[t] == group.table_offsets[t - 1] &&
          step_->positions[t] == step_->positions[t - 1] + 1;
      if (!follows) {
        state_runs_.push_back(
            {t, t, step_->positions[t],
             group.block_tables.data() + group.table_offsets[t]});
      }
      state_runs_.back().end = t + 1;
    }
  }

  kernels::AttentionQueries QueriesOf(const AttentionSpec& spec, DeviceMatrix q,
                                      const LayerKv& kv) const {
    const KvGroupInputs& group = step_->kv_groups[kv.group];
    kernels::AttentionQueries queries;
    queries.q = Columns(View(q), 0, spec.num_heads * spec.head_dim);
    queries.positions = step_->positions.data();
    queries.block_tables = group.block_tables.data();
    queries.table_offsets = group.table_offsets.data();
    queries.num_heads = spec.num_heads;
    queries.kv_heads = spec.kv_heads.data();
    queries.scale = spec.scale;
    queries.soft_cap = spec.soft_cap;
    queries.window = spec.window;
    return queries;
  }
  // The kernels' view of a layer's index keys.
  kernels::IndexKeys IndexOf(const AttentionSpec& spec,
                             const LayerKv& kv) const {
    SLUICE_CHECK(kv.type == info_.kv_type && kv.index_keys != nullptr);
    return {kv.index_keys, kv.num_blocks, kBlockTokens,
            spec.latent.index.head_dim, kv_type_};
  }
  // IEEE rounds both roots correctly.
  static float InverseRoot(int64_t n) {
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
  }
  void RotateIndex(const AttentionSpec& spec, Matrix x) const {
    const IndexSpec& index = spec.latent.index;
    const RopeTables::Table& rope = ropes_.at(index.rope);
    kernels::Rope(context_, x, index.head_dim, rope.spec.style, rope.rows,
                  step_->positions.data());
  }
  // Rotates every head of x in place by the tokens' positions.
  void Rotate(const AttentionSpec& spec, Matrix x) const {
    const RopeTables::Table& rope = ropes_.at(spec.rope);
    kernels::Rope(context_, x, spec.head_dim, rope.spec.style, rope.rows,
                  step_->positions.data());
  }
  // Head h's columns of y, `y_step` behind those before, are those of x times
  // part h of `weight`; x and y have the columns of head 0.
  void MultiplyHeads(const Weight& weight, ConstMatrix x, int64_t x_step,
                     Matrix y, int64_t y_step) {
    heads_.clear();
    for (const WeightPart& part : weight.parts) {
      heads_.push_back(ViewOf(part, weight.cols));
    }
    kernels::HeadMatMul(context_, dot_, {heads_, x, x_step, y, y_step});
  }
  void Grow(const QueryGrowth& growth, Matrix q) const {
    for (int64_t t = 0; t < q.rows; ++t) {
      const double laps = std::floor(step_->positions[t] / growth.original);
      if (laps == 0) continue;
      const auto factor = static_cast<float>(
          1.0 + static_cast<double>(growth.beta) * kernels::Log(1.0 + laps));
      kernels::Map(context_, {.scale = factor}, {q.row(t), 1, q.cols, q.cols});
    }
  }
  // The kernels' view of a layer's keys and values.
  kernels::KvView KvOf(const AttentionSpec& spec, const LayerKv& kv) const {
    SLUICE_CHECK(kv.type == info_.kv_type);
    return {kv.keys,           kv.values,    kv.num_blocks,
            spec.num_kv_heads, kBlockTokens, spec.head_dim,
            kv_type_,          dot_.ops,     spec.value_dim()};
  }
  // Returns packed rows that the next operation may reuse. Only the first
  // operations grow them, to the largest step at once.
  Matrix Scratch(int64_t rows, int64_t cols) {
    const size_t needed = sizeof(float) * rows * cols;
    if (scratch_.size() < needed) {
      const auto most = static_cast<int64_t>(step_->positions.size());
      scratch_ = Buffer(sizeof(float) * std::max(rows, most) * cols);
    }
    return {scratch_.as<float>(), rows, cols, cols};
  }

  const BackendInfo info_;
  ThreadTeam team_;
  const kernels::Context context_;
  const kernels::DotContext dot_;
  const kernels::WeightType kv_type_;
  WeightProducts products_;
  ThreadCommunicator communicator_;
  RowSampler sampler_;
  RopeTables ropes_;
  Buffer scratch_;
  const StepInputs* step_ = nullptr;
  std::vector<kernels::StateRun> state_runs_;  // of the step
  TraceSpan sampling_;
  uint32_t joins_ = 0;  // of the team when the step began
  // Views of an operation's arguments, in memory that is kept.
  std::vector<Matrix> parts_;
  std::vector<ConstMatrix> const_parts_;
  std::vector<kernels::ExpertWeight> gate_up_;
  std::vector<kernels::ExpertWeight> down_;
  std::vector<kernels::ExpertWeight> heads_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(CpuBackendOptions options) {
  return std::make_unique<CpuBackend>(std::move(options));
}

}  // namespace sluice
