#include "tests/device/cuda/device_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "common/tensor/weight_format.h"
#include "tests/device/cuda/op_base.h"

namespace sluice::testing {
namespace {

using kernels::RandomFloats;
using kernels::WeightType;

class EmbedOp final : public OpBase {
 public:
  EmbedOp(Backend& backend, const OpSizes& s, WeightType type)
      : OpBase(backend, s),
        table_(Pack(type, 1, s.vocab, s.hidden)),
        x_(Output(s.tokens, s.hidden)) {}
  void Run() override { backend_.Embed(&*table_, x_); }

 private:
  const std::unique_ptr<Weight> table_;
  const DeviceMatrix x_;
};

class RowsOp final : public OpBase {
 public:
  RowsOp(Backend& backend, const OpSizes& s)
      : OpBase(backend, s),
        x_(Input(1, s.tokens, 2 * s.mlp)),
        norm_(Norm(2, 2 * s.mlp)),
        bias_(Vector(3, s.mlp)),
        normed_(Output(s.tokens, 2 * s.mlp)),
        silu_(Output(s.tokens, s.mlp)),
        clamped_(Output(s.tokens, s.mlp)),
        half_norm_(Norm(4, s.mlp)) {}
  void Run() override {
    backend_.Norm(x_, norm_, normed_);
    backend_.Gate({Activation::Kind::kSilu}, x_, silu_);
    backend_.Gate({Activation::Kind::kClampedSwiGlu, 1.1f}, x_, clamped_);
    backend_.Add(silu_, bias_, half_norm_, clamped_);
    backend_.Add(silu_, nullptr, {}, clamped_);
  }

 private:
  const DeviceMatrix x_;
  const NormSpec norm_;
  const void* const bias_;
  const DeviceMatrix normed_;
  const DeviceMatrix silu_;
  const DeviceMatrix clamped_;
  const NormSpec half_norm_;
};

class LinearOp final : public OpBase {
 public:
  LinearOp(Backend& backend, const OpSizes& s, WeightType type)
      : OpBase(backend, s),
        weight_(Pack(type, 1, s.mlp, s.hidden)),
        x_(Input(2, s.tokens, s.hidden)),
        norm_(Norm(3, s.hidden)),
        bias_(Vector(4, s.mlp)),
        y_(Output(s.tokens, s.mlp)) {}
  void Run() override {
    // A bias would hide sums that are far smaller.
    const bool has_bias = sizes_.largest > kSubnormal;
    backend_.Linear(x_, norm_, *weight_, has_bias ? bias_ : nullptr, y_);
  }

 private:
  const std::unique_ptr<Weight> weight_;
  const DeviceMatrix x_;
  const NormSpec norm_;
  const void* const bias_;
  const DeviceMatrix y_;
};

class RowParallelOp final : public OpBase {
 public:
  // `apart`: the columns are two nodes of the tree, as a rank may have them.
  RowParallelOp(Backend& backend, const OpSizes& s, WeightType type, bool apart)
      : OpBase(backend, s),
        weight_(Pack(type, 1, s.hidden, s.mlp)),
        x_(Input(2, s.tokens, s.mlp)),
        parts_{NewMatrix(s.tokens, s.hidden)},
        y_(Output(s.tokens, s.hidden)) {
    const auto leaves = static_cast<int32_t>(s.mlp / 256);
    shards_.num_leaves = leaves;
    shards_.col_end = s.mlp;
    for (int32_t i = 0; i <= leaves; ++i) shards_.bounds.push_back(i * 256);
    shards_.nodes = {{0, leaves}};
    if (apart) {
      // The tree's halves, the left one of most leaves.
      int32_t half = 1;
      while (2 * half < leaves) half *= 2;
      shards_.nodes = {{0, half}, {half, leaves}};
      parts_.push_back(NewMatrix(s.tokens, s.hidden));
    }
    shards_.own_nodes = shards_.nodes;
  }
  void Run() override {
    backend_.RowParallel(x_, *weight_, shards_, parts_);
    backend_.ReduceTree(shards_.num_leaves, shards_.nodes, parts_, y_);
  }

