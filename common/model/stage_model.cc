#include "common/model/stage_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice {
namespace {

// Logits are made a few rows at a time: a long prompt that wants the logits of
// every position would need [T, V] at once.
constexpr int64_t kLogitsBytes = int64_t{32} << 20;

int64_t LogitsRows(const StageModelShape& shape) {
  const int64_t row_bytes =
      static_cast<int64_t>(BytesOf(ElementType::kF32)) * shape.vocab_size;
  return std::clamp<int64_t>(kLogitsBytes / row_bytes, 1,
                             shape.max_step_tokens);
}

// Returns the first index and number of the entries of `all`, which rise by
// row, in rows [begin, end).
template <typename T>
std::pair<size_t, size_t> RowsWithin(std::span<const T> all, int64_t begin,
                                     int64_t end) {
  const auto below = [](const T& x, int64_t row) { return x.row < row; };
  const auto first = std::lower_bound(all.begin(), all.end(), begin, below);
  const auto last = std::lower_bound(first, all.end(), end, below);
  return {static_cast<size_t>(first - all.begin()),
          static_cast<size_t>(last - first)};
}

std::vector<KvCache::Layer> KvLayersOf(const StageModelShape& shape,
                                       const RankPlan& plan) {
  std::vector<KvCache::Layer> layers;
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    const AttentionSpec& attention = shape.layers[i].attention;
    layers.push_back(
        {shape.kv_groups[i], attention.shares_kv ? 0 : attention.num_kv_heads,
         attention.head_dim, attention.latent.kv_rank == 0,
         shape.layers[i].has_indexer ? attention.latent.index.head_dim : 0,
         plan.layers[shape.range.first_layer + i].mixer.shape.block_floats(
             kBlockTokens)});
  }
  return layers;
}

}  // namespace

StageModel::StageModel(StageModelShape shape, RankPlan plan,
                       RankWeights weights, const Dependencies& dependencies)
    : shape_(std::move(shape)),
      plan_(std::move(plan)),
      weights_(std::move(weights)),
      backend_(*dependencies.backend),
      kv_(backend_, KvLayersOf(shape_, plan_), shape_.kv_blocks,
          {shape_.state_blocks, shape_.state_group}) {
  hidden_ = AllocateMatrix(shape_.max_step_tokens, shape_.row_size);
  AllocateLayers();
  AllocateStates();
  AllocateSparse(dependencies.expert_transport);
  ExpectCopies();
  if (!shape_.range.is_last) return;
  own_logits_ = AllocateMatrix(LogitsRows(shape_), plan_.num_vocab());
  if (plan_.rank == 0) {
    all_logits_ = plan_.ranks == 1
                      ? own_logits_
                      : AllocateMatrix(own_logits_.rows, shape_.vocab_size);
    normed_ = AllocateMatrix(own_logits_.rows, shape_.hidden_size);
  }
}

size_t StageModel::KvBytes(int32_t index, int32_t group) const {
  if (group != 0 && group == shape_.state_group) return kv_.StateBytes(index);
  return group == kv_.layer(index).group ? kv_.BlockBytes(index) : 0;
}

void StageModel::ReadKv(int32_t index, int32_t group, BlockId block,
                        std::byte* out) {
  group != 0 && group == shape_.state_group
      ? kv_.ReadState(backend_, index, block, out)
      : kv_.ReadBlock(backend_, index, block, out);
}

void StageModel::WriteKv(int32_t index, int32_t group, BlockId block,
                         const std::byte* in) {
  group != 0 && group == shape_.state_group
      ? kv_.WriteState(backend_, index, block, in)
      : kv_.WriteBlock(backend_, index, block, in);
}

void StageModel::ExpectCopies() {
  const bool comes = !shape_.range.is_first;
  const bool goes = !shape_.range.is_last && plan_.rank == 0;
  if (!comes && !goes) return;
  backend_.ExpectCopies(
      sizeof(float) * static_cast<size_t>(hidden_.rows * hidden_.cols),
      comes && goes ? 2 : 1);
}

