// The golden models as GGUFs: names, keys and stacked experts as llama.cpp's
// converter gives them, the same config and the same bits as from safetensors.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/weights/model_file.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

using Names = std::map<std::string, std::string>;

// The gguf package's constants.py, by what a tensor is called in safetensors.
const Names kNames = {{"input_layernorm", "attn_norm"},
                      {"self_attn.q_proj", "attn_q"},
                      {"self_attn.k_proj", "attn_k"},
                      {"self_attn.v_proj", "attn_v"},
                      {"self_attn.o_proj", "attn_output"},
                      {"self_attn.q_norm", "attn_q_norm"},
                      {"self_attn.k_norm", "attn_k_norm"},
                      {"post_self_attn_layernorm", "post_attention_norm"},
                      {"post_mlp_layernorm", "post_ffw_norm"},
                      {"mlp.gate_proj", "ffn_gate"},
                      {"mlp.up_proj", "ffn_up"},
                      {"mlp.gate_up_proj", "ffn_up"},
                      {"mlp.down_proj", "ffn_down"},
                      {"mlp.gate", "ffn_gate_inp"},
                      {"mlp.router", "ffn_gate_inp"},
                      {"mlp.gate.e_score_correction", "exp_probs_b"},
                      {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
                      {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
                      {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
                      {"eh_proj", "nextn.eh_proj"},
                      {"embed_tokens", "nextn.embed_tokens"},
                      {"enorm", "nextn.enorm"},
                      {"hnorm", "nextn.hnorm"},
                      {"shared_head.head", "nextn.shared_head_head"},
                      {"shared_head.norm", "nextn.shared_head_norm"}};

struct Family {
  const char* golden;
  const char* architecture;
  // Of post_attention_layernorm, the norm in front of the MLP.
  const char* mlp_norm;
  std::vector<std::pair<const char*, const char*>> keys;  // beyond common ones
};

std::ostream& operator<<(std::ostream& out, const Family& family) {
  return out << family.golden;
}

class Converter {
 public:
  Converter(const weights::ModelFile& from, const Family& family)
      : from_(from), family_(family) {}

  std::string Convert() {
    WriteKeys();
    const int64_t experts = from_.config().value(
        "num_experts", from_.config().value("n_routed_experts", int64_t{0}));
    for (const weights::TensorInfo& info : from_.tensors()) {
      const size_t expert = info.name.find("experts.0.");
      if (info.name.find(".experts.") == std::string::npos) {
        Write(NameOf(info.name), info.shape, Values(info.name));
      } else if (expert != std::string::npos) {
        Stack(info, expert, experts);
      }
    }
    if (IsOss()) {
      const auto layers = from_.config()["num_hidden_layers"].get<int>();
      for (int layer = 0; layer < layers; ++layer) WriteOssExperts(layer);
    }
    return gguf_.Build();
  }

 private:
  bool IsOss() const {
    return std::string_view(family_.architecture) == "gpt-oss";
  }

  void WriteKeys() {
    const Json& config = from_.config();
    const std::string prefix = Cat(family_.architecture, ".");
    gguf_.Text("general.architecture", family_.architecture);
    const auto number = [&](const char* key, const Json& value) {
      if (value.is_boolean()) {
        gguf_.Key(prefix + key, 7, BytesOf(value.get<bool>()));
      } else if (value.is_number_integer()) {
        gguf_.U32(prefix + key, value.get<uint32_t>());
      } else {
        gguf_.F32(prefix + key, value.get<float>());
      }
    };
    const auto copy = [&](const char* key, const char* name) {
      if (config.contains(name)) number(key, config[name]);
    };
    const int64_t head_dim = config["head_dim"];
    const double part = config.value("partial_rotary_factor", 1.0);
    number("block_count", config["num_hidden_layers"].get<int64_t>() +
                              config.value("num_nextn_predict_layers", 0));
    number("attention.key_length", head_dim);
    number("attention.value_length", head_dim);
    number("rope.dimension_count", static_cast<int64_t>(head_dim * part));
    copy("embedding_length", "hidden_size");
    copy("attention.head_count", "num_attention_heads");
    copy("attention.head_count_kv", "num_key_value_heads");
    copy("feed_forward_length", "intermediate_size");
    copy("context_length", "max_position_embeddings");
    copy("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    // Whole numbers in config.json are floats here.
    gguf_.F32(prefix + "rope.freq_base", config["rope_theta"].get<float>());
    for (const auto& [key, name] : family_.keys) copy(key, name);
    if (!config.contains("rope_scaling")) return;
    const Json& scaling = config["rope_scaling"];
    if (!scaling.is_object() || scaling.value("rope_type", "") != "yarn")
      return;
    gguf_.Text(prefix + "rope.scaling.type", "yarn");
    gguf_.F32(prefix + "rope.scaling.factor", scaling["factor"].get<float>());
    number("rope.scaling.original_context_length",
           scaling["original_max_position_embeddings"]);
  }

  // The rows of gpt-oss' experts as bytes: MXFP4 in GGUF's order of nibbles,
  // or F32 of a matrix that is stored transposed.
  std::vector<std::string> OssRows(const std::string& name) const {
    const weights::TensorInfo& info = *from_.Find(name);
    const int64_t experts = info.shape[0];
    std::vector<std::string> rows;
    if (info.dtype != weights::DType::kMxfp4) {
      const std::vector<float> values = Values(name);
      const int64_t in = info.shape[1];
      const int64_t out = info.shape[2];
      for (int64_t row = 0; row < experts * out; ++row) {
        const float* const expert = &values[row / out * in * out];
        std::string& bytes = rows.emplace_back();
        for (int64_t i = 0; i < in; ++i) {
          bytes += BytesOf(expert[i * out + row % out]);
        }
      }
      return rows;
    }
    const int64_t groups = info.cols() / 32;
    std::vector<uint8_t> codes(info.rows() * groups * 16);
    std::vector<uint8_t> scales(info.rows() * groups);
    EXPECT_TRUE(
        from_.ReadStoredBytes(name + "_blocks", 0, codes.size(), codes.data())
            .ok());
    EXPECT_TRUE(
        from_.ReadStoredBytes(name + "_scales", 0, scales.size(), scales.data())
            .ok());
    for (size_t group = 0; group < scales.size(); ++group) {
      if (group % groups == 0) rows.emplace_back();
      const auto nibble = [&](size_t i) {
        return codes[group * 16 + i / 2] >> i % 2 * 4 & 15;
      };
      rows.back() += static_cast<char>(scales[group]);
      for (size_t j = 0; j < 16; ++j) {
        rows.back() += static_cast<char>(nibble(j) | nibble(j + 16) << 4);
      }
    }
    return rows;
  }

  std::vector<std::string> OssBiases(const std::string& name) const {
    std::vector<std::string> elements;
    for (const float bias : Values(name)) elements.push_back(BytesOf(bias));
    return elements;
  }

  // Even rows of gate_up are the gate's, odd ones up's.
  void WriteOssExperts(int layer) {
    const std::string from = Cat("model.layers.", layer, ".mlp.experts.");
    const std::string to = Cat("blk.", layer, ".ffn_");
    const auto write = [&](const std::string& name, size_t first, size_t step,
                           const std::string& as) {
      const bool is_bias = name.ends_with("_bias");
      const weights::TensorInfo& info = *from_.Find(name);
      const auto rows = is_bias ? OssBiases(name) : OssRows(name);
      const auto experts = static_cast<uint64_t>(info.shape[0]);
      std::string data;
      for (size_t row = first; row < rows.size(); row += step) {
        data += rows[row];
      }
      std::vector<uint64_t> dims = {rows.size() / step / experts, experts};
      const bool is_mxfp4 = info.dtype == weights::DType::kMxfp4;
      if (!is_bias) {
        dims.insert(dims.begin(), is_mxfp4 ? rows[0].size() / 17 * 32
                                           : rows[0].size() / sizeof(float));
      }
      gguf_.Tensor(to + as, dims, is_mxfp4 ? 39 : 0, data);
    };
    write(from + "gate_up_proj", 0, 2, "gate_exps.weight");
    write(from + "gate_up_proj", 1, 2, "up_exps.weight");
    write(from + "down_proj", 0, 1, "down_exps.weight");
    write(from + "gate_up_proj_bias", 0, 2, "gate_exps.bias");
    write(from + "gate_up_proj_bias", 1, 2, "up_exps.bias");
    write(from + "down_proj_bias", 0, 1, "down_exps.bias");
  }

  std::vector<float> Values(const std::string& name) const {
    const weights::TensorInfo& info = *from_.Find(name);
    std::vector<float> values(static_cast<size_t>(info.elements()));
    EXPECT_TRUE(
        from_.ReadF32(name, weights::Slice::All(info), values.data()).ok());
    return values;
  }

  std::string NameOf(const std::string& name) const {
    if (name == "model.embed_tokens.weight") return "token_embd.weight";
    if (name == "model.norm.weight") return "output_norm.weight";
    if (name == "lm_head.weight") return "output.weight";
    const size_t layer = std::string("model.layers.").size();
    const size_t begin = name.find('.', layer) + 1;
    if (name.ends_with(".sinks")) {
      return Cat("blk.", name.substr(layer, begin - layer),
                 "attn_sinks.weight");
    }
    size_t end = name.rfind('.');
    std::string kind = name.substr(end);
    if (kind == ".e_score_correction_bias") {
      end += kind.size() - 5;
      kind = ".bias";
    }
    const std::string middle = name.substr(begin, end - begin);
    const std::string gguf = middle == "post_attention_layernorm"
                                 ? family_.mlp_norm
                                 : kNames.at(middle);
    return Cat("blk.", name.substr(layer, begin - layer), gguf, kind);
  }

  // Expert 0's tensor stands for those of all, one behind the other.
  void Stack(const weights::TensorInfo& first, size_t at, int64_t experts) {
    std::vector<float> all;
    const std::string rest = first.name.substr(at + 10);
    for (int64_t e = 0; e < experts; ++e) {
      const auto values =
          Values(Cat(first.name.substr(0, at), "experts.", e, ".", rest));
      all.insert(all.end(), values.begin(), values.end());
    }
    const size_t layer = std::string("model.layers.").size();
    const std::string number =
        first.name.substr(layer, first.name.find('.', layer) - layer);
    Write(Cat("blk.", number, ".ffn_", rest.substr(0, rest.find('_')),
              "_exps.weight"),
          {experts, first.shape[0], first.shape[1]}, all);
  }

  void Write(const std::string& name, const std::vector<int64_t>& shape,
             const std::vector<float>& values) {
    gguf_.Tensor(name, {shape.rbegin(), shape.rend()}, 0, BytesOf(values));
  }

  const weights::ModelFile& from_;
  const Family& family_;
  GgufBuilder gguf_;
};

std::vector<TokenId> Prompt() {
  std::vector<TokenId> prompt;
  for (int i = 0; i < 20; ++i) prompt.push_back(1 + i * 7 % 60);
  return prompt;
}

std::vector<float> Logits(const std::string& path, int32_t stages,
                          int32_t ranks,
                          WeightsMode weights = WeightsMode::kF32) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.threads = 1;
  options.stage.kv_blocks = 64;
  options.stage.ranks = ranks;
  options.stage.weights = weights;
  options.stages = stages;
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  Ask ask{Prompt(), {}, 0, /*prompt_logits=*/true};
  ask.sampling.return_logits = true;
  const auto answers = (*pipeline)->Generate({ask});
  EXPECT_TRUE(answers[0].status.ok()) << answers[0].status;
  return answers[0].logits;
}

Family Oss(const char* golden) {
  return {golden,
          "gpt-oss",
          "post_attention_norm",
          {{"expert_count", "num_local_experts"},
           {"expert_used_count", "num_experts_per_tok"},
           {"expert_feed_forward_length", "intermediate_size"},
           {"attention.sliding_window", "sliding_window"}}};
}

class GgufFamiliesTest : public ::testing::TestWithParam<Family> {};

TEST_P(GgufFamiliesTest, AGgufIsTheModelThatItWasMadeFrom) {
  const std::string path = GoldenModel(GetParam().golden);
  const auto from = OpenModel(path);
  ASSERT_TRUE(from.ok()) << from.status();
  const TempDir dir;
  const std::string gguf =
      dir.Write("m.gguf", Converter(**from, GetParam()).Convert());
  const auto to = OpenModel(gguf);
  ASSERT_TRUE(to.ok()) << to.status();
  const auto wanted = ParseModelConfig((*from)->config());
  auto config = ParseModelConfig((*to)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  // Ids of the tokenizer, which these files have none of.
  config->bos_token_id = wanted->bos_token_id;
  config->eos_token_ids = wanted->eos_token_ids;
  EXPECT_EQ(*config, *wanted);
  const std::vector<float> logits = Logits(path, 1, 1);
  EXPECT_FALSE(logits.empty());
  EXPECT_EQ(Logits(gguf, 1, 1), logits);
  EXPECT_EQ(Logits(gguf, 2, 2), logits);
  EXPECT_EQ(Logits(gguf, 2, 2, WeightsMode::kAuto),
            Logits(path, 1, 1, WeightsMode::kAuto));
}

INSTANTIATE_TEST_SUITE_P(
    Goldens, GgufFamiliesTest,
    ::testing::Values(
        Family{"qwen3", "qwen3", "ffn_norm", {}},
        Family{"qwen3_moe",
               "qwen3moe",
               "ffn_norm",
               {{"expert_count", "num_experts"},
                {"expert_used_count", "num_experts_per_tok"},
                {"expert_feed_forward_length", "moe_intermediate_size"}}},
        Family{"glm4", "glm4", "ffn_norm", {}},
        Family{"glm4_moe-air",
               "glm4moe",
               "post_attention_norm",
               {{"expert_count", "n_routed_experts"},
                {"expert_used_count", "num_experts_per_tok"},
                {"expert_feed_forward_length", "moe_intermediate_size"},
                {"expert_shared_count", "n_shared_experts"},
                {"leading_dense_block_count", "first_k_dense_replace"},
                {"expert_weights_scale", "routed_scaling_factor"},
                {"expert_weights_norm", "norm_topk_prob"},
                {"expert_group_count", "n_group"},
                {"expert_group_used_count", "topk_group"},
                {"nextn_predict_layers", "num_nextn_predict_layers"}}},
        Oss("gpt_oss"), Oss("gpt_oss-mxfp4")),
    [](const auto& tested) {
      std::string name = tested.param.golden;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace sluice::testing