 private:
  const std::unique_ptr<Weight> weight_;
  const DeviceMatrix x_;
  std::vector<DeviceMatrix> parts_;
  const DeviceMatrix y_;
  RowShards shards_;
};

// An MLP on top of its own input.
class MlpOp final : public OpBase {
 public:
  MlpOp(Backend& backend, const OpSizes& s, WeightType type)
      : OpBase(backend, s),
        gate_up_(Pack(type, 1, 2 * s.mlp, s.hidden)),
        down_(Pack(type, 2, s.hidden, s.mlp)),
        norm_(Norm(3, s.hidden)),
        bias_(Vector(4, s.hidden)),
        x_(Input(5, s.tokens, s.hidden)),
        both_(NewMatrix(s.tokens, 2 * s.mlp)),
        mlp_(Output(s.tokens, s.mlp)),
        parts_{NewMatrix(s.tokens, s.hidden)} {
    outputs_.push_back(x_);
    shards_.num_leaves = 2;
    shards_.col_end = s.mlp;
    shards_.bounds = {0, 256, static_cast<int32_t>(s.mlp)};
    shards_.nodes = shards_.own_nodes = {{0, 2}};
  }
  void Run() override {
    backend_.GatedLinear(x_, norm_, *gate_up_, nullptr, {}, both_, mlp_);
    backend_.AddRowParallel(mlp_, *down_, shards_, parts_, {bias_, {}, x_});
  }

 private:
  const std::unique_ptr<Weight> gate_up_;
  const std::unique_ptr<Weight> down_;
  const NormSpec norm_;
  const void* const bias_;
  const DeviceMatrix x_;
  const DeviceMatrix both_;
  const DeviceMatrix mlp_;
  const std::vector<DeviceMatrix> parts_;
  RowShards shards_;
};

// RoPE, storing and attention; the positions before the step's are stored
// first.
class AttentionOp final : public OpBase {
 public:
  AttentionOp(Backend& backend, const OpSizes& s)
      : OpBase(backend, s),
        type_(backend.info().kv_type),
        q_norm_(Norm(1, s.head_dim)),
        k_norm_(Norm(2, s.head_dim)),
        sinks_(Vector(3, s.heads)),
        qkv_(Input(4, s.tokens, (s.heads + 2 * s.kv_heads) * s.head_dim)),
        out_(Output(s.tokens, s.heads * s.head_dim)),
        keys_(backend.Allocate(bytes())),
        values_(backend.Allocate(bytes())) {
    RopeSpec rope;
    for (int64_t i = 0; i < s.head_dim / 2; ++i) {
      rope.inv_freq.push_back(std::pow(
          10000.0,
          -2.0 * static_cast<double>(i) / static_cast<double>(s.head_dim)));
    }
    rope.positions = s.context + s.tokens;
    spec_.num_heads = s.heads;
    spec_.num_kv_heads = s.kv_heads;
    spec_.head_dim = s.head_dim;
    for (int64_t h = 0; h < s.heads; ++h) {
      spec_.kv_heads.push_back(static_cast<int32_t>(h * s.kv_heads / s.heads));
    }
    spec_.scale = 0.125f;
    spec_.window = s.window;
    spec_.rope = backend.AddRope(std::move(rope));
    kv_ = {keys_.data(), values_.data(), type_, num_blocks(), 0};
    StoreContext();
  }
  void Run() override {
    backend_.RopeAttention(spec_, {q_norm_, k_norm_}, qkv_, sinks_, kv_, out_);
  }