void StageModel::AllocateLayers() {
  int64_t qkv = 0;
  int64_t heads = 0;
  int64_t mlp = 0;
  int64_t q_heads = 0;
  int64_t queries = 0;
  int64_t weighted = 0;
  int64_t chosen = 0;
  size_t sums = 0;
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const LayerWeights& layer = weights_.layers[i];
    const LayerShare& share = ShareOf(i);
    const RowShards& of_mlp = layer.is_sparse() ? share.shared_mlp : share.mlp;
    if (layer.qkv != nullptr) {
      qkv = std::max(qkv, layer.qkv->rows);
      heads = std::max(heads, layer.o->cols);
    }
    mlp = std::max(mlp, of_mlp.cols());
    const AttentionSpec& attention = shape_.layers[i].attention;
    if (attention.latent.kv_rank > 0) {
      queries = std::max(queries, attention.num_heads * attention.head_dim);
      weighted =
          std::max(weighted, attention.num_heads * attention.value_dim());
      chosen = std::max(chosen, attention.latent.index.top_k);
      const Weight* of_q = layer.latent.q_heads.get();
      if (of_q != nullptr) q_heads = std::max(q_heads, of_q->rows);
    }
    sums = std::max({sums, share.attention.nodes.size(), of_mlp.nodes.size(),
                     share.state.nodes.size()});
  }
  const int64_t tokens = shape_.max_step_tokens;
  LayerActivations& a = activations_;
  const bool is_parallel = std::any_of(
      shape_.layers.begin(), shape_.layers.end(), [](const LayerSpec& layer) {
        return layer.parallel || layer.norms_once;
      });
  if (shape_.per_layer_input > 0) {
    a.own_input = AllocateMatrix(tokens, shape_.per_layer_input);
    if (shape_.range.is_first) {
      inputs_ = AllocateMatrix(tokens, shape_.row_size - shape_.hidden_size);
    }
  }
  if (is_parallel) a.normed = AllocateMatrix(tokens, shape_.hidden_size);
  a.qkv = AllocateMatrix(tokens, qkv);
  a.attention = AllocateMatrix(tokens, heads);
  a.latent = {AllocateMatrix(tokens, q_heads), AllocateMatrix(tokens, queries),
              AllocateMatrix(tokens, weighted),
              AllocateMatrix(tokens, chosen, ElementType::kInt32)};
  a.gate_up = AllocateMatrix(tokens, 2 * mlp);
  a.mlp = AllocateMatrix(tokens, mlp);
  while (a.sums.size() < sums) {
    a.sums.push_back(AllocateMatrix(tokens, shape_.hidden_size));
    a.squares.push_back(a.sums.back().Packed(2));
  }
}

void StageModel::AllocateStates() {
  int64_t in = 0, scratch = 0, out = 0;
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    if (weights_.layers[i].state.in == nullptr) continue;
    const kernels::StateMixer& mixer = ShareOf(i).mixer;
    in = std::max(in, mixer.in_columns());
    scratch = std::max(scratch, mixer.scratch_columns());
    out = std::max(out, mixer.out_columns());
  }
  if (in == 0) return;
  const int64_t tokens = shape_.max_step_tokens;
  activations_.state_in = AllocateMatrix(tokens, in);
  activations_.state_scratch = AllocateMatrix(tokens, scratch);
  activations_.state_out = AllocateMatrix(tokens, out);
}

void StageModel::AllocateSparse(ExpertTransport* expert_transport) {
  int64_t experts = 0;
  int64_t per_token = 0;
  for (const LayerSpec& layer : shape_.layers) {
    experts = std::max<int64_t>(experts, layer.router.num_experts);
    per_token = std::max<int64_t>(per_token, layer.router.per_token);
  }
  if (experts == 0) return;
  const int64_t tokens = shape_.max_step_tokens;
  LayerActivations& a = activations_;
  if (a.normed.data == nullptr) {
    a.normed = AllocateMatrix(tokens, shape_.hidden_size);
  }
  a.shared_gate = AllocateMatrix(tokens, 1);
  a.router_logits = AllocateMatrix(tokens, experts);
  a.routing.weights = AllocateMatrix(tokens, per_token);
  a.routing.ids = AllocateMatrix(tokens, per_token, ElementType::kInt32);
  PlanExperts(expert_transport);
}

