#include "common/model_config/dllama_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/model_config/config_difference.h"
#include "common/model_config/gguf_keys.h"
#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/extent.h"
#include "common/weights/file.h"

namespace sluice {
namespace {

using enum WeightPlace;
using weights::DllamaHeader;
using weights::DType;
using weights::LocatedTensor;
using weights::ModelContents;
using weights::Quoted;

// The architectures that a .m has.
struct NamedArchitecture {
  DllamaHeader::Architecture architecture;
  std::string_view model_type;
};
constexpr NamedArchitecture kNamed[] = {
    {DllamaHeader::Architecture::kLlama, "llama"},
    {DllamaHeader::Architecture::kQwen3, "qwen3"},
    {DllamaHeader::Architecture::kQwen3Moe, "qwen3_moe"}};

const GgufFamily& FamilyOf(const DllamaHeader& header) {
  const auto* named = std::find_if(
      std::begin(kNamed), std::end(kNamed),
      [&](const auto& each) { return each.architecture == header.arch(); });
  SLUICE_CHECK(named != std::end(kNamed));
  const GgufFamily* family = GgufFamilyOf(named->model_type);
  SLUICE_CHECK(family != nullptr);
  return *family;
}

Json ConfigOf(const DllamaHeader& header) {
  const GgufFamily& family = FamilyOf(header);
  Json config = {
      {"architectures", Json::array({std::string(family.hugging_face)})},
      {"model_type", std::string(family.model_type)},
      {"hidden_act", "silu"},
      {"vocab_size", header.vocab_size},
      {"hidden_size", header.dim},
      {"num_hidden_layers", header.num_layers},
      {"num_attention_heads", header.num_heads},
      {"num_key_value_heads", header.num_kv_heads},
      {"intermediate_size", header.hidden_dim},
      {"max_position_embeddings", header.max_seq_len},
      {"rms_norm_eps", header.norm_epsilon == 5 ? 1e-5 : 1e-6},
      {"rope_theta", static_cast<double>(header.rope_theta)},
      {"head_dim",
       header.head_dim > 0 ? header.head_dim : header.dim / header.num_heads},
      {"rope_scaling", nullptr},
      // The head is in the file, also where it is the embedding's.
      {"tie_word_embeddings", false},
      {"bos_token_id", nullptr},
      {"eos_token_id", Json::array()}};
  if (header.rope_factor != 1) {
    config["rope_scaling"] = {
        {"rope_type", "llama3"},
        {"factor", static_cast<double>(header.rope_factor)},
        {"low_freq_factor", static_cast<double>(header.rope_low_freq_factor)},
        {"high_freq_factor", static_cast<double>(header.rope_high_freq_factor)},
        {"original_max_position_embeddings", header.rope_original_seq_len}};
  }
  if (header.num_experts > 0) {
    config["num_experts"] = header.num_experts;
    config["num_experts_per_tok"] = header.num_active_experts;
    config["moe_intermediate_size"] = header.moe_hidden_dim;
    config["norm_topk_prob"] = true;
  }
  return config;
}

// One tensor of a layer: a row of a place, in the table's order.
struct Step {
  WeightPlace place;
  size_t row = 0;
};

// dllama's order. Absent rows (of another family) are left out.
constexpr Step kFirstSteps[] = {{kEmbedding}};
constexpr Step kAttentionSteps[] = {
    {kQkv, 0}, {kQkv, 1}, {kQkv, 2}, {kO}, {kRouter}};
constexpr Step kMlpSteps[] = {{kGateUp, 0}, {kDown}, {kGateUp, 1}};
constexpr Step kExpertSteps[] = {
    {kExpertGateUp, 0}, {kExpertDown}, {kExpertGateUp, 1}};
constexpr Step kNormSteps[] = {
    {kQNorm}, {kKNorm}, {kAttentionNorm}, {kMlpNorm}};
constexpr Step kLastSteps[] = {{kFinalNorm}, {kHead}};

// Lists the tensors in the file's order.
class TensorLister {
 public:
  TensorLister(const ModelConfig& config, const DllamaHeader& header)
      : config_(config),
        type_(header.weights_type()),
        permuted_(FamilyOf(header).permuted) {}

