#include "common/tools/measure/op_times.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "common/base/cat.h"
#include "common/base/clock.h"
#include "common/device/forwarding_backend.h"
#include "common/tensor/weight_format.h"

namespace sluice::measure {
namespace {

constexpr std::string_view kEmbed = "embedding";
constexpr std::string_view kAttentionNorm = "attention norm";
constexpr std::string_view kQkv = "QKV";
constexpr std::string_view kRope = "RoPE, KV store";
constexpr std::string_view kAttention = "attention";
constexpr std::string_view kOut = "o_proj";
constexpr std::string_view kMlpNorm = "MLP norm";
constexpr std::string_view kRouter = "router";
constexpr std::string_view kGateUp = "gate/up";
constexpr std::string_view kActivation = "activation";
constexpr std::string_view kDown = "down";
constexpr std::string_view kExperts = "experts";
constexpr std::string_view kJoin = "join of shards";
constexpr std::string_view kResidual = "residual";
constexpr std::string_view kLogits = "logits";
constexpr std::string_view kSampling = "sampling";

std::string TypesOf(const Weight& weight) {
  WeightFormatSet types;
  for (const WeightPart& part : weight.parts) types.Add(part.type);
  return types.names();
}

bool IsInteger(const Weight& weight) {
  return FormatOf(weight.parts[0].type).numerics == kQ8Canonical;
}

// Fills what a product of `rows` rows of `weight` with `tokens` rows reads.
void Describe(const Weight& weight, int64_t rows, int64_t tokens, OpTime& op) {
  const double share =
      static_cast<double>(rows) / static_cast<double>(weight.rows);
  op.shape = Cat(rows, "x", weight.cols);
  op.type = TypesOf(weight);
  op.tokens = tokens;
  op.bytes = share * static_cast<double>(weight.bytes());
  op.operations = 2.0 * static_cast<double>(rows * weight.cols * tokens);
  op.integer = IsInteger(weight);
}

// A backend over another one: times each operation of a step. Each call is
// done when it returns, as the CPU's are.
class TimedBackend final : public ForwardingBackend {
 public:
  TimedBackend(std::unique_ptr<Backend> inner, StepOps* to)
      : ForwardingBackend(std::move(inner)), to_(*to) {}

  void BeginStep(const StepInputs& step) override {
    to_.ops.clear();
    step_ = &step;
    inner().BeginStep(step);
  }
  StepTimes EndStep() override {
    const StepTimes times = inner().EndStep();
    to_.joins = times.joins;
    return times;
  }

  void Embed(const Weight* table, DeviceMatrix x) override {
    Time(kEmbed, x.rows, [&] { inner().Embed(table, x); });
  }

  void Norm(DeviceMatrix x, const NormSpec& norm, DeviceMatrix y) override {
    Time(kMlpNorm, x.rows, [&] { inner().Norm(x, norm, y); });
  }

  // A norm of the attention's or of the MLP's input: what follows tells.
  void Linear(DeviceMatrix x, const NormSpec& norm, const Weight& weight,
              const void* bias, DeviceMatrix y) override {
    normed_ = norm.weight != nullptr;
    if (normed_) {
      const DeviceMatrix n = Scratch(x);
      Time(kMlpNorm, x.rows, [&] { inner().Norm(x, norm, n); });
      x = n;
    }
    OpTime& op = Time(kGateUp, x.rows,
                      [&] { inner().Linear(x, NormSpec(), weight, bias, y); });
    Describe(weight, weight.rows, x.rows, op);
  }

  void RopeStoreKv(const AttentionSpec& spec, const NormSpec& q_norm,
                   const NormSpec& k_norm, DeviceMatrix qkv,
                   const LayerKv& kv) override {
    NameLinear(kQkv, kAttentionNorm);
    Time(kRope, qkv.rows,
         [&] { inner().RopeStoreKv(spec, q_norm, k_norm, qkv, kv); });
  }

  void Attention(const AttentionSpec& spec, DeviceMatrix qkv, const void* sinks,
                 const LayerKv& kv, DeviceMatrix out) override {
    OpTime& op = Time(kAttention, qkv.rows,
                      [&] { inner().Attention(spec, qkv, sinks, kv, out); });
    DescribeAttention(spec, kv, op);
    product_ = kOut;
  }

  void Gate(const Activation& activation, DeviceMatrix x,
            DeviceMatrix y) override {
    Time(kActivation, x.rows, [&] { inner().Gate(activation, x, y); });
    product_ = kDown;
  }

  void RowParallel(DeviceMatrix x, const Weight& weight,
                   const RowShards& shards,
                   std::span<const DeviceMatrix> parts) override {
    OpTime& op = Time(product_, x.rows,
                      [&] { inner().RowParallel(x, weight, shards, parts); });
    Describe(weight, weight.rows, x.rows, op);
  }

  void ReduceTree(int32_t num_leaves, std::span<const kernels::TreeNode> nodes,
                  std::span<const DeviceMatrix> parts,
                  DeviceMatrix out) override {
    Time(kJoin, out.rows,
         [&] { inner().ReduceTree(num_leaves, nodes, parts, out); });
  }

  void Add(DeviceMatrix y, const void* bias, const NormSpec& norm,
           DeviceMatrix x) override {
    Time(kResidual, x.rows, [&] { inner().Add(y, bias, norm, x); });
  }

  void Route(DeviceMatrix logits, const kernels::RouterRule& rule,
             const void* correction, const DeviceRouting& routing) override {
    NameLinear(kRouter, kMlpNorm);
    Time(kRouter, logits.rows,
         [&] { inner().Route(logits, rule, correction, routing); });
  }

