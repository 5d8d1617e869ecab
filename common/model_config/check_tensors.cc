#include <numeric>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "common/model_config/layer_names.h"
#include "common/model_config/model_config.h"
#include "common/weights/file.h"
#include "kernels/views.h"

namespace sluice {
namespace {

using weights::DType;
using weights::Quoted;
using weights::ShapeToString;
using weights::TensorInfo;

// "model.layers.3.": of a layer with this number.
std::string LayerPrefix(int32_t layer) { return Cat(kLayerPrefix, layer, "."); }

// The tensors of one layer, collected piece by piece, without the prefix of
// its number.
class LayerTensors {
 public:
  LayerTensors(const ModelConfig& config, ExpertStorage storage)
      : config_(config), storage_(storage), hidden_(config.hidden_size) {}

  std::vector<TensorInfo> Of(int32_t layer) {
    AddAttention();
    Add("post_attention_layernorm.weight", {hidden_});
    if (config_.sandwich_norms) {
      Add("post_self_attn_layernorm.weight", {hidden_});
      Add("post_mlp_layernorm.weight", {hidden_});
    }
    if (config_.is_sparse(layer)) {
      AddSparse();
    } else if (config_.fused_gate_up) {
      const int64_t mlp = config_.intermediate_size;
      Add("mlp.gate_up_proj.weight", {2 * mlp, hidden_});
      Add("mlp.down_proj.weight", {hidden_, mlp});
    } else {
      AddMlp("mlp.", config_.intermediate_size);
    }
    return std::move(all_);
  }

 private:
  void Add(std::string name, std::vector<int64_t> shape,
           DType dtype = DType::kF32) {
    all_.push_back({std::move(name), dtype, std::move(shape)});
  }

  void AddLinear(const std::string& name, int64_t out, int64_t in, bool bias) {
    Add(name + ".weight", {out, in});
    if (bias) Add(name + ".bias", {out});
  }

  void AddAttention() {
    const int64_t q = config_.q_size();
    const int64_t kv = config_.kv_size();
    Add("input_layernorm.weight", {hidden_});
    AddLinear("self_attn.q_proj", q, hidden_, config_.qkv_bias);
    AddLinear("self_attn.k_proj", kv, hidden_, config_.qkv_bias);
    AddLinear("self_attn.v_proj", kv, hidden_, config_.qkv_bias);
    AddLinear("self_attn.o_proj", hidden_, q, config_.o_bias);
    if (config_.qk_norm) {
      Add("self_attn.q_norm.weight", {config_.head_dim});
      Add("self_attn.k_norm.weight", {config_.head_dim});
    }
    if (config_.attention_sinks) Add("self_attn.sinks", {config_.num_heads});
  }

  void AddMlp(const std::string& prefix, int64_t intermediate) {
    Add(prefix + "gate_proj.weight", {intermediate, hidden_});
    Add(prefix + "up_proj.weight", {intermediate, hidden_});
    Add(prefix + "down_proj.weight", {hidden_, intermediate});
  }

  void AddSparse() {
    const MoeConfig& moe = config_.moe;
    AddLinear(moe.router, moe.num_experts, hidden_, moe.router_bias);
    if (moe.correction_bias) {
      Add(moe.router + ".e_score_correction_bias", {moe.num_experts});
    }
    if (moe.shared_intermediate_size > 0) {
      AddMlp("mlp.shared_experts.", moe.shared_intermediate_size);
    }
    AddExperts("mlp.experts.", moe.num_experts, moe.intermediate_size);
  }