  std::vector<DllamaTensor> Run() {
    SetLayer(-1);
    Add(kFirstSteps);
    for (int32_t layer = 0; layer < config_.num_layers(); ++layer) {
      SetLayer(layer);
      Add(kAttentionSteps);
      Add(kMlpSteps);
      const int32_t experts = config_.layers[layer].moe.num_experts;
      for (int32_t expert = 0; expert < experts; ++expert) {
        Add(kExpertSteps, expert);
      }
      Add(kNormSteps);
    }
    SetLayer(-1);
    Add(kLastSteps);
    return std::move(tensors_);
  }

 private:
  void SetLayer(int32_t layer) {
    layer_ = layer;
    weights_ = WeightsOf(config_, layer, ExpertStorage::kSeparate);
  }

  void Add(std::span<const Step> steps, int32_t expert = 0) {
    for (const Step& step : steps) {
      const auto weight = std::find_if(
          weights_.begin(), weights_.end(),
          [&](const WeightRows& each) { return each.place == step.place; });
      if (weight == weights_.end()) continue;
      Add(*weight->rows[step.row], step, expert);
    }
  }

  void Add(const TensorRow& row, const Step& step, int32_t expert) {
    DllamaTensor tensor;
    tensor.info.name = NameOf(row, layer_, expert);
    for (const Dimension& size : DimensionsOf(row, config_, layer_)) {
      tensor.info.shape.push_back(size.size);
    }
    tensor.is_matrix = !row.is_f32() && step.place != kEmbedding;
    if (tensor.is_matrix) tensor.info.dtype = type_;
    tensor.place = step.place;
    tensor.row = step.row;
    tensor.layer = layer_;
    tensor.expert = expert;
    const bool is_rotated = step.place == kQkv && step.row < 2;
    if (permuted_ && is_rotated) {
      tensor.permuted_head_rows = config_.layers[layer_].attention.head_dim;
    }
    tensors_.push_back(std::move(tensor));
  }

  const ModelConfig& config_;
  const DType type_;
  const bool permuted_;
  int32_t layer_ = -1;
  std::vector<WeightRows> weights_;  // of the layer
  std::vector<DllamaTensor> tensors_;
};

// Finds the bytes of the tensors.
Status Locate(std::vector<DllamaTensor> listed, ModelContents& contents) {
  const weights::RandomAccessFile& file = *contents.files.front();
  uint64_t end = contents.dllama->bytes;  // of the tensors so far
  for (DllamaTensor& each : listed) {
    LocatedTensor tensor;
    tensor.info = std::move(each.info);
    tensor.permuted_head_rows = each.permuted_head_rows;
    const auto bytes =
        weights::StoredBytes(tensor.info.dtype, tensor.info.shape);
    if (!bytes.ok()) {
      return Annotate(bytes.status(), "tensor ", Quoted(tensor.info.name));
    }
    if (*bytes > file.size() - end) {
      return InvalidArgument("tensor ", Quoted(tensor.info.name), ": ", *bytes,
                             " bytes at ", end,
                             " are beyond the file's end at ", file.size());
    }
    tensor.file = &file;
    tensor.offset = end;
    end += *bytes;
    contents.tensors.push_back(std::move(tensor));
  }
  if (end == file.size()) return OkStatus();
  return InvalidArgument("the header's tensors end at ", end, ", the file has ",
                         file.size(), " bytes");
}

// The number nearest to `value` that a key can have.
int32_t KeyOf(double value) {
  constexpr double kMost = std::numeric_limits<int32_t>::max();
  return static_cast<int32_t>(std::clamp(std::nearbyint(value), 0.0, kMost));
}

// Returns what the keys do not tell of RoPE; empty: nothing.
std::string RopeDifference(const ModelConfig& wanted, const ModelConfig& made) {
  if (wanted.ropes.size() != made.ropes.size()) return "RoPE by type of layers";
  if (wanted.ropes.front().theta != made.ropes.front().theta) {
    return "rope_theta";
  }
  return wanted.ropes == made.ropes ? "" : "rope_scaling";
}

// Gives epsilons that are `eps` in 24 bits, as a GGUF has them, all of its
// bits.
void RoundEpsilons(double eps, ModelConfig& config) {
  const auto round = [&](double& each) {
    if (static_cast<float>(each) == static_cast<float>(eps)) each = eps;
  };
  round(config.rms_norm_eps);
  for (LayerConfig& layer : config.layers) round(layer.norm.eps);
}

// Checks that a reader of the header finds the model again.
Status CheckHeader(const DllamaHeader& header, ModelConfig wanted) {
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig made,
                          ParseModelConfig(ConfigOf(header)));
  wanted.tie_word_embeddings = false;  // the head is written
  RoundEpsilons(made.rms_norm_eps, wanted);
  std::string difference = RopeDifference(wanted, made);
  if (difference.empty()) difference = DifferenceOf(wanted, made);
  if (difference.empty() && wanted.rms_norm_eps != made.rms_norm_eps) {
    difference = "rms_norm_eps";
  }
  if (difference.empty()) return OkStatus();
  return Unimplemented("config.json: a .m of ", FamilyOf(header).model_type,
                       " cannot tell ", difference);
}

}  // namespace