  void ExpertNodes(DeviceMatrix x, const DeviceRouting& routing,
                   const ExpertWeights& experts, const Activation& activation,
                   std::span<const kernels::TreeNode> nodes,
                   std::span<const DeviceMatrix> parts) override {
    OpTime& op = Time(kExperts, x.rows, [&] {
      inner().ExpertNodes(x, routing, experts, activation, nodes, parts);
    });
    DescribeExperts(routing, experts, op);
  }

  void Logits(DeviceMatrix x, int32_t begin, const NormSpec& norm,
              const Weight& head, const LogitsOut& out) override {
    OpTime& op = Time(kLogits, out.own.rows,
                      [&] { inner().Logits(x, begin, norm, head, out); });
    Describe(head, out.own.cols, out.own.rows, op);
  }

  void Sample(DeviceMatrix logits, int32_t begin,
              std::span<const RowTask> tasks,
              std::span<StatusOr<TokenResult>> answers) override {
    Time(kSampling, logits.rows,
         [&] { inner().Sample(logits, begin, tasks, answers); });
  }

 private:
  template <typename Run>
  OpTime& Time(std::string_view name, int64_t tokens, Run&& run) {
    const TimePoint start = Clock::now();
    run();
    const double seconds = Seconds(Clock::now() - start);
    OpTime& op = to_.ops.emplace_back();
    op.op = name;
    op.tokens = tokens;
    op.seconds = seconds;
    return op;
  }

  // Names the last operation, a product, and the norm before it if it had one.
  void NameLinear(std::string_view product, std::string_view norm) {
    const size_t last = to_.ops.size() - 1;
    to_.ops[last].op = product;
    if (normed_) to_.ops[last - 1].op = norm;
  }

  // Keys and values of a sequence count once, however many of its tokens read
  // them.
  void DescribeAttention(const AttentionSpec& spec, const LayerKv& kv,
                         OpTime& op) const {
    op.shape = Cat(spec.num_heads, ":", spec.num_kv_heads, " heads of ",
                   spec.head_dim);
    op.type = "KV f32";
    const KvGroupInputs& group =
        step_->kv_groups[static_cast<size_t>(kv.group)];
    double positions = 0;  // of all tokens
    double read = 0;       // of the longest token of every sequence
    for (int32_t t = 0; t < step_->num_tokens; ++t) {
      const auto at = static_cast<size_t>(t);
      int64_t seen = step_->positions[at] + 1;
      if (spec.window > 0) seen = std::min<int64_t>(seen, spec.window);
      positions += static_cast<double>(seen);
      const bool last = t + 1 == step_->num_tokens ||
                        group.table_offsets[at + 1] != group.table_offsets[at];
      if (last) read += static_cast<double>(seen);
    }
    op.bytes = 2.0 * read *
               static_cast<double>(spec.num_kv_heads * spec.head_dim) *
               static_cast<double>(BytesOf(kv.type));
    op.operations =
        4.0 * positions * static_cast<double>(spec.num_heads * spec.head_dim);
  }

  // Each expert that some token asks for is read once.
  static void DescribeExperts(const DeviceRouting& routing,
                              const ExpertWeights& experts, OpTime& op) {
    std::set<int32_t> distinct;
    for (int64_t t = 0; t < routing.ids.rows; ++t) {
      const auto* ids = static_cast<const int32_t*>(routing.ids.row(t));
      for (int64_t i = 0; i < routing.ids.cols; ++i) {
        const int32_t own = ids[i] - experts.first;
        if (own < 0 || own >= experts.size()) continue;
        const auto at = static_cast<size_t>(own);
        for (const Weight* weight :
             {experts.gate_up[at].get(), experts.down[at].get()}) {
          op.operations += 2.0 * static_cast<double>(weight->rows) *
                           static_cast<double>(weight->cols);
          if (!distinct.contains(own)) {
            op.bytes += static_cast<double>(weight->bytes());
          }
        }
        distinct.insert(own);
      }
    }
    const Weight& first = *experts.gate_up[0];
    op.shape = Cat(experts.size(), " of ", first.rows, "x", first.cols);
    op.type = TypesOf(first);
    op.integer = IsInteger(first);
  }

  // Packed rows like x's, for a norm.
  DeviceMatrix Scratch(const DeviceMatrix& x) {
    const auto most = static_cast<int64_t>(step_->positions.size());
    const size_t bytes = BytesOf(x.type) * static_cast<size_t>(most * x.cols);
    if (scratch_.bytes() < bytes) scratch_ = inner().Allocate(bytes);
    return {scratch_.data(), x.rows, x.cols, x.cols, x.type};
  }

  StepOps& to_;
  DeviceMemory scratch_;
  const StepInputs* step_ = nullptr;
  bool normed_ = false;  // the last Linear had a norm
  std::string_view product_ = kOut;
};

}  // namespace

const std::vector<std::string_view>& OpOrder() {
  static const std::vector<std::string_view> order = {
      kEmbed,   kAttentionNorm, kQkv,    kRope,       kAttention, kOut,
      kMlpNorm, kRouter,        kGateUp, kActivation, kDown,      kExperts,
      kJoin,    kResidual,      kLogits, kSampling};
  return order;
}

BackendFactory TimedBackends(StepOps* to) {
  return [to](const BackendOptions& options)
             -> StatusOr<std::vector<std::unique_ptr<Backend>>> {
    if (options.ranks != 1) {
      return InvalidArgument("operations are timed on one rank, not on ",
                             options.ranks);
    }
    SLUICE_ASSIGN_OR_RETURN(auto backends, MakeBackends(options));
    backends[0] = std::make_unique<TimedBackend>(std::move(backends[0]), to);
    return backends;
  };
}

}  // namespace sluice::measure
