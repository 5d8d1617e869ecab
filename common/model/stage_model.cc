#include "common/model/stage_model.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

using kernels::ConstMatrix;
using kernels::Matrix;

// Logits are made a few rows at a time: a long prompt whose every position
// is wanted would else need [T, V] at once.
constexpr int64_t kLogitsBytes = int64_t{32} << 20;

int32_t LogitsRows(const StageModelShape& shape) {
  const int64_t row_bytes =
      static_cast<int64_t>(sizeof(float)) * shape.vocab_size;
  return static_cast<int32_t>(
      std::clamp<int64_t>(kLogitsBytes / row_bytes, 1, shape.max_step_tokens));
}

Matrix FirstRows(Matrix x, int64_t rows) {
  return {x.data, rows, x.cols, x.stride};
}

}  // namespace

StageModel::StageModel(const StageModelShape& shape,
                       const BackendShape& rank_shape, RankPlan plan,
                       RankWeights weights, const Surroundings& surroundings)
    : shape_(shape),
      plan_(std::move(plan)),
      weights_(std::move(weights)),
      backend_(*surroundings.backend),
      communicator_(*surroundings.communicator),
      elsewhere_(surroundings.elsewhere),
      kv_(backend_, shape.kv_groups, shape.kv_blocks, plan_.num_kv_heads(),
          rank_shape.head_dim) {
  const int64_t tokens = shape.max_step_tokens;
  const int64_t dim = rank_shape.head_dim;
  LayerActivations& a = activations_;
  hidden_ = AllocateMatrix(tokens, shape.hidden_size);
  a.qkv = AllocateMatrix(tokens,
                         (plan_.num_heads() + 2 * plan_.num_kv_heads()) * dim);
  a.attention = AllocateMatrix(tokens, plan_.num_heads() * dim);
  a.gate_up = AllocateMatrix(tokens, 2 * plan_.mlp.cols());
  a.mlp = AllocateMatrix(tokens, plan_.mlp.cols());
  a.attention_sums = AllocateSums(plan_.attention);
  a.mlp_sums = AllocateSums(plan_.mlp);
  if (plan_.num_experts > 0) AllocateSparse();
  if (!shape.range.is_last) return;
  max_logits_rows_ = LogitsRows(shape);
  own_logits_ = AllocateMatrix(max_logits_rows_, plan_.num_vocab());
  if (plan_.rank == 0) {
    all_logits_ = plan_.ranks == 1
                      ? own_logits_
                      : AllocateMatrix(max_logits_rows_, shape.vocab_size);
  }
}

void StageModel::AllocateSparse() {
  const int64_t tokens = shape_.max_step_tokens;
  const int64_t asks = tokens * shape_.experts_per_token;
  LayerActivations& a = activations_;
  a.normed = AllocateMatrix(tokens, shape_.hidden_size);
  a.router_logits = AllocateMatrix(tokens, plan_.num_experts);
  a.mixed = AllocateMatrix(tokens, shape_.hidden_size);
  a.routing.per_token = shape_.experts_per_token;
  a.routing.weights = AllocateMatrix(1, asks).data;
  // Ids are of the floats' size.
  static_assert(sizeof(int32_t) == sizeof(float));
  a.routing.ids = reinterpret_cast<int32_t*>(AllocateMatrix(1, asks).data);
  if (shape_.shared_intermediate_size > 0) {
    const int64_t columns = plan_.shared_mlp.cols();
    a.shared_gate_up = AllocateMatrix(tokens, 2 * columns);
    a.shared_mlp = AllocateMatrix(tokens, columns);
    a.shared_sums = AllocateSums(plan_.shared_mlp);
  }
  PlanExperts();
}

