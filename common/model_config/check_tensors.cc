#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "common/model_config/tensor_table.h"
#include "common/weights/composed_tensor.h"
#include "common/weights/file.h"

namespace sluice {
namespace {

using weights::DType;
using weights::Quoted;
using weights::ShapeToString;
using weights::TensorInfo;

// Calls take(row, layer, tensor) for every tensor of the model; layer is -1 for
// a tensor outside the layers.
template <typename Take>
void ForEachTensor(const ModelConfig& config, ExpertStorage storage,
                   const Take& take) {
  const auto take_row = [&](const TensorRow& row, int32_t layer,
                            int32_t expert) {
    TensorInfo tensor = {NameOf(row, layer, expert), DType::kF32, {}};
    for (const Dimension& size : DimensionsOf(row, config, layer)) {
      tensor.shape.push_back(size.size);
    }
    take(row, layer, std::move(tensor));
  };
  for (int32_t layer = -1; layer < config.num_layers(); ++layer) {
    for (const WeightRows& weight : WeightsOf(config, layer, storage)) {
      for (const TensorRow* row : weight.rows) {
        if (row->again) continue;
        const int32_t copies =
            row->per_expert() ? config.layers[layer].moe.num_experts : 1;
        for (int32_t expert = 0; expert < copies; ++expert) {
          take_row(*row, layer, expert);
        }
      }
    }
  }
}

// Returns the parameters of `layer` (-1: outside the layers). `all` false
// counts only the experts that one token uses.
uint64_t Elements(const ModelConfig& config, int32_t layer, bool all) {
  const MoeConfig moe = layer < 0 ? MoeConfig() : config.layers[layer].moe;
  const int32_t experts = all ? moe.num_experts : moe.experts_per_token;
  uint64_t sum = 0;
  for (const WeightRows& weight :
       WeightsOf(config, layer, ExpertStorage::kStacked)) {
    for (const TensorRow* row : weight.rows) {
      if (row->again) continue;
      uint64_t elements = 1;
      for (const Dimension& dimension : DimensionsOf(*row, config, layer)) {
        elements *= static_cast<uint64_t>(dimension.letter() == 'E' &&
                                                  row->cut == RankCut::kExperts
                                              ? experts
                                              : dimension.size);
      }
      sum += elements;
    }
  }
  return sum;
}

uint64_t AllElements(const ModelConfig& config, bool all) {
  uint64_t sum = 0;
  for (int32_t layer = -1; layer < config.num_layers(); ++layer) {
    sum += Elements(config, layer, all);
  }
  return sum;
}

// Returns whether the tensor belongs to a layer behind the config's last.
bool IsLeftAside(const ModelConfig& config, std::string_view name) {
  std::string_view rest;
  const int32_t layer = LayerOfTensor(name, rest);
  return layer >= config.num_layers() &&
         layer < config.num_layers() + config.num_nextn_predict_layers;
}

Status CheckOne(const TensorInfo& wanted, const weights::ModelFile& model) {
  const TensorInfo* found = model.Find(wanted.name);
  if (found == nullptr) {
    const std::string why = model.WhyAbsent(wanted.name);
    return InvalidArgument(model.path(), ": tensor ", Quoted(wanted.name),
                           " is missing; ", why, why.empty() ? "" : "; ",
                           "the config asks for shape ",
                           ShapeToString(wanted.shape));
  }
  if (!weights::IsReadable(found->dtype)) {
    return InvalidArgument(model.path(), ": tensor ", Quoted(wanted.name),
                           " is stored as ", found->type_name(),
                           ", which is not supported");
  }
  if (found->shape != wanted.shape) {
    return InvalidArgument(model.path(), ": tensor ", Quoted(wanted.name),
                           " has shape ", ShapeToString(found->shape),
                           ", the config asks for ",
                           ShapeToString(wanted.shape));
  }
  return OkStatus();
}

// Tensors that no step reads: tables and masks that old checkpoints keep, and
// the scales of activations and of a KV cache in eight bits. Activations and
// keys and values are never stored in the checkpoint's eight bits, so that
// their scales say nothing.
bool IsUnread(std::string_view name) {
  constexpr std::string_view kUnread[] = {".rotary_emb.inv_freq",
                                          ".rotary_emb.cos_cached",
                                          ".rotary_emb.sin_cached",
                                          ".masked_bias",
                                          ".input_scale",
                                          ".input_scale_ub",
                                          ".input_zero_point",
                                          ".input_global_scale",
                                          ".activation_scale",
                                          ".act_scale",
                                          ".output_scale",
                                          ".output_zero_point",
                                          ".q_scale",
                                          ".k_scale",
                                          ".v_scale",
                                          ".kv_scale",
                                          ".prob_scale",
                                          ".q_zero_point",
                                          ".k_zero_point",
                                          ".v_zero_point",
                                          ".kv_cache_scale"};
  return std::any_of(
      std::begin(kUnread), std::end(kUnread),
      [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// Whether the tensor is a bias of zeros, which AutoGPTQ writes beside every
// matrix, or a further scale of ones: they change nothing.
StatusOr<bool> IsNeutral(const weights::ModelFile& model,
                         const std::unordered_set<std::string_view>& names,
                         std::string_view name) {
  constexpr std::string_view kBias = ".bias";
  constexpr std::string_view kScale = ".weight_scale_2";
  constexpr int64_t kMostElements = 1 << 22;
  const bool is_bias = name.ends_with(kBias);
  if (!is_bias && !name.ends_with(kScale)) return false;
  std::string matrix(name.substr(0, name.rfind('.')));
  matrix += ".weight";
  const TensorInfo* found = model.Find(name);
  if (!names.contains(matrix) || found == nullptr ||
      !weights::IsReadable(found->dtype) || found->shape.size() > 1 ||
      found->elements() > kMostElements) {
    return false;
  }
  std::vector<float> values(static_cast<size_t>(found->elements()));
  SLUICE_RETURN_IF_ERROR(
      model.ReadF32(name, weights::Slice::All(*found), values.data()));
  return std::all_of(values.begin(), values.end(), [&](float value) {
    return value == (is_bias ? 0.0f : 1.0f);
  });
}

// Released layers that read another layer's keys and values have tensors of
// their own, which nothing reads.
bool IsOfSharedKv(const ModelConfig& config, std::string_view name) {
  std::string_view rest;
  const int32_t layer = LayerOfTensor(name, rest);
  if (layer < 0 || layer >= config.num_layers() ||
      config.layers[layer].attention.kv_layer < 0) {
    return false;
  }
  return rest == "self_attn.k_proj.weight" ||
         rest == "self_attn.v_proj.weight" || rest == "self_attn.k_norm.weight";
}

// Files may have indexers in layers that take the choice of the layer before.
bool IsOfSharedIndexer(const ModelConfig& config, std::string_view name) {
  std::string_view rest;
  const int32_t layer = LayerOfTensor(name, rest);
  if (layer < 0 || layer >= config.num_layers()) return false;
  const IndexerConfig& indexer = config.layers[layer].attention.latent.indexer;
  return indexer.top_k > 0 && !indexer.own &&
         rest.starts_with("self_attn.indexer.");
}

Status CheckKnown(const ModelConfig& config, const weights::ModelFile& model,
                  const std::unordered_set<std::string_view>& names,
                  std::string_view name) {
  const bool of_layer =
      name.starts_with(kLayerPrefix) || name.starts_with(kGgufLayerPrefix);
  if (!of_layer || names.contains(name) || IsUnread(name) ||
      IsOfSharedKv(config, name) || IsOfSharedIndexer(config, name) ||
      IsLeftAside(config, name)) {
    return OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(const bool is_neutral, IsNeutral(model, names, name));
  if (is_neutral) return OkStatus();
  return InvalidArgument(model.path(), ": tensor ", Quoted(name),
                         " is not part of a ", config.model_type, " model of ",
                         config.num_layers(), " layers");
}

// Whether some rows of two tensors of one shape differ; those that cannot be
// read, of outlines, do not.
bool RowsDiffer(const weights::ModelFile& model, const TensorInfo& a,
                const TensorInfo& b) {
  const int64_t cols = std::min<int64_t>(a.cols(), 1024);
  std::vector<float> of_a(static_cast<size_t>(cols));
  std::vector<float> of_b(of_a.size());
  for (const int64_t row : {int64_t{0}, a.rows() / 2, a.rows() - 1}) {
    const weights::Slice slice = {row, row + 1, 0, cols};
    if (model.ReadF32(a.name, slice, of_a.data()).ok() &&
        model.ReadF32(b.name, slice, of_b.data()).ok() && of_a != of_b) {
      return true;
    }
  }
  return false;
}

// A head that is stored though the config ties it to the embedding: the
// reference computes with a head that differs.
Status CheckTiedHead(const ModelConfig& config,
                     const weights::ModelFile& model) {
  if (!config.tie_word_embeddings) return OkStatus();
  const TensorInfo* head = model.Find("lm_head.weight");
  const TensorInfo* embedding = model.Find("model.embed_tokens.weight");
  if (head == nullptr || embedding == nullptr ||
      !weights::IsReadable(head->dtype) || head->elements() == 0 ||
      (head->shape == embedding->shape &&
       !RowsDiffer(model, *head, *embedding))) {
    return OkStatus();
  }
  return InvalidArgument(
      model.path(), ": tensor ", Quoted(head->name), " differs from ",
      Quoted(embedding->name),
      ", and the config ties them: tie_word_embeddings must be false for the "
      "stored head to be computed with");
}

}  // namespace

std::vector<TensorInfo> ExpectedTensors(const ModelConfig& config,
                                        ExpertStorage storage) {
  std::vector<TensorInfo> all;
  ForEachTensor(config, storage,
                [&](const TensorRow&, int32_t, TensorInfo tensor) {
                  all.push_back(std::move(tensor));
                });
  return all;
}

Status CheckTensors(const ModelConfig& config,
                    const weights::ModelFile& model) {
  SLUICE_RETURN_IF_ERROR(CheckTiedHead(config, model));
  const ExpertStorage storage = ExpertStorageOf(config, model);
  const std::vector<TensorInfo> expected = ExpectedTensors(config, storage);
  std::unordered_set<std::string_view> names;
  for (const TensorInfo& wanted : expected) {
    names.insert(wanted.name);
    SLUICE_RETURN_IF_ERROR(CheckOne(wanted, model));
  }
  // An unknown tensor of a layer (a bias, a norm, a further layer) means that
  // the config describes another model.
  std::unordered_set<std::string> parts;
  for (const weights::ComposedTensor& matrix : model.composed()) {
    SLUICE_RETURN_IF_ERROR(CheckKnown(config, model, names, matrix.info.name));
    for (std::string& part : matrix.parts()) parts.insert(std::move(part));
  }
  for (const TensorInfo& tensor : model.tensors()) {
    if (parts.contains(tensor.name)) continue;
    SLUICE_RETURN_IF_ERROR(CheckKnown(config, model, names, tensor.name));
  }
  return OkStatus();
}

uint64_t LayerParameters(const ModelConfig& config, int32_t layer) {
  return Elements(config, layer, /*all=*/true);
}

uint64_t ParameterCount(const ModelConfig& config) {
  return AllElements(config, /*all=*/true);
}

uint64_t ActiveParameterCount(const ModelConfig& config) {
  return AllElements(config, /*all=*/false);
}

uint64_t ModelBytes::total() const {
  return std::accumulate(layers.begin(), layers.end(), embedding + head);
}

ModelBytes StoredBytes(const ModelConfig& config,
                       const weights::ModelFile& model) {
  ModelBytes bytes;
  bytes.layers.resize(config.layers.size());
  bytes.experts.resize(bytes.layers.size());
  ForEachTensor(
      config, ExpertStorageOf(config, model),
      [&](const TensorRow& row, int32_t layer, const TensorInfo& tensor) {
        const uint64_t stored = model.StoredBytes(tensor.name);
        if (row.cut == RankCut::kExperts) bytes.experts[layer] += stored;
        (layer >= 0                  ? bytes.layers[layer]
         : IsOfFirstStage(row.place) ? bytes.embedding
                                     : bytes.head) += stored;
      });
  for (const TensorInfo& tensor : model.tensors()) {
    if (IsLeftAside(config, tensor.name)) {
      bytes.left_aside += static_cast<uint64_t>(tensor.stored_bytes());
    }
  }
  return bytes;
}

}  // namespace sluice