void StageModel::PlanExperts(ExpertTransport* expert_transport) {
  std::vector<LocalExperts::Runs> own;
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    own.push_back({ShareOf(i).num_experts, {}});
    for (const ExpertWeights& run : weights_.layers[i].moe.experts) {
      own.back().runs.push_back(&run);
    }
  }
  LayerActivations& a = activations_;
  a.own_experts = std::make_unique<LocalExperts>(
      &backend_, own, plan_.ranks == 1 && expert_transport == nullptr);
  // Layers run one after another and share these: a layer's remote nodes have
  // the first ones, its own nodes the next.
  std::vector<DeviceMatrix> sums;
  const auto sum = [&](size_t i) {
    while (i >= sums.size()) {
      sums.push_back(
          AllocateMatrix(shape_.max_step_tokens, shape_.hidden_size));
    }
    return sums[i];
  };
  size_t most_remote = 0;
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    ExpertJoin& join = a.experts.emplace_back();
    join.layer = shape_.range.first_layer + static_cast<int32_t>(i);
    std::vector<std::pair<kernels::TreeNode, DeviceMatrix>> parts;
    if (expert_transport != nullptr) {
      for (const kernels::TreeNode& node :
           expert_transport->nodes(join.layer)) {
        parts.push_back({node, sum(parts.size())});
      }
    }
    most_remote = std::max(most_remote, parts.size());
    for (const kernels::TreeNode& node : a.own_experts->nodes(i)) {
      join.own.push_back(sum(parts.size()));
      parts.push_back({node, join.own.back()});
    }
    std::sort(parts.begin(), parts.end(), [](const auto& x, const auto& y) {
      return x.first.begin < y.first.begin;
    });
    for (const auto& [node, of_node] : parts) {
      join.nodes.push_back(node);
      join.sums.push_back(of_node);
    }
    // A rank without experts has the sum of others' here.
    if (parts.empty() && a.mixed.data == nullptr) {
      a.mixed = AllocateMatrix(shape_.max_step_tokens, shape_.hidden_size);
    }
  }
  if (expert_transport == nullptr) return;
  a.remote_experts = std::make_unique<RemoteExperts>(
      &backend_, expert_transport, a.normed, a.routing,
      std::span(sums).first(most_remote));
}

DeviceMatrix StageModel::AllocateMatrix(int64_t rows, int64_t cols,
                                        ElementType type) {
  memory_.push_back(backend_.Allocate(BytesOf(type) * rows * cols));
  return {memory_.back().data(), rows, cols, cols, type};
}

void StageModel::SetRows(int32_t num_tokens) {
  LayerActivations& a = activations_;
  for (DeviceMatrix* matrix :
       {&hidden_, &a.qkv, &a.attention, &a.latent.q, &a.latent.queries,
        &a.latent.weighted, &a.latent.chosen, &a.gate_up, &a.mlp, &a.normed,
        &a.shared_gate, &a.router_logits, &a.routing.ids, &a.routing.weights,
        &a.mixed, &a.state_in, &a.state_scratch, &a.state_out}) {
    matrix->rows = num_tokens;
  }
  inputs_.rows = num_tokens;
  a.own_input.rows = num_tokens;
  for (DeviceMatrix& sum : a.sums) sum.rows = num_tokens;
  for (DeviceMatrix& squares : a.squares) squares.rows = num_tokens;
  for (ExpertJoin& join : a.experts) {
    for (DeviceMatrix& sum : join.own) sum.rows = num_tokens;
    for (DeviceMatrix& sum : join.sums) sum.rows = num_tokens;
  }
}

void StageModel::Embed(DeviceMatrix hidden) {
  const DeviceMatrix x = hidden.Columns(0, shape_.hidden_size);
  backend_.Embed(weights_.embedding.get(), x);
  if (shape_.embedding_scale != 1) {
    backend_.Map({.scale = shape_.embedding_scale}, x);
  }
  if (shape_.per_layer_input == 0) return;
  // (norm(W x / sqrt(H)) + table[id] sqrt(P)) / sqrt(2)
  const DeviceMatrix inputs =
      hidden.Columns(shape_.hidden_size, shape_.row_size - shape_.hidden_size);
  const auto root = [](int64_t of) {
    return static_cast<float>(std::sqrt(static_cast<double>(of)));
  };
  backend_.Embed(weights_.per_layer_embedding.get(), inputs);
  backend_.Map({.scale = root(shape_.per_layer_input)}, inputs);
  backend_.Linear(x, NormSpec(), *weights_.per_layer_projection,
                  /*bias=*/nullptr, inputs_);
  backend_.Map({.scale = 1.0f / root(shape_.hidden_size)}, inputs_);
  backend_.NormEachHead(
      inputs_, shape_.per_layer_input,
      {weights_.per_layer_norm.data(), shape_.final_norm_eps});
  backend_.Add(inputs_, /*bias=*/nullptr, NormSpec(), inputs);
  backend_.Map({.scale = 1.0f / root(2)}, inputs);
}