  void AddExperts(const std::string& prefix, int64_t experts, int64_t mlp) {
    const int64_t group = kernels::kMxfp4Group;
    const auto packed = [&](const char* name, int64_t rows, int64_t cols) {
      Add(Cat(prefix, name, "_blocks"),
          {experts, rows, cols / group, group / 2}, DType::kU8);
      Add(Cat(prefix, name, "_scales"), {experts, rows, cols / group},
          DType::kU8);
    };
    switch (storage_) {
      case ExpertStorage::kSeparate:
        for (int64_t e = 0; e < experts; ++e) AddMlp(Cat(prefix, e, "."), mlp);
        break;
      case ExpertStorage::kStacked:
        Add(prefix + "gate_up_proj", {experts, 2 * mlp, hidden_});
        Add(prefix + "down_proj", {experts, hidden_, mlp});
        break;
      case ExpertStorage::kTransposed:
        Add(prefix + "gate_up_proj", {experts, hidden_, 2 * mlp});
        Add(prefix + "down_proj", {experts, mlp, hidden_});
        break;
      case ExpertStorage::kMxfp4:
        packed("gate_up_proj", 2 * mlp, hidden_);
        packed("down_proj", hidden_, mlp);
        break;
    }
    if (config_.moe.expert_bias) {
      Add(prefix + "gate_up_proj_bias", {experts, 2 * mlp});
      Add(prefix + "down_proj_bias", {experts, hidden_});
    }
  }

  const ModelConfig& config_;
  const ExpertStorage storage_;
  const int64_t hidden_;
  std::vector<TensorInfo> all_;
};

uint64_t Elements(const std::vector<TensorInfo>& tensors) {
  uint64_t sum = 0;
  for (const TensorInfo& tensor : tensors) {
    sum += static_cast<uint64_t>(tensor.elements());
  }
  return sum;
}

// Whether the tensor is of a layer behind the last that the config tells of.
bool IsLeftAside(const ModelConfig& config, std::string_view name) {
  std::string_view rest;
  const int32_t layer = LayerOfTensor(name, rest);
  return layer >= config.num_layers &&
         layer < config.num_layers + config.num_nextn_predict_layers;
}

Status CheckOne(const TensorInfo& wanted, const weights::ModelFile& model) {
  const TensorInfo* found = model.Find(wanted.name);
  if (found == nullptr) {
    return InvalidArgument(model.path(), ": tensor ", Quoted(wanted.name),
                           " is missing; the config asks for shape ",
                           ShapeToString(wanted.shape));
  }
  if (found->shape != wanted.shape) {
    return InvalidArgument(model.path(), ": tensor ", Quoted(wanted.name),
                           " has shape ", ShapeToString(found->shape),
                           ", the config asks for ",
                           ShapeToString(wanted.shape));
  }
  const bool fits = wanted.dtype == DType::kU8
                        ? found->dtype == DType::kU8
                        : weights::IsReadable(found->dtype);
  if (!fits) {
    return InvalidArgument(model.path(), ": tensor ", Quoted(wanted.name),
                           " is stored as ", found->dtype,
                           ", which is not supported");
  }
  return OkStatus();
}

uint64_t BytesOf(const weights::ModelFile& model, std::string_view name) {
  const TensorInfo* found = model.Find(name);
  return found != nullptr ? static_cast<uint64_t>(found->stored_bytes()) : 0;
}

}  // namespace

const char* ToString(ExpertStorage storage) {
  switch (storage) {
    case ExpertStorage::kSeparate:
      return "one by one";
    case ExpertStorage::kStacked:
      return "stacked";
    case ExpertStorage::kTransposed:
      return "stacked, transposed";
    case ExpertStorage::kMxfp4:
      return "stacked, MXFP4";
  }
  return "unknown";
}

ExpertStorage ExpertStorageOf(const ModelConfig& config,
                              const weights::ModelFile& model) {
  if (config.moe.num_experts == 0) return ExpertStorage::kSeparate;
  const std::string fused =
      Cat(LayerPrefix(SparseSpan(config).first), "mlp.experts.gate_up_proj");
  if (model.Find(fused + "_blocks") != nullptr) return ExpertStorage::kMxfp4;
  // gpt-oss, whose gate and up stand in turns, is also saved transposed.
  if (config.moe.interleaved) return ExpertStorage::kTransposed;
  return model.Find(fused) != nullptr ? ExpertStorage::kStacked
                                      : ExpertStorage::kSeparate;
}

std::vector<TensorInfo> ExpectedTensors(const ModelConfig& config,
                                        ExpertStorage storage) {
  const std::vector<int64_t> table = {config.vocab_size, config.hidden_size};
  std::vector<TensorInfo> all;
  all.push_back({"model.embed_tokens.weight", DType::kF32, table});
  for (int layer = 0; layer < config.num_layers; ++layer) {
    for (TensorInfo& tensor : LayerTensors(config, storage).Of(layer)) {
      tensor.name = LayerPrefix(layer) + tensor.name;
      all.push_back(std::move(tensor));
    }
  }
  all.push_back({"model.norm.weight", DType::kF32, {config.hidden_size}});
  if (!config.tie_word_embeddings) {
    all.push_back({"lm_head.weight", DType::kF32, table});
  }
  return all;
}

Status CheckTensors(const ModelConfig& config,
                    const weights::ModelFile& model) {
  const ExpertStorage storage = ExpertStorageOf(config, model);
  const int64_t group = kernels::kMxfp4Group;
  if (storage == ExpertStorage::kMxfp4 &&
      (config.hidden_size % group != 0 ||
       config.moe.intermediate_size % group != 0)) {
    return InvalidArgument(model.path(), ": MXFP4 experts of hidden_size ",
                           config.hidden_size, " and intermediate size ",
                           config.moe.intermediate_size,
                           ": both must be multiples of ", group);
  }
  const std::vector<TensorInfo> expected = ExpectedTensors(config, storage);
  std::unordered_set<std::string_view> names;
  for (const TensorInfo& wanted : expected) {
    names.insert(wanted.name);
    SLUICE_RETURN_IF_ERROR(CheckOne(wanted, model));
  }
  // A layer's tensor that we would leave out (a bias, a norm, a layer too
  // many) means that the model is another one than its config says.
  for (const TensorInfo& tensor : model.tensors()) {
    const std::string_view name = tensor.name;
    const bool of_layer =
        name.starts_with(kLayerPrefix) || name.starts_with("blk.");
    if (!of_layer || names.contains(name)) continue;
    if (name.ends_with(".rotary_emb.inv_freq")) continue;
    if (IsLeftAside(config, name)) continue;
    return InvalidArgument(model.path(), ": tensor ", Quoted(name),
                           " is not part of a ", config.model_type,
                           " model of ", config.num_layers, " layers");
  }
  return OkStatus();
}

uint64_t LayerParameters(const ModelConfig& config, int32_t layer) {
  return Elements(LayerTensors(config, ExpertStorage::kStacked).Of(layer));
}

uint64_t ParameterCount(const ModelConfig& config) {
  return Elements(ExpectedTensors(config, ExpertStorage::kStacked));
}

uint64_t ActiveParameterCount(const ModelConfig& config) {
  uint64_t count = ParameterCount(config);
  const MoeConfig& moe = config.moe;
  const auto hidden = static_cast<uint64_t>(config.hidden_size);
  const auto mlp = static_cast<uint64_t>(moe.intermediate_size);
  const uint64_t bias = moe.expert_bias ? 2 * mlp + hidden : 0;
  const auto idle =
      static_cast<uint64_t>(moe.num_experts - moe.experts_per_token);
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    if (config.is_sparse(layer)) count -= idle * (3 * hidden * mlp + bias);
  }
  return count;
}

