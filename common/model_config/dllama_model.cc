#include "common/model_config/dllama_model.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"
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

const GgufFamily& FamilyOf(const DllamaHeader& header) {
  using Architecture = DllamaHeader::Architecture;
  const char* name = header.arch() == Architecture::kLlama   ? "llama"
                     : header.arch() == Architecture::kQwen3 ? "qwen3"
                                                             : "qwen3_moe";
  const GgufFamily* family = GgufFamilyOf(name);
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
  TensorLister(const ModelConfig& config, const GgufFamily& family,
               ModelContents& contents)
      : config_(config),
        family_(family),
        contents_(contents),
        file_(*contents.files.front()),
        end_(contents.dllama->bytes) {}

  Status Run() {
    SetLayer(-1);
    SLUICE_RETURN_IF_ERROR(Add(kFirstSteps));
    for (int32_t layer = 0; layer < config_.num_layers(); ++layer) {
      SetLayer(layer);
      SLUICE_RETURN_IF_ERROR(Add(kAttentionSteps));
      SLUICE_RETURN_IF_ERROR(Add(kMlpSteps));
      const int32_t experts = config_.layers[layer].moe.num_experts;
      for (int32_t expert = 0; expert < experts; ++expert) {
        SLUICE_RETURN_IF_ERROR(Add(kExpertSteps, expert));
      }
      SLUICE_RETURN_IF_ERROR(Add(kNormSteps));
    }
    SetLayer(-1);
    SLUICE_RETURN_IF_ERROR(Add(kLastSteps));
    if (end_ == file_.size()) return OkStatus();
    return InvalidArgument("the header's tensors end at ", end_,
                           ", the file has ", file_.size(), " bytes");
  }

 private:
  void SetLayer(int32_t layer) {
    layer_ = layer;
    weights_ = WeightsOf(config_, layer, ExpertStorage::kSeparate);
  }

  Status Add(std::span<const Step> steps, int32_t expert = 0) {
    for (const Step& step : steps) {
      const auto weight = std::find_if(
          weights_.begin(), weights_.end(),
          [&](const WeightRows& each) { return each.place == step.place; });
      if (weight == weights_.end()) continue;
      SLUICE_RETURN_IF_ERROR(Add(*weight->rows[step.row], step, expert));
    }
    return OkStatus();
  }

  Status Add(const TensorRow& row, const Step& step, int32_t expert) {
    LocatedTensor tensor;
    tensor.info.name = NameOf(row, layer_, expert);
    for (const Dimension& size : DimensionsOf(row, config_, layer_)) {
      tensor.info.shape.push_back(size.size);
    }
    if (!row.is_f32() && step.place != kEmbedding) {
      tensor.info.dtype = contents_.dllama->weights_type();
    }
    const auto bytes =
        weights::StoredBytes(tensor.info.dtype, tensor.info.shape);
    if (!bytes.ok()) {
      return Annotate(bytes.status(), "tensor ", Quoted(tensor.info.name));
    }
    if (*bytes > file_.size() - end_) {
      return InvalidArgument("tensor ", Quoted(tensor.info.name), ": ", *bytes,
                             " bytes at ", end_,
                             " are beyond the file's end at ", file_.size());
    }
    const bool is_rotated = step.place == kQkv && step.row < 2;
    if (family_.permuted && is_rotated) {
      tensor.permuted_head_rows = config_.layers[layer_].attention.head_dim;
    }
    tensor.file = &file_;
    tensor.offset = end_;
    end_ += *bytes;
    contents_.tensors.push_back(std::move(tensor));
    return OkStatus();
  }

  const ModelConfig& config_;
  const GgufFamily& family_;
  ModelContents& contents_;
  const weights::RandomAccessFile& file_;
  uint64_t end_;  // of the tensors so far
  int32_t layer_ = -1;
  std::vector<WeightRows> weights_;  // of the layer
};

}  // namespace

Status TranslateDllama(ModelContents& contents) {
  contents.config = ConfigOf(*contents.dllama);
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(contents.config));
  return TensorLister(config, FamilyOf(*contents.dllama), contents).Run();
}

}  // namespace sluice