DeviceMatrix StageModel::OwnInput(DeviceMatrix hidden, size_t index) const {
  const int64_t size = shape_.per_layer_input;
  if (size == 0) return {};
  const int64_t layer = shape_.range.first_layer + static_cast<int64_t>(index);
  return hidden.Columns(shape_.hidden_size + layer * size, size);
}

void StageModel::Begin(const StepInputs& step, const StepIo& io) {
  backend_.BeginStep(step);
  SetRows(step.num_tokens);
  // The other ranks have copied the rows before rank 0 changes them: the first
  // sum that joins the residual needs every rank.
  const bool in_place = plan_.rank == 0 && io.hidden != nullptr &&
                        backend_.info().shares_host_memory;
  DeviceMatrix hidden = hidden_;
  if (in_place) hidden.data = io.hidden;
  if (shape_.range.is_first) {
    Embed(hidden);
  } else if (!in_place) {
    backend_.CopyIn(io.hidden, hidden);
  }
  const DeviceMatrix x = hidden.Columns(0, shape_.hidden_size);
  failed_rows_.clear();
  const RankContext rank = {backend_, step.header, failed_rows_};
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    RunDecoderLayer(rank,
                    {i, shape_.layers[i], ShareOf(i), weights_.layers[i],
                     kv_.layer(shape_.layers[i].kv_layer),
                     kv_.state(static_cast<int32_t>(i)), OwnInput(hidden, i)},
                    activations_, x);
    if (io.layers_done != nullptr) ++*io.layers_done;
  }
  if (shape_.range.is_last) {
    RunLogits(step, io, x);
    CopyHidden(io, x);
  } else if (plan_.rank == 0 && !in_place) {
    backend_.CopyOut(hidden, io.hidden);
  }
  backend_.SubmitStep();
}

void StageModel::RunLogits(const StepInputs& step, const StepIo& io,
                           DeviceMatrix x) {
  const NormSpec norm = FinalNorm();
  for (int32_t begin = 0; begin < step.num_logits_rows;) {
    const auto rows = static_cast<int32_t>(
        std::min<int64_t>(own_logits_.rows, step.num_logits_rows - begin));
    const LogitsOut out = {
        own_logits_.Rows(0, rows), plan_.vocab_begin,
        plan_.rank == 0 ? all_logits_.Rows(0, rows) : DeviceMatrix()};
    backend_.Logits(x, begin, norm, *weights_.head(), out);
    if (plan_.rank == 0 && !shape_.logits.is_identity()) {
      backend_.Map(shape_.logits, out.all);
    }
    const auto [first, count] = RowsWithin(io.tasks, begin, begin + rows);
    if (count > 0) {
      backend_.Sample(out.all, begin, io.tasks.subspan(first, count),
                      io.answers.subspan(first, count));
    }
    const auto [raw, raws] = RowsWithin(io.raw_logits, begin, begin + rows);
    for (const RawLogits& wanted : io.raw_logits.subspan(raw, raws)) {
      backend_.CopyOut(out.all.Rows(wanted.row - begin, 1), wanted.to);
    }
    begin += rows;
  }
}

void StageModel::CopyHidden(const StepIo& io, DeviceMatrix x) {
  for (const RawHidden& wanted : io.raw_hidden) {
    for (int64_t done = 0; done < wanted.count;) {
      const int64_t rows = std::min<int64_t>(normed_.rows, wanted.count - done);
      const DeviceMatrix normed = normed_.Rows(0, rows);
      backend_.Norm(x.Rows(wanted.row + done, rows), FinalNorm(), normed);
      backend_.CopyOut(normed, wanted.to + done * shape_.hidden_size);
      done += rows;
    }
  }
}

}  // namespace sluice