uint64_t ModelBytes::total() const {
  return std::accumulate(layers.begin(), layers.end(), embedding + head);
}

ModelBytes StoredBytes(const ModelConfig& config,
                       const weights::ModelFile& model) {
  const ExpertStorage storage = ExpertStorageOf(config, model);
  ModelBytes bytes;
  bytes.embedding = BytesOf(model, "model.embed_tokens.weight");
  for (int layer = 0; layer < config.num_layers; ++layer) {
    uint64_t sum = 0;
    uint64_t experts = 0;
    for (const TensorInfo& tensor : LayerTensors(config, storage).Of(layer)) {
      const uint64_t stored = BytesOf(model, LayerPrefix(layer) + tensor.name);
      sum += stored;
      if (tensor.name.starts_with("mlp.experts.")) experts += stored;
    }
    bytes.layers.push_back(sum);
    bytes.experts.push_back(experts);
  }
  bytes.head = BytesOf(model, "model.norm.weight");
  if (!config.tie_word_embeddings) {
    bytes.head += BytesOf(model, "lm_head.weight");
  }
  for (const TensorInfo& tensor : model.tensors()) {
    if (IsLeftAside(config, tensor.name)) {
      bytes.left_aside += static_cast<uint64_t>(tensor.stored_bytes());
    }
  }
  return bytes;
}

}  // namespace sluice
