#include <charconv>
#include <numeric>
#include <string>
#include <string_view>
#include <unordered_set>

#include "common/model/model_config.h"
#include "common/weights/file.h"

namespace sluice {
namespace {

using weights::DType;
using weights::Quoted;
using weights::ShapeToString;
using weights::TensorInfo;

constexpr std::string_view kLayerPrefix = "model.layers.";

// Tensors of one layer, without the prefix of its number.
std::vector<TensorInfo> LayerTensors(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t q = config.q_size();
  const int64_t kv = config.kv_size();
  const int64_t mlp = config.intermediate_size;
  return {
      {"input_layernorm.weight", DType::kF32, {hidden}},
      {"self_attn.q_proj.weight", DType::kF32, {q, hidden}},
      {"self_attn.k_proj.weight", DType::kF32, {kv, hidden}},
      {"self_attn.v_proj.weight", DType::kF32, {kv, hidden}},
      {"self_attn.o_proj.weight", DType::kF32, {hidden, q}},
      {"post_attention_layernorm.weight", DType::kF32, {hidden}},
      {"mlp.gate_proj.weight", DType::kF32, {mlp, hidden}},
      {"mlp.up_proj.weight", DType::kF32, {mlp, hidden}},
      {"mlp.down_proj.weight", DType::kF32, {hidden, mlp}},
  };
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
  if (!weights::IsReadable(found->dtype)) {
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

std::vector<TensorInfo> ExpectedTensors(const ModelConfig& config) {
  const std::vector<int64_t> table = {config.vocab_size, config.hidden_size};
  std::vector<TensorInfo> all;
  all.push_back({"model.embed_tokens.weight", DType::kF32, table});
  for (int layer = 0; layer < config.num_layers; ++layer) {
    for (TensorInfo& tensor : LayerTensors(config)) {
      tensor.name = Cat(kLayerPrefix, layer, ".", tensor.name);
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
  const std::vector<TensorInfo> expected = ExpectedTensors(config);
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
    return InvalidArgument(model.path(), ": tensor ", Quoted(name),
                           " is not part of a ", config.model_type,
                           " model of ", config.num_layers, " layers");
  }
  return OkStatus();
}

uint64_t ModelBytes::total() const {
  return std::accumulate(layers.begin(), layers.end(), embedding + head);
}

ModelBytes StoredBytes(const ModelConfig& config,
                       const weights::ModelFile& model) {
  ModelBytes bytes;
  bytes.embedding = BytesOf(model, "model.embed_tokens.weight");
  for (int layer = 0; layer < config.num_layers; ++layer) {
    uint64_t sum = 0;
    for (const TensorInfo& tensor : LayerTensors(config)) {
      sum += BytesOf(model, Cat(kLayerPrefix, layer, ".", tensor.name));
    }
    bytes.layers.push_back(sum);
  }
  bytes.head = BytesOf(model, "model.norm.weight");
  if (!config.tie_word_embeddings) {
    bytes.head += BytesOf(model, "lm_head.weight");
  }
  return bytes;
}

}  // namespace sluice