 private:
  size_t bytes() const {
    return KvBytesOf(
        type_, num_blocks() * kBlockTokens * sizes_.kv_heads * sizes_.head_dim);
  }
  void StoreContext() {
    constexpr int64_t kRows = 256;
    const DeviceMatrix room = NewMatrix(kRows, qkv_.cols);
    for (int64_t sequence = 0; sequence < num_sequences(); ++sequence) {
      const int64_t context = ContextOf(sequence);
      for (int64_t first = 0; first < context; first += kRows) {
        DeviceMatrix rows = room;
        rows.rows = std::min(kRows, context - first);
        StoreRows(sequence, first, rows);
      }
    }
  }
  // Positions from `first` on, whose keys and values become random ones by way
  // of `qkv`.
  void StoreRows(int64_t sequence, int64_t first, DeviceMatrix qkv) {
    const int64_t rows = qkv.rows;
    StepInputs step({static_cast<int32_t>(rows),
                     static_cast<int32_t>(num_sequences()),
                     static_cast<int32_t>(sizes_.context + sizes_.tokens), 1});
    SetStep(step, rows);
    for (int64_t t = 0; t < rows; ++t) Place(step, t, sequence, first + t);
    const auto values = RandomFloats(
        5 + static_cast<uint64_t>(first + sequence), rows * qkv_.cols, 2.0f);
    backend_.BeginStep(step);
    backend_.CopyIn(values.data(), qkv);
    backend_.RopeStoreKv(spec_, q_norm_, k_norm_, qkv, kv_);
    backend_.EndStep();
  }

  const ElementType type_;
  const NormSpec q_norm_;
  const NormSpec k_norm_;
  const void* const sinks_;
  const DeviceMatrix qkv_;
  const DeviceMatrix out_;
  const DeviceMemory keys_;
  const DeviceMemory values_;
  AttentionSpec spec_;
  LayerKv kv_;
};

// A router and its experts.
class ExpertsOp final : public OpBase {
 public:
  ExpertsOp(Backend& backend, const OpSizes& s, WeightType type)
      : OpBase(backend, s),
        router_(Pack(WeightType::kF32, 1, s.experts, s.hidden)),
        correction_(Vector(2, s.experts)),
        x_(Input(3, s.tokens, s.hidden)),
        logits_(NewMatrix(s.tokens, s.experts)),
        routing_{Output(s.tokens, s.per_token, ElementType::kInt32),
                 Output(s.tokens, s.per_token)},
        nodes_{{0, s.experts}},
        parts_{Output(s.tokens, s.hidden)} {
    rule_.score = kernels::RouterRule::Score::kSigmoid;
    rule_.num_experts = s.experts;
    rule_.per_token = s.per_token;
    rule_.normalise = true;
    for (int32_t e = 0; e < s.experts; ++e) {
      const auto seed = static_cast<uint64_t>(10 + 2 * e);
      experts_.gate_up.push_back(Pack(type, seed, 2 * s.mlp, s.hidden));
      experts_.down.push_back(Pack(type, seed + 1, s.hidden, s.mlp));
    }
  }
  void Run() override {
    backend_.Linear(x_, {}, *router_, nullptr, logits_);
    backend_.Route(logits_, rule_, correction_, routing_);
    backend_.ExpertNodes(x_, routing_, experts_, {}, nodes_, parts_);
  }

 private:
  const std::unique_ptr<Weight> router_;
  const void* const correction_;
  const DeviceMatrix x_;
  const DeviceMatrix logits_;
  const DeviceRouting routing_;
  const std::vector<kernels::TreeNode> nodes_;
  const std::vector<DeviceMatrix> parts_;
  kernels::RouterRule rule_;
  ExpertWeights experts_;
};

// A norm and the router behind it.
class RouterOp final : public OpBase {
 public:
  RouterOp(Backend& backend, const OpSizes& s)
      : OpBase(backend, s),
        norm_(Norm(1, s.hidden)),
        router_(Pack(WeightType::kF32, 2, s.experts, s.hidden)),
        bias_(Vector(3, s.experts)),
        correction_(Vector(4, s.experts)),
        x_(Input(5, s.tokens, s.hidden)),
        normed_(Output(s.tokens, s.hidden)),
        logits_(Output(s.tokens, s.experts)),
        routing_{Output(s.tokens, s.per_token, ElementType::kInt32),
                 Output(s.tokens, s.per_token)} {
    rule_.score = kernels::RouterRule::Score::kSigmoid;
    rule_.num_experts = s.experts;
    rule_.per_token = s.per_token;
    rule_.normalise = true;
  }
  void Run() override {
    backend_.NormRoute(x_, norm_, {*router_, bias_, rule_, correction_},
                       normed_, logits_, routing_);
  }