Status TranslateDllama(ModelContents& contents) {
  contents.config = ConfigOf(*contents.dllama);
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(contents.config));
  return Locate(TensorLister(config, *contents.dllama).Run(), contents);
}

StatusOr<std::vector<DllamaTensor>> DllamaTensorsOf(
    const DllamaHeader& header) {
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(ConfigOf(header)));
  return TensorLister(config, header).Run();
}

StatusOr<DllamaHeader> DllamaHeaderOf(const ModelConfig& config, DType type) {
  const auto* named = std::find_if(
      std::begin(kNamed), std::end(kNamed),
      [&](const auto& each) { return each.model_type == config.model_type; });
  if (named == std::end(kNamed)) {
    std::string known;
    for (const NamedArchitecture& each : kNamed) {
      known += Cat(known.empty() ? "" : ", ", each.model_type);
    }
    return Unimplemented("model_type '", config.model_type,
                         "' has no .m; known are ", known);
  }
  const auto weights = weights::DllamaTypeOf(type);
  if (!weights.has_value()) {
    return InvalidArgument("a .m has weights of F32, F16, Q4_0 or Q8_0, ", type,
                           " is asked for");
  }
  const LayerConfig& layer = config.layers.front();
  const MoeConfig& moe = config.moe();
  const RopeConfig& rope = config.ropes.front();
  DllamaHeader header;
  header.architecture = static_cast<int32_t>(named->architecture);
  header.weights = *weights;
  header.dim = config.hidden_size;
  header.num_layers = config.num_layers();
  header.num_heads = layer.attention.num_heads;
  header.num_kv_heads = layer.attention.num_kv_heads;
  header.head_dim = layer.attention.head_dim;
  header.vocab_size = config.vocab_size;
  header.max_seq_len = config.max_position_embeddings;
  header.rope_theta = KeyOf(rope.theta);
  header.norm_epsilon =
      static_cast<float>(config.rms_norm_eps) == 1e-6f ? 6 : 5;
  header.num_experts = moe.num_experts;
  header.num_active_experts = moe.experts_per_token;
  header.moe_hidden_dim = moe.intermediate_size;
  header.hidden_dim = layer.mlp.intermediate_size;
  if (rope.scaling.kind == RopeScaling::Kind::kLlama3) {
    header.rope_factor = KeyOf(rope.scaling.factor);
    header.rope_low_freq_factor = KeyOf(rope.scaling.low_freq_factor);
    header.rope_high_freq_factor = KeyOf(rope.scaling.high_freq_factor);
    header.rope_original_seq_len =
        KeyOf(rope.scaling.original_max_position_embeddings);
    header.rope_type = weights::kDllamaRopeLlama3;
  }
  // Limits first: a config of values beyond them is no config.
  SLUICE_RETURN_IF_ERROR(
      Annotate(weights::DllamaHeaderBytes(header).status(), "a .m"));
  SLUICE_RETURN_IF_ERROR(CheckHeader(header, config));
  return header;
}

}  // namespace sluice
