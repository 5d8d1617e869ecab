#include "common/tools/importance/column_squares.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "common/device/forwarding_backend.h"

namespace sluice {
namespace {

// Adds the squares of rows of F32.
void AddRows(DeviceMatrix x, ColumnSquares& to) {
  to.sums.resize(static_cast<size_t>(x.cols));
  for (int64_t t = 0; t < x.rows; ++t) {
    const auto* row = static_cast<const float*>(x.row(t));
    for (size_t k = 0; k < to.sums.size(); ++k) {
      to.sums[k] += double{row[k]} * double{row[k]};
    }
  }
  to.rows += x.rows;
}

// A layer's operations come in the order of RunDecoderLayer: what a product
// reads is told by the operation before or after it.
class RecordingBackend final : public ForwardingBackend {
 public:
  RecordingBackend(std::unique_ptr<Backend> inner, SquaresByWeight* to)
      : ForwardingBackend(std::move(inner)), to_(*to) {}

  void BeginStep(const StepInputs& step) override {
    layer_ = -1;
    max_rows_ = static_cast<int64_t>(step.positions.size());
    inner().BeginStep(step);
  }

  void Linear(DeviceMatrix x, const NormSpec& norm, const Weight& weight,
              const void* bias, DeviceMatrix y) override {
    if (norm.weight != nullptr) {
      const DeviceMatrix n = Packed(normed_, x.rows, x.cols);
      inner().Norm(x, norm, n);
      x = n;
    }
    linear_ = {};
    AddRows(x, linear_);
    inner().Linear(x, NormSpec(), weight, bias, y);
  }

  void RopeStoreKv(const AttentionSpec& spec, const NormSpec& q_norm,
                   const NormSpec& k_norm, DeviceMatrix qkv,
                   const LayerKv& kv) override {
    ++layer_;
    is_sparse_ = false;
    AddLinear(WeightPlace::kQkv);
    product_ = WeightPlace::kO;
    inner().RopeStoreKv(spec, q_norm, k_norm, qkv, kv);
  }

  void StoreLatent(const AttentionSpec& spec, const NormSpec& norm,
                   DeviceMatrix rows, const LayerKv& kv) override {
    ++layer_;
    is_sparse_ = false;
    AddLinear(WeightPlace::kQkv);
    product_ = WeightPlace::kO;
    linear_ = {};
    inner().StoreLatent(spec, norm, rows, kv);
  }

  void LatentQueries(const AttentionSpec& spec, DeviceMatrix q,
                     const Weight& keys, DeviceMatrix out) override {
    // Without a latent row of q there is no product since StoreLatent.
    if (linear_.rows > 0) AddLinear(WeightPlace::kQueryHeads);
    inner().LatentQueries(spec, q, keys, out);
  }

  void Route(DeviceMatrix logits, const kernels::RouterRule& rule,
             const void* correction, const DeviceRouting& routing) override {
    is_sparse_ = true;
    AddLinear(WeightPlace::kRouter);
    inner().Route(logits, rule, correction, routing);
  }

  void Gate(const Activation& activation, DeviceMatrix x,
            DeviceMatrix y) override {
    AddLinear(is_sparse_ ? WeightPlace::kSharedGateUp : WeightPlace::kGateUp);
    product_ = is_sparse_ ? WeightPlace::kSharedDown : WeightPlace::kDown;
    inner().Gate(activation, x, y);
  }

  void RowParallel(DeviceMatrix x, const Weight& weight,
                   const RowShards& shards,
                   std::span<const DeviceMatrix> parts) override {
    AddRows(x, to_[{layer_, product_}]);
    inner().RowParallel(x, weight, shards, parts);
  }

  void ExpertNodes(DeviceMatrix x, const DeviceRouting& routing,
                   const ExpertWeights& experts, const Activation& activation,
                   std::span<const kernels::TreeNode> nodes,
                   std::span<const DeviceMatrix> parts) override {
    for (int32_t i = 0; i < experts.size(); ++i) {
      AddExpert(Gathered(x, routing, experts.first + i), experts, i,
                activation);
    }
    inner().ExpertNodes(x, routing, experts, activation, nodes, parts);
  }

 private:
  void AddLinear(WeightPlace place) {
    ColumnSquares& to = to_[{layer_, place}];
    to.sums.resize(linear_.sums.size());
    std::transform(to.sums.begin(), to.sums.end(), linear_.sums.begin(),
                   to.sums.begin(), std::plus<>());
    to.rows += linear_.rows;
  }

  // Packed rows of F32 in `memory`, which grows to the step's most rows.
  DeviceMatrix Packed(DeviceMemory& memory, int64_t rows, int64_t cols) {
    const size_t bytes = sizeof(float) * static_cast<size_t>(max_rows_ * cols);
    if (memory.bytes() < bytes) memory = inner().Allocate(bytes);
    return {memory.data(), rows, cols, cols, ElementType::kF32};
  }

  // The rows of `x` that go to the expert.
  DeviceMatrix Gathered(DeviceMatrix x, const DeviceRouting& routing,
                        int32_t expert) {
    DeviceMatrix rows = Packed(normed_, x.rows, x.cols);
    int64_t count = 0;
    for (int64_t t = 0; t < x.rows; ++t) {
      const auto* ids = static_cast<const int32_t*>(routing.ids.row(t));
      if (std::find(ids, ids + routing.ids.cols, expert) ==
          ids + routing.ids.cols) {
        continue;
      }
      const auto* row = static_cast<const float*>(x.row(t));
      std::copy_n(row, x.cols, static_cast<float*>(rows.row(count++)));
    }
    rows.rows = count;
    return rows;
  }

  // Adds the rows that an expert's two products read.
  void AddExpert(DeviceMatrix x, const ExpertWeights& experts, int32_t index,
                 const Activation& activation) {
    if (x.rows == 0) return;
    const auto at = static_cast<size_t>(index);
    const int32_t expert = experts.first + index;
    const Weight& gate_up = *experts.gate_up[at];
    const auto* bias = static_cast<const float*>(experts.gate_up_bias.data());
    if (bias != nullptr) bias += index * gate_up.rows;
    AddRows(x, to_[{layer_, WeightPlace::kExpertGateUp, expert}]);
    const DeviceMatrix wide = Packed(wide_, x.rows, gate_up.rows);
    const DeviceMatrix narrow = Packed(narrow_, x.rows, gate_up.rows / 2);
    inner().Linear(x, NormSpec(), gate_up, bias, wide);
    inner().Gate(activation, wide, narrow);
    AddRows(narrow, to_[{layer_, WeightPlace::kExpertDown, expert}]);
  }

  SquaresByWeight& to_;
  int32_t layer_ = -1;
  int64_t max_rows_ = 0;
  bool is_sparse_ = false;  // the layer has had its router
  ColumnSquares linear_;    // of the last Linear
  WeightPlace product_ = WeightPlace::kO;
  DeviceMemory normed_, wide_, narrow_;
};

}  // namespace

BackendFactory RecordingBackends(SquaresByWeight* to) {
  return [to](const BackendOptions& options)
             -> StatusOr<std::vector<std::unique_ptr<Backend>>> {
    if (options.ranks != 1) {
      return InvalidArgument("columns are recorded on one rank, not on ",
                             options.ranks);
    }
    SLUICE_ASSIGN_OR_RETURN(auto backends, MakeBackends(options));
    backends[0] =
        std::make_unique<RecordingBackend>(std::move(backends[0]), to);
    return backends;
  };
}

}  // namespace sluice