 private:
  const NormSpec norm_;
  const std::unique_ptr<Weight> router_;
  const void* const bias_;
  const void* const correction_;
  const DeviceMatrix x_;
  const DeviceMatrix normed_;
  const DeviceMatrix logits_;
  const DeviceRouting routing_;
  kernels::RouterRule rule_;
};

// Logits and their draws.
class SampleOp final : public OpBase {
 public:
  SampleOp(Backend& backend, const OpSizes& s)
      : OpBase(backend, s),
        head_(Pack(WeightType::kBf16, 1, s.vocab, s.hidden)),
        x_(Input(2, s.tokens, s.hidden)),
        norm_(Norm(3, s.hidden)),
        logits_(Output(s.tokens, s.vocab)),
        history_(1, 0),
        params_(static_cast<size_t>(s.tokens)),
        answers_(static_cast<size_t>(s.tokens), TokenResult()) {
    for (int64_t t = 0; t < s.tokens; ++t) {
      SamplingParams& params = params_[t];
      params.temperature = t % 3 == 0 ? 0.0f : 0.8f;
      params.top_k = t % 3 == 1 ? 40 : 0;
      params.top_p = t % 3 == 2 ? 0.9f : 1.0f;
      params.seed = static_cast<uint64_t>(t);
      params.logprobs = 2;
      RowTask& task = tasks_.emplace_back();
      task.row = static_cast<int32_t>(t);
      task.task.params = &params;
      task.task.point = {1, history_, 1};
    }
  }
  void Run() override {
    backend_.Logits(x_, 0, norm_, *head_, {logits_, 0, logits_});
    backend_.Sample(logits_, 0, tasks_, answers_);
  }
  void CopyIn() override {
    OpBase::CopyIn();
    ForgetAnswers();
  }
  void CopyZerosIn() override {
    OpBase::CopyZerosIn();
    ForgetAnswers();
  }
  OpResults Results() override {
    std::vector<float> all;
    for (const StatusOr<TokenResult>& answer : answers_) {
      if (!answer.ok()) {
        all.push_back(kNaN);
        continue;
      }
      all.push_back(static_cast<float>(answer->token));
      all.push_back(answer->logprob->logprob);
      for (const TokenLogprob& top : answer->top_logprobs) {
        all.push_back(static_cast<float>(top.token));
        all.push_back(top.logprob);
      }
    }
    OpResults results = OpBase::Results();
    results.push_back({std::move(all)});
    return results;
  }

 private:
  void ForgetAnswers() {
    std::fill(answers_.begin(), answers_.end(), Internal("there is no draw"));
  }

