#include "tests/model/family_gguf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/gguf_keys.h"
#include "common/model_config/model_config.h"
#include "common/weights/text_part.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

using Names = std::map<std::string, std::string>;

// The gguf package's constants.py, by what a tensor is called in safetensors.
const Names kNames = {{"input_layernorm", "attn_norm"},
                      {"attention_layernorm", "attn_norm"},
                      {"feedforward_layernorm", "ffn_norm"},
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
                      {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                      {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                      {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                      {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
                      {"mlp.shared_mlp.gate_proj", "ffn_gate_shexp"},
                      {"mlp.shared_mlp.up_proj", "ffn_up_shexp"},
                      {"mlp.shared_mlp.down_proj", "ffn_down_shexp"},
                      {"mlp.gate.wg", "ffn_gate_inp"},
                      {"mlp.moe_statics.e_score_correction", "exp_probs_b"},
                      {"block_sparse_moe.gate", "ffn_gate_inp"},
                      {"block_sparse_moe.e_score_correction", "exp_probs_b"},
                      {"block_sparse_moe.router.layer", "ffn_gate_inp"},
                      {"self_attn.qkv_proj", "attn_qkv"},
                      {"self_attn.query_layernorm", "attn_q_norm"},
                      {"self_attn.key_layernorm", "attn_k_norm"},
                      {"post_feedforward_layernorm", "post_ffw_norm"},
                      {"pre_feedforward_layernorm", "ffn_norm"},
                      {"per_layer_input_gate", "inp_gate"},
                      {"per_layer_projection", "proj"},
                      {"post_per_layer_input_norm", "post_norm"},
                      {"router.proj", "ffn_gate_inp"},
                      {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
                      {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
                      {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
                      {"eh_proj", "nextn.eh_proj"},
                      {"embed_tokens", "nextn.embed_tokens"},
                      {"enorm", "nextn.enorm"},
                      {"hnorm", "nextn.hnorm"},
                      {"shared_head.head", "nextn.shared_head_head"},
                      {"shared_head.norm", "nextn.shared_head_norm"}};

// Whole names, of tensors that end otherwise than their GGUF's.
const Names kWholeNames = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
    {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight"},
    {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"model.norm.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"}};
const Names kWholeNamesOfLayer = {
    {"self_attn.sinks", "attn_sinks.weight"},
    {"layer_scalar", "layer_output_scale.weight"},
    {"router.scale", "ffn_gate_inp.scale"},
    {"router.per_expert_scale", "ffn_down_exps.scale"},
    {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"experts.down_proj", "ffn_down_exps.weight"}};

class Converter {
 public:
  Converter(const weights::ModelFile& from, const GgufCase& family)
      : from_(from),
        family_(family),
        config_(weights::TextPartOf(from.config())) {}

  std::string Convert() {
    WriteKeys();
    int64_t experts = 0;
    for (const char* key : {"num_experts", "n_routed_experts",
                            "num_local_experts", "moe_num_experts"}) {
      const Json found = config_.value(key, Json());
      if (found.is_number()) experts = found.get<int64_t>();
    }
    for (const weights::TensorInfo& info : from_.tensors()) {
      const size_t expert = info.name.find("experts.0.");
      const bool is_key = info.name.find(".act_fn.") != std::string::npos;
      if (info.name.find("visual.") != std::string::npos || is_key) continue;
      if (family_.layout == kFusedQkv && WriteFused(info)) continue;
      if (info.name.ends_with("input_linear.weight")) {
        WriteHalves(info);
      } else if (info.name.ends_with("output_linear.weight")) {
        Write(Blk(info.name, "ffn_down_exps.weight"), info.shape,
              Values(info.name));
      } else if (family_.layout == kTransposedExperts &&
                 info.name.find(".experts.") != std::string::npos) {
        WriteTransposed(info);
      } else if (info.name.find(".experts.") == std::string::npos ||
                 std::string_view(family_.architecture) == "gemma4") {
        Write(NameOf(info.name), info.shape, Permuted(info));
      } else if (expert != std::string::npos) {
        Stack(info, expert, experts);
      }
    }
    if (IsOss()) {
      const auto layers = config_["num_hidden_layers"].get<int>();
      for (int layer = 0; layer < layers; ++layer) WriteOssExperts(layer);
    }
    return gguf_.Build();
  }

 private:
  bool IsOss() const {
    return std::string_view(family_.architecture) == "gpt-oss";
  }

  void WriteKeys() {
    const Json& config = config_;
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
    const int64_t head_dim = config.value(
        "head_dim", config["hidden_size"].get<int64_t>() /
                        config["num_attention_heads"].get<int64_t>());
    const double part = config.value("partial_rotary_factor", 1.0);
    number("block_count", config["num_hidden_layers"].get<int64_t>() +
                              config.value("num_nextn_predict_layers", 0));
    copy("embedding_length", "hidden_size");
    copy("attention.head_count", "num_attention_heads");
    if (std::string_view(family_.architecture) != "gemma4") {
      number("attention.key_length", head_dim);
      number("attention.value_length", head_dim);
      number("rope.dimension_count",
             config.value("rotary_dim", static_cast<int64_t>(head_dim * part)));
      copy("attention.head_count_kv", "num_key_value_heads");
      copy("feed_forward_length", "intermediate_size");
    }
    copy("context_length", "max_position_embeddings");
    copy("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    const char* parameters =
        config.contains("rope_parameters") ? "rope_parameters" : "rope_scaling";
    Json scaling = config.value(parameters, Json());
    if (scaling.is_object() && scaling.contains("full_attention")) {
      scaling = Json(scaling["full_attention"]);
      WriteStandingPairs(scaling, config["global_head_dim"].get<int64_t>());
    }
    // Whole numbers in config.json are floats here.
    const Json& theta = config.contains("rope_theta") ? config : scaling;
    gguf_.F32(prefix + "rope.freq_base", theta["rope_theta"].get<float>());
    for (const auto& [key, name] : family_.keys) copy(key, name);
    for (const auto& [key, value] : family_.more) {
      if (!value.is_array()) {
        number(key, value);
        continue;
      }
      std::string bytes;
      const bool is_bools = value.front().is_boolean();
      for (const Json& each : value) {
        bytes +=
            is_bools ? BytesOf(each.get<bool>()) : BytesOf(each.get<int32_t>());
      }
      gguf_.Array(prefix + key, is_bools ? 7 : 5, value.size(), bytes);
    }
    WriteFactors(scaling);
    WriteXIelu();
    if (!scaling.is_object() || scaling.value("rope_type", "") != "yarn")
      return;
    gguf_.Text(prefix + "rope.scaling.type", "yarn");
    gguf_.F32(prefix + "rope.scaling.factor", scaling["factor"].get<float>());
    number("rope.scaling.original_context_length",
           scaling["original_max_position_embeddings"]);
  }

  // Gemma 4's pairs that stand have huge divisors.
  void WriteStandingPairs(const Json& rope, int64_t head_dim) {
    const double share = rope["partial_rotary_factor"];
    const auto turn = static_cast<int64_t>(share * head_dim / 2);
    std::vector<float> divisors(static_cast<size_t>(head_dim / 2), 1e30f);
    std::fill_n(divisors.begin(), turn, 1.0f);
    Write("rope_freqs.weight", {head_dim / 2}, divisors);
  }

  // The numbers of xIELU, each a list of all layers' without the architecture's
  // name.
  void WriteXIelu() {
    const auto layers = config_["num_hidden_layers"].get<int>();
    for (const char* number : {"alpha_p", "alpha_n", "beta", "eps"}) {
      const auto name = [&](int layer) {
        return Cat("model.layers.", layer, ".mlp.act_fn.", number);
      };
      if (from_.Find(name(0)) == nullptr) return;
      std::string bytes;
      for (int layer = 0; layer < layers; ++layer) {
        bytes += BytesOf(Values(name(layer)));
      }
      gguf_.Array(Cat("xielu.", number), 6, static_cast<uint64_t>(layers),
                  bytes);
    }
  }

  // The divisors of llama3's frequencies, or long and short ones of phi3's.
  void WriteFactors(const Json& scaling) {
    if (scaling.is_object() && scaling.value("rope_type", "") == "llama3") {
      const auto parsed = ParseModelConfig(config_);
      EXPECT_TRUE(parsed.ok()) << parsed.status();
      for (const auto& [name, elements] : RopeTensorsOf(parsed->ropes[0])) {
        Write(std::string(name), {std::ssize(elements)}, elements);
      }
    }
    for (const char* length : {"long", "short"}) {
      const std::string key = Cat(length, "_factor");
      if (!scaling.is_object() || !scaling.contains(key)) continue;
      const auto factors = scaling[key].get<std::vector<float>>();
      Write(Cat("rope_factors_", length, ".weight"),
            {static_cast<int64_t>(factors.size())}, factors);
    }
  }

  // The elements, in the order of rows that llama.cpp's converter gives q and
  // k: of each head the rows of both halves in turn.
  std::vector<float> Permuted(const weights::TensorInfo& info) const {
    std::vector<float> values = Values(info.name);
    if (family_.layout == kNormsPlusOne && info.name.ends_with("norm.weight")) {
      for (float& weight : values) weight += 1.0f;
    }
    const bool is_q = info.name.find("q_proj.") != std::string::npos;
    const bool is_k = info.name.find("k_proj.") != std::string::npos;
    const bool is_moved =
        family_.layout == kPermuted || family_.layout == kHalved;
    if (!is_moved || (!is_q && !is_k)) return values;
    const int64_t heads =
        config_[is_q ? "num_attention_heads" : "num_key_value_heads"];
    const int64_t rows = info.shape[0];
    const int64_t cols = info.elements() / rows;
    std::vector<float> permuted;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t from = OwnRow(row, rows / heads);
      permuted.insert(permuted.end(), values.begin() + from * cols,
                      values.begin() + (from + 1) * cols);
    }
    return permuted;
  }

  // The checkpoint's row of q or k that is a GGUF's row.
  int64_t OwnRow(int64_t row, int64_t head_rows) const {
    const int64_t at = row % head_rows;
    if (family_.layout == kPermuted) {
      return row - at + at % 2 * (head_rows / 2) + at / 2;
    }
    const double part = config_.value("partial_rotary_factor", 1.0);
    const auto turned = static_cast<int64_t>(head_rows * part);
    if (at >= turned) return row;
    return row - at + at % (turned / 2) * 2 + at / (turned / 2);
  }

  // Writes q, k and v in the place of q.
  bool WriteFused(const weights::TensorInfo& info) {
    const size_t at = info.name.find("q_proj.");
    if (at == std::string::npos) {
      return info.name.find("k_proj.") != std::string::npos ||
             info.name.find("v_proj.") != std::string::npos;
    }
    std::vector<float> all;
    std::vector<int64_t> shape = info.shape;
    shape[0] = 0;
    for (const char letter : {'q', 'k', 'v'}) {
      std::string name = info.name;
      name[at] = letter;
      const std::vector<float> values = Values(name);
      all.insert(all.end(), values.begin(), values.end());
      shape[0] += from_.Find(name)->shape[0];
    }
    Write(Blk(info.name, Cat("attn_qkv", info.name.substr(at + 6))), shape,
          all);
    return true;
  }

  // Writes gate's rows and up's of every expert apart.
  void WriteHalves(const weights::TensorInfo& info) {
    const std::vector<float> values = Values(info.name);
    const auto part = static_cast<size_t>(info.shape[1] / 2 * info.shape[2]);
    for (const size_t half : {0, 1}) {
      std::vector<float> rows;
      for (size_t at = half * part; at < values.size(); at += 2 * part) {
        rows.insert(rows.end(), values.begin() + at,
                    values.begin() + at + part);
      }
      Write(Blk(info.name,
                half == 0 ? "ffn_gate_exps.weight" : "ffn_up_exps.weight"),
            {info.shape[0], info.shape[1] / 2, info.shape[2]}, rows);
    }
  }

  // Writes experts [E, H, 2X] and [E, X, H] apart, columns as rows.
  void WriteTransposed(const weights::TensorInfo& info) {
    const std::vector<float> values = Values(info.name);
    const bool is_down = info.name.ends_with("down_proj");
    const int64_t cols = info.shape[2] / (is_down ? 1 : 2);
    for (int64_t first = 0; first < info.shape[2]; first += cols) {
      std::vector<float> rows;
      for (int64_t row = 0; row < info.shape[0] * cols; ++row) {
        for (int64_t col = 0; col < info.shape[1]; ++col) {
          const int64_t from = row / cols * info.shape[1] + col;
          rows.push_back(values[from * info.shape[2] + first + row % cols]);
        }
      }
      Write(Blk(info.name, is_down      ? "ffn_down_exps.weight"
                           : first == 0 ? "ffn_gate_exps.weight"
                                        : "ffn_up_exps.weight"),
            {info.shape[0], cols, info.shape[1]}, rows);
    }
  }

  // A tensor's name in the layer of `name`.
  static std::string Blk(const std::string& name, const std::string& rest) {
    const size_t layer = std::string("model.layers.").size();
    return Cat("blk.", name.substr(layer, name.find('.', layer) - layer), ".",
               rest);
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
    const auto whole = kWholeNames.find(name);
    if (whole != kWholeNames.end()) return whole->second;
    const size_t layer = std::string("model.layers.").size();
    const size_t begin = name.find('.', layer) + 1;
    const auto of_layer = kWholeNamesOfLayer.find(name.substr(begin));
    if (of_layer != kWholeNamesOfLayer.end()) {
      return Cat("blk.", name.substr(layer, begin - layer), of_layer->second);
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
    const bool is_fused =
        family_.layout == kFusedExperts && !rest.starts_with("down");
    if (is_fused && rest.starts_with("gate")) return;  // written beside up
    const auto add = [&](int64_t expert, const std::string& matrix) {
      const auto values = Values(
          Cat(first.name.substr(0, at), "experts.", expert, ".", matrix));
      all.insert(all.end(), values.begin(), values.end());
    };
    for (int64_t e = 0; e < experts; ++e) {
      if (is_fused) add(e, "gate_proj.weight");
      add(e, rest);
    }
    const size_t layer = std::string("model.layers.").size();
    const std::string number =
        first.name.substr(layer, first.name.find('.', layer) - layer);
    const std::string own = rest.substr(0, rest.find_first_of("_."));
    const std::string kind = own == "w1"   ? "gate"
                             : own == "w3" ? "up"
                             : own == "w2" ? "down"
                                           : own;
    Write(Cat("blk.", number, ".ffn_", is_fused ? "gate_up" : kind,
              "_exps.weight"),
          {experts, first.shape[0] * (is_fused ? 2 : 1), first.shape[1]}, all);
  }

  void Write(const std::string& name, std::vector<int64_t> shape,
             const std::vector<float>& values) {
    if (shape.size() == 2 && shape[0] == 1) shape.erase(shape.begin());
    gguf_.Tensor(name, {shape.rbegin(), shape.rend()}, 0, BytesOf(values));
  }

  const weights::ModelFile& from_;
  const GgufCase& family_;
  const Json config_;  // of the text part
  GgufBuilder gguf_;
};

}  // namespace

std::string FamilyGguf(const weights::ModelFile& from, const GgufCase& family) {
  return Converter(from, family).Convert();
}

}  // namespace sluice::testing