void StageModel::PlanExperts() {
  std::vector<LocalExperts::Runs> own;
  for (const LayerWeights& layer : weights_.layers) {
    own.emplace_back();
    for (const ExpertWeights& run : layer.moe.experts) {
      own.back().push_back(&run);
    }
  }
  own_experts_ = std::make_unique<LocalExperts>(&backend_, plan_.num_experts,
                                                shape_.range.first_layer, own);
  std::vector<ExpertOwner*> owners = {own_experts_.get()};
  if (elsewhere_ != nullptr) owners.insert(owners.begin(), elsewhere_);
  // Layers run one after another and share these.
  std::vector<Matrix> sums;
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    ExpertJoin join;
    join.layer = shape_.range.first_layer + static_cast<int32_t>(i);
    std::vector<std::pair<kernels::TreeNode, ConstMatrix>> parts;
    for (ExpertOwner* owner : owners) {
      join.parts.push_back({owner, {}});
      for (const kernels::TreeNode& node : owner->nodes(join.layer)) {
        if (parts.size() == sums.size()) {
          sums.push_back(
              AllocateMatrix(shape_.max_step_tokens, shape_.hidden_size));
        }
        join.parts.back().out.push_back(sums[parts.size()]);
        parts.push_back({node, sums[parts.size()]});
      }
    }
    std::sort(parts.begin(), parts.end(), [](const auto& x, const auto& y) {
      return x.first.begin < y.first.begin;
    });
    for (const auto& [node, sum] : parts) {
      join.nodes.push_back(node);
      join.sums.push_back(sum);
    }
    activations_.experts.push_back(std::move(join));
  }
}

Matrix StageModel::AllocateMatrix(int64_t rows, int64_t cols) {
  memory_.push_back(backend_.Allocate(sizeof(float) * rows * cols));
  return {memory_.back()->data(), rows, cols, cols};
}

PartialSums StageModel::AllocateSums(const RowShards& shards) {
  PartialSums sums;
  for (size_t i = 0; i < shards.nodes.size(); ++i) {
    sums.out.push_back(
        AllocateMatrix(shape_.max_step_tokens, shape_.hidden_size));
    sums.in.push_back(sums.out.back());
  }
  return sums;
}

void StageModel::SetRows(int32_t num_tokens) {
  LayerActivations& a = activations_;
  for (Matrix* matrix :
       {&hidden_, &a.qkv, &a.attention, &a.gate_up, &a.mlp, &a.normed,
        &a.router_logits, &a.shared_gate_up, &a.shared_mlp, &a.mixed}) {
    matrix->rows = num_tokens;
  }
  for (PartialSums* sums : {&a.attention_sums, &a.mlp_sums, &a.shared_sums}) {
    for (Matrix& out : sums->out) out.rows = num_tokens;
    for (ConstMatrix& in : sums->in) in.rows = num_tokens;
  }
  for (ExpertJoin& join : a.experts) {
    for (ExpertJoin::Part& part : join.parts) {
      for (Matrix& out : part.out) out.rows = num_tokens;
    }
    for (ConstMatrix& in : join.sums) in.rows = num_tokens;
  }
}

// Rank 0 alone holds the embedding; a tree of one leaf, which it brings,
// hands the rows to all.
void StageModel::Embed(const StepInputs& step) {
  if (plan_.rank != 0) {
    communicator_.ReduceTree(1, {}, {}, hidden_);
    return;
  }
  backend_.Embed(*weights_.embedding, hidden_);
  const kernels::TreeNode node = {0, 1};
  const ConstMatrix part = hidden_;
  communicator_.ReduceTree(1, {&node, 1}, {&part, 1}, hidden_);
}

void StageModel::Forward(const StepInputs& step, const float* hidden_in,
                         float* hidden_out) {
  backend_.BeginStep(step);
  SetRows(step.num_tokens);
  if (hidden_in == nullptr) {
    Embed(step);
  } else {
    backend_.CopyIn(hidden_in, hidden_);
  }
  failed_rows_.clear();
  const RankContext rank = {backend_, communicator_, plan_, step.name,
                            failed_rows_};
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    LayerKv kv = kv_.layer(index);
    kv.window = shape_.windows[i];
    RunDecoderLayer(rank, weights_.layers[i], kv, index, activations_, hidden_);
  }
  if (hidden_out != nullptr) backend_.CopyOut(hidden_, hidden_out);
}

ConstMatrix StageModel::Logits(const StepInputs& step, int32_t begin) {
  const int64_t rows = std::min(max_logits_rows_, step.num_logits_rows - begin);
  const Matrix own = FirstRows(own_logits_, rows);
  const Matrix all = plan_.rank == 0 ? FirstRows(all_logits_, rows) : Matrix{};
  backend_.Logits(hidden_, begin, weights_.final_norm->data(), *weights_.head(),
                  own);
  communicator_.GatherColumns(own, plan_.vocab_begin, all);
  if (plan_.rank != 0) return {};
  return backend_.ToHost(all);
}

}  // namespace sluice