  const std::unique_ptr<Weight> head_;
  const DeviceMatrix x_;
  const NormSpec norm_;
  const DeviceMatrix logits_;
  const std::vector<TokenId> history_;
  std::vector<SamplingParams> params_;
  std::vector<RowTask> tasks_;
  std::vector<StatusOr<TokenResult>> answers_;
};

template <typename Op, typename... Args>
void AddOp(std::vector<DeviceOp>& ops, std::string name, double bytes,
           WeightType kv_type, const OpSizes& sizes, Args... args) {
  ops.push_back({std::move(name), kv_type, bytes,
                 [=](Backend& backend) -> std::unique_ptr<PreparedOp> {
                   return std::make_unique<Op>(backend, sizes, args...);
                 }});
}

}  // namespace

std::vector<DeviceOp> AllDeviceOps(const OpSizes& s) {
  constexpr WeightType kF32 = WeightType::kF32;
  std::vector<DeviceOp> ops;
  const auto rows = static_cast<double>(s.tokens);
  const auto weight_bytes = [](WeightType type, int64_t r, int64_t c) {
    return static_cast<double>(FormatOf(type).bytes(r * c));
  };
  AddOp<RowsOp>(ops, "norm, gates, add",
                rows * static_cast<double>(s.mlp) * 4 * 14, kF32, s);
  for (int i = 0; i < kernels::kNumWeightTypes; ++i) {
    const auto type = static_cast<WeightType>(i);
    const std::string name(FormatOf(type).name);
    AddOp<EmbedOp>(ops, "embed " + name, rows * weight_bytes(type, 1, s.hidden),
                   kF32, s, type);
    AddOp<LinearOp>(ops, "linear " + name, weight_bytes(type, s.mlp, s.hidden),
                    kF32, s, type);
    AddOp<RowParallelOp>(ops, "row parallel " + name,
                         weight_bytes(type, s.hidden, s.mlp), kF32, s, type,
                         false);
    AddOp<MlpOp>(ops, "mlp " + name, weight_bytes(type, 3 * s.mlp, s.hidden),
                 kF32, s, type);
  }
  for (const WeightType type :
       {WeightType::kBf16, WeightType::kQ4_0, WeightType::kQ6K}) {
    AddOp<RowParallelOp>(ops, "nodes apart " + std::string(FormatOf(type).name),
                         weight_bytes(type, s.hidden, s.mlp), kF32, s, type,
                         true);
  }
  for (const WeightType kv_type :
       {kF32, WeightType::kBf16, WeightType::kQ8_0}) {
    const double elements = 2.0 * static_cast<double>(s.context + s.tokens) *
                            static_cast<double>(s.kv_heads * s.head_dim);
    AddOp<AttentionOp>(ops, "attention " + std::string(FormatOf(kv_type).name),
                       elements * weight_bytes(kv_type, 1, 32) / 32, kv_type,
                       s);
  }
  const double experts_read = std::min(static_cast<double>(s.experts),
                                       rows * static_cast<double>(s.per_token));
  for (const WeightType type :
       {kF32, WeightType::kBf16, WeightType::kE4m3, WeightType::kE4m3Wide,
        WeightType::kMxfp4, WeightType::kQ8_0, WeightType::kQ4_0,
        WeightType::kQ5_0, WeightType::kQ4K, WeightType::kQ6K}) {
    AddOp<ExpertsOp>(
        ops, "experts " + std::string(FormatOf(type).name),
        experts_read * 1.5 * weight_bytes(type, 2 * s.mlp, s.hidden), kF32, s,
        type);
  }
  AddOp<RouterOp>(ops, "norm, router", weight_bytes(kF32, s.experts, s.hidden),
                  kF32, s);
  AddOp<SampleOp>(ops, "logits and draws",
                  weight_bytes(WeightType::kBf16, s.vocab, s.hidden), kF32, s);
  return ops;
}

OpResults ResultsOf(Backend& backend, PreparedOp& op) {
  backend.BeginStep(op.step());
  op.CopyIn();
  op.Run();
  backend.EndStep();
  return op.Results();
}

bool RepeatsItself(Backend& backend, PreparedOp& op, const OpResults& want,
                   int times) {
  for (int i = 0; i < times; ++i) {
    backend.BeginStep(op.step());
    op.CopyZerosIn();
    op.Run();
    backend.EndStep();
    backend.BeginStep(op.step());
    op.CopyZerosIn();
    backend.EndStep();  // copies end a list of launches
    backend.BeginStep(op.step());
    op.RunBehindOthers();
    backend.EndStep();
    if (!SameBits(op.Results(), want)) return false;
  }
  return true;
}

bool IsFastOp(const DeviceOp& op) {
  // Draws may differ, errors of two products add up; other blocks are computed
  // as on a CPU.
  if (op.name.starts_with("mlp")) return false;
  for (const char* part : {"bf16", "fp8", "Q8_0", "Q4_0", "Q4_1", "Q5_0",
                           "Q5_1", "MXFP4", "_K", "attention", "norm"}) {
    if (op.name.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace sluice::testing
