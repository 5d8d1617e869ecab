#include "tests/model/state_gguf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "common/base/cat.h"
#include "common/weights/text_part.h"
#include "kernels/block_pack.h"
#include "kernels/block_store.h"
#include "kernels/exp_log.h"

namespace sluice::testing {
namespace {

using kernels::BlockFormat;

constexpr std::string_view kLayers = "model.layers.";

// The gguf package's constants.py, by what a layer's tensor is called in
// safetensors.
const std::map<std::string, std::string, std::less<>> kStateNames = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"norm.weight", "attn_norm.weight"},
    {"operator_norm.weight", "attn_norm.weight"},
    {"ffn_norm.weight", "ffn_norm.weight"},
    {"pre_ff_layernorm.weight", "ffn_norm"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.out_proj.weight", "attn_output.weight"},
    {"mixer.q_proj.weight", "attn_q.weight"},
    {"mixer.k_proj.weight", "attn_k.weight"},
    {"mixer.v_proj.weight", "attn_v.weight"},
    {"mixer.o_proj.weight", "attn_output.weight"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    {"self_attn.q_layernorm.weight", "attn_q_norm.weight"},
    {"self_attn.k_layernorm.weight", "attn_k_norm.weight"},
    {"conv.in_proj.weight", "shortconv.in_proj.weight"},
    {"conv.conv.weight", "shortconv.conv.weight"},
    {"conv.out_proj.weight", "shortconv.out_proj.weight"},
    {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight"},
    {"linear_attn.in_proj_z.weight", "attn_gate.weight"},
    {"linear_attn.in_proj_a.weight", "ssm_alpha.weight"},
    {"linear_attn.in_proj_b.weight", "ssm_beta.weight"},
    {"linear_attn.in_proj_ba.weight", "ssm_ba.weight"},
    {"linear_attn.in_proj_qkvz.weight", "ssm_in.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"mixer.up_proj.weight", "ffn_up.weight"},
    {"mixer.down_proj.weight", "ffn_down.weight"},
    {"feed_forward.w1.weight", "ffn_gate.weight"},
    {"feed_forward.w2.weight", "ffn_down.weight"},
    {"feed_forward.w3.weight", "ffn_up.weight"},
    {"feed_forward.gate_proj.weight", "ffn_gate.weight"},
    {"feed_forward.up_proj.weight", "ffn_up.weight"},
    {"feed_forward.down_proj.weight", "ffn_down.weight"},
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"},
    {"feed_forward.gate.weight", "ffn_gate_inp.weight"},
    {"feed_forward.expert_bias", "exp_probs_b.bias"},
    {"block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight"},
    {"mixer.gate.weight", "ffn_gate_inp.weight"},
    {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mixer.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
    {"mixer.shared_experts.down_proj.weight", "ffn_down_shexp.weight"}};
// Of a mixer, behind its own name.
const std::map<std::string, std::string, std::less<>> kMixerNames = {
    {"A_log", "ssm_a"},
    {"D", "ssm_d"},
    {"dt_bias", "ssm_dt.bias"},
    {"in_proj.weight", "ssm_in.weight"},
    {"conv1d.weight", "ssm_conv1d.weight"},
    {"conv1d.bias", "ssm_conv1d.bias"},
    {"norm.weight", "ssm_norm.weight"},
    {"out_proj.weight", "ssm_out.weight"}};

std::string NameOfLayer(const std::string& rest) {
  const auto found = kStateNames.find(rest);
  if (found != kStateNames.end()) return found->second;
  const std::string own = rest.substr(rest.find('.') + 1);
  return kMixerNames.at(own);
}

// Matrices that the converter leaves in F32.
bool StaysF32(std::string_view name) {
  return name.find("norm") != std::string_view::npos ||
         name.find("ffn_gate_inp") != std::string_view::npos ||
         name.find("conv1d") != std::string_view::npos ||
         name.ends_with("shortconv.conv.weight") || name.ends_with("ssm_a") ||
         name.ends_with("ssm_d");
}

}  // namespace

StateConverter::StateConverter(const weights::ModelFile& from,
                               const StateCase& family, StateTypes types)
    : from_(from),
      family_(family),
      types_(types),
      config_(weights::TextPartOf(from.config())) {}

std::string StateConverter::Convert() {
  WriteKeys();
  WriteLayerKeys();
  for (const weights::TensorInfo& info : from_.tensors()) {
    WriteTensor(info.name);
  }
  return gguf_.Build();
}

int64_t StateConverter::Int(const char* key) const {
  return config_.at(key).get<int64_t>();
}
bool StateConverter::Is(const char* architecture) const {
  return std::string_view(family_.architecture).starts_with(architecture);
}

void StateConverter::Number(const std::string& key, const Json& value) {
  const std::string name = Cat(family_.architecture, ".", key);
  if (value.is_boolean()) {
    gguf_.Key(name, 7, BytesOf(value.get<bool>()));
  } else if (value.is_number_integer()) {
    gguf_.U32(name, value.get<uint32_t>());
  } else {
    gguf_.F32(name, value.get<float>());
  }
}

void StateConverter::Ints(const std::string& key,
                          const std::vector<int32_t>& values) {
  gguf_.Array(Cat(family_.architecture, ".", key), 5, values.size(),
              BytesOf(values));
}

void StateConverter::WriteKeys() {
  gguf_.Text("general.architecture", family_.architecture);
  Number("block_count", Int("num_hidden_layers"));
  Number("embedding_length", Int("hidden_size"));
  Number("context_length", Int("max_position_embeddings"));
  Number("attention.head_count", Int("num_attention_heads"));
  Number("vocab_size", Int("vocab_size"));
  for (const auto& [key, name] : family_.keys) Number(key, config_.at(name));
  const Json& rope = config_.contains("rope_parameters")
                         ? config_["rope_parameters"]
                         : config_;
  const double theta = rope.value("rope_theta", 10000.0);
  gguf_.F32(Cat(family_.architecture, ".rope.freq_base"),
            static_cast<float>(theta));
  const double part = rope.value("partial_rotary_factor", 1.0);
  if (Is("qwen")) {
    Number("rope.dimension_count",
           static_cast<int64_t>(Int("head_dim") * part));
    Number("ssm.inner_size",
           Int("linear_num_value_heads") * Int("linear_value_head_dim"));
  }
  if (Is("qwen35")) Ints("rope.dimension_sections", {2, 1, 1, 0});
  if (Is("granite")) {
    Number("ssm.inner_size", Int("mamba_expand") * Int("hidden_size"));
    Number("rope.scaling.finetuned", false);
    Number("rope.dimension_count",
           Int("hidden_size") / Int("num_attention_heads"));
  }
  if (Is("nemotron")) {
    Number("ssm.inner_size", Int("mamba_num_heads") * Int("mamba_head_dim"));
    Number("rope.scaling.finetuned", false);
    Number("rope.dimension_count", Int("head_dim"));
  }
  if (Is("falcon")) Number("ssm.inner_size", Int("mamba_d_ssm"));
  if (Is("lfm2moe")) Number("expert_gating_func", 2);
}

std::string StateConverter::LayersOf() const {
  if (Is("nemotron")) {
    return config_["hybrid_override_pattern"].get<std::string>();
  }
  std::string letters;
  const auto layers = static_cast<size_t>(Int("num_hidden_layers"));
  for (size_t i = 0; i < layers; ++i) {
    const auto layer = static_cast<int64_t>(i);
    bool attends = true;
    if (config_.contains("full_attn_idxs")) {
      const Json& all = config_["full_attn_idxs"];
      attends = std::find(all.begin(), all.end(), Json(layer)) != all.end();
    } else if (config_.contains("layer_types")) {
      attends =
          config_["layer_types"][i].get<std::string>().ends_with("attention");
      attends = attends && config_["layer_types"][i] != "linear_attention";
    } else if (config_.contains("full_attention_interval")) {
      attends = (layer + 1) % Int("full_attention_interval") == 0;
    }
    letters += attends ? '*' : 'M';
  }
  return letters;
}

void StateConverter::WriteLayerKeys() {
  const std::string letters = LayersOf();
  std::vector<int32_t> kv;
  std::vector<int32_t> widths;
  std::string recurrent;
  for (const char letter : letters) {
    const bool has_mlp = letter == '-' || letter == 'E';
    kv.push_back(
        letter == '*' ? static_cast<int32_t>(Int("num_key_value_heads")) : 0);
    widths.push_back(has_mlp ? static_cast<int32_t>(Int("intermediate_size"))
                             : 0);
    recurrent += letter == 'M' ? '\1' : '\0';
  }
  if (Is("lfm2") || Is("granite") || Is("nemotron")) {
    Ints("attention.head_count_kv", kv);
  }
  if (Is("nemotron")) {
    Ints("feed_forward_length", widths);
  } else if (config_.contains("block_ff_dim")) {
    const int64_t multiple = Int("block_multiple_of");
    const int64_t width = 2 * Int("block_ff_dim") / 3;
    Number("feed_forward_length", (width + multiple - 1) / multiple * multiple);
  } else if (config_.contains("intermediate_size")) {
    Number("feed_forward_length", Int("intermediate_size"));
  }
  // Older files have the interval alone.
  if (Is("qwen") && !family_.old) {
    gguf_.Array(Cat(family_.architecture, ".attention.recurrent_layers"), 7,
                recurrent.size(), recurrent);
  }
}

StateConverter::Values StateConverter::Read(const std::string& name) const {
  const weights::TensorInfo& info = *from_.Find(name);
  Values values = {info.shape, {}};
  values.elements.resize(static_cast<size_t>(info.elements()));
  EXPECT_TRUE(
      from_.ReadF32(name, weights::Slice::All(info), values.elements.data())
          .ok());
  return values;
}

void StateConverter::WriteTensor(const std::string& name) {
  const std::pair<std::string_view, const char*> top[] = {
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.embeddings.weight", "token_embd.weight"},
      {"model.embedding_norm.weight", "token_embd_norm.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"model.norm_f.weight", "output_norm.weight"},
      {"model.final_layernorm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"}};
  for (const auto& [from, to] : top) {
    if (name != from) continue;
    Values values = Read(name);
    if (Is("qwen") && name == "model.norm.weight") {
      for (float& weight : values.elements) weight += 1.0f;
    }
    Multiply(name, values);
    return Write(to, values);
  }
  if (!name.starts_with(kLayers)) return;  // of images
  const size_t dot = name.find('.', kLayers.size());
  const std::string layer =
      Cat("blk.", name.substr(kLayers.size(), dot - kLayers.size()), ".");
  const std::string rest = name.substr(dot + 1);
  if (rest.find(".experts.") != std::string::npos &&
      rest.find(".experts.0.") == std::string::npos &&
      std::isdigit(rest[rest.find(".experts.") + 9]) != 0) {
    return;  // written with the first one
  }
  if (rest.find(".experts.0.") != std::string::npos) {
    return WriteExpert(layer, name);
  }
  WriteOfLayer(layer, rest, Read(name));
}

// Expert 0's tensor stands for those of all, one behind the other.
void StateConverter::WriteExpert(const std::string& layer,
                                 const std::string& name) {
  const size_t at = name.find(".experts.0.");
  const std::string kind = name.substr(at + 11, name.rfind('.') - at - 11);
  const char* as = kind == "gate_proj" || kind == "w1" ? "gate"
                   : kind == "up_proj" || kind == "w3" ? "up"
                                                       : "down";
  Values all;
  int64_t count = 0;
  for (;; ++count) {
    const std::string each =
        Cat(name.substr(0, at), ".experts.", count, ".", name.substr(at + 11));
    if (from_.Find(each) == nullptr) break;
    const Values values = Read(each);
    all.shape = values.shape;
    all.elements.insert(all.elements.end(), values.elements.begin(),
                        values.elements.end());
  }
  all.shape.insert(all.shape.begin(), count);
  Write(Cat(layer, "ffn_", as, "_exps.weight"), all);
}

void StateConverter::WriteHalves(const std::string& layer, const Values& values,
                                 const char* gate, const char* up) {
  Values half;
  half.shape = values.shape;
  int64_t& rows = half.shape[half.shape.size() - 2];
  rows /= 2;
  const auto part = static_cast<size_t>(rows * half.shape.back());
  for (const size_t which : {0, 1}) {
    half.elements.clear();
    for (size_t at = which * part; at < values.elements.size();
         at += 2 * part) {
      const auto begin =
          values.elements.begin() + static_cast<std::ptrdiff_t>(at);
      half.elements.insert(half.elements.end(), begin,
                           begin + static_cast<std::ptrdiff_t>(part));
    }
    Write(layer + (which == 0 ? gate : up), half);
  }
}

// Rows stand key head by key head: q, k, v and z of each.
void StateConverter::WriteQkvz(const std::string& layer, const Values& values) {
  const int64_t groups = Int("linear_num_key_heads");
  const int64_t keys = Int("linear_key_head_dim");
  const int64_t of_group =
      Int("linear_num_value_heads") / groups * Int("linear_value_head_dim");
  const int64_t cols = values.shape.back();
  Values qkv;
  Values z;
  int64_t begin = 0;
  for (const auto& [rows, to] : {std::pair{keys, &qkv},
                                 {keys, &qkv},
                                 {of_group, &qkv},
                                 {of_group, &z}}) {
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t row = group * 2 * (keys + of_group) + begin;
      const auto at = values.elements.begin() + row * cols;
      to->elements.insert(to->elements.end(), at, at + rows * cols);
    }
    begin += rows;
  }
  qkv.shape = {static_cast<int64_t>(qkv.elements.size()) / cols, cols};
  z.shape = {static_cast<int64_t>(z.elements.size()) / cols, cols};
  Write(layer + "attn_qkv.weight", qkv);
  Write(layer + "attn_gate.weight", z);
}

void StateConverter::WriteOfLayer(const std::string& layer,
                                  const std::string& rest, Values values) {
  const std::string own = rest.substr(rest.find('.') + 1);
  if (rest == "linear_attn.in_proj_qkvz.weight" && !family_.old) {
    return WriteQkvz(layer, values);
  }
  if (rest == "mlp.experts.gate_up_proj" ||
      rest == "block_sparse_moe.input_linear.weight") {
    return WriteHalves(layer, values, "ffn_gate_exps.weight",
                       "ffn_up_exps.weight");
  }
  if (rest == "mlp.experts.down_proj" ||
      rest == "block_sparse_moe.output_linear.weight") {
    return Write(layer + "ffn_down_exps.weight", values);
  }
  const bool has_experts = config_.value("num_local_experts", 0) > 0;
  if (rest == "shared_mlp.input_linear.weight") {
    return has_experts
               ? WriteHalves(layer, values, "ffn_gate_shexp.weight",
                             "ffn_up_shexp.weight")
               : WriteHalves(layer, values, "ffn_gate.weight", "ffn_up.weight");
  }
  if (rest == "shared_mlp.output_linear.weight") {
    return Write(
        layer + (has_experts ? "ffn_down_shexp.weight" : "ffn_down.weight"),
        values);
  }
  if (Is("qwen") && rest.ends_with("norm.weight") &&
      rest != "linear_attn.norm.weight") {
    for (float& weight : values.elements) weight += 1.0f;
  }
  if (rest == "post_attention_layernorm.weight") {
    return Write(
        layer + (Is("qwen") ? "post_attention_norm.weight" : "ffn_norm.weight"),
        values);
  }
  TileHeads(rest, values);
  Permute(rest, values);
  Multiply(rest, values);
  if (own == "A_log") {
    for (float& log : values.elements) log = -kernels::Exp(log);
  }
  const bool is_mamba = !Is("qwen") && !Is("lfm2");
  if (is_mamba && (own == "A_log" || own == "D")) values.shape.push_back(1);
  if (is_mamba && own == "norm.weight" && rest != "norm.weight") {
    const int64_t groups = Int(Is("nemotron") ? "n_groups" : "mamba_n_groups");
    values.shape = {groups, values.shape[0] / groups};
  }
  if (own.starts_with("conv") && values.shape.size() == 3) {
    values.shape.erase(values.shape.begin() + 1);
  }
  Write(layer + NameOfLayer(rest), values);
}

void StateConverter::Tile(int64_t groups, int64_t head, int64_t first,
                          Values& values) {
  const auto from = values.elements;
  const int64_t rows = static_cast<int64_t>(from.size());
  const int64_t heads = (rows - first) / head;
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t to = h % (heads / groups) * groups + h / (heads / groups);
    std::copy_n(from.begin() + first + h * head, head,
                values.elements.begin() + first + to * head);
  }
}

void StateConverter::TileHeads(const std::string& rest, Values& values) const {
  if (!Is("qwen35") || !rest.starts_with("linear_attn.")) return;
  const std::string own = rest.substr(12);
  const int64_t groups = Int("linear_num_key_heads");
  const int64_t dim = Int("linear_value_head_dim");
  const int64_t keys = 2 * groups * Int("linear_key_head_dim");
  const int64_t cols = values.shape.size() > 1 ? values.shape.back() : 1;
  if (own == "in_proj_qkv.weight" || own == "conv1d.weight") {
    Tile(groups, dim * cols, keys * cols, values);
  } else if (own == "in_proj_z.weight") {
    Tile(groups, dim * cols, 0, values);
  } else if (own == "out_proj.weight") {
    for (int64_t row = 0; row < values.rows(); ++row) {
      const auto begin = values.elements.begin() + row * cols;
      Values one = {{cols}, {begin, begin + cols}};
      Tile(groups, dim, 0, one);
      std::ranges::copy(one.elements, begin);
    }
  } else if (own != "norm.weight") {  // of heads
    Tile(groups, cols, 0, values);
  }
}

// Of each head the rows of both halves in turn.
void StateConverter::Permute(const std::string& rest, Values& values) const {
  const bool is_q = rest.ends_with(".q_proj.weight");
  if (!Is("granite") && !Is("nemotron")) return;
  if (!is_q && !rest.ends_with(".k_proj.weight")) return;
  const int64_t heads =
      Int(is_q ? "num_attention_heads" : "num_key_value_heads");
  const int64_t cols = values.shape.back();
  const int64_t half = values.rows() / heads / 2;
  const auto from = values.elements;
  auto to = values.elements.begin();
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t pair = 0; pair < half; ++pair) {
      for (const int64_t side : {0, 1}) {
        const int64_t row = (head * 2 + side) * half + pair;
        to = std::copy_n(from.begin() + row * cols, cols, to);
      }
    }
  }
}

void StateConverter::Multiply(const std::string& rest, Values& values) const {
  if (!Is("falcon")) return;
  const auto number = [&](const char* key) {
    return config_.at(key).get<float>();
  };
  const auto of_mlp = [&](size_t i) {
    return config_.at("mlp_multipliers")[i].get<float>();
  };
  float factor = 1.0f;
  if (rest == "lm_head.weight") factor = number("lm_head_multiplier");
  if (rest == "model.embed_tokens.weight") {
    factor = number("embedding_multiplier");
  }
  if (rest.ends_with("down_proj.weight")) factor = of_mlp(1);
  if (rest.ends_with("gate_proj.weight")) factor = of_mlp(0);
  if (rest.ends_with("q_proj.weight") || rest.ends_with("v_proj.weight")) {
    factor = number("attention_in_multiplier");
  }
  if (rest.ends_with("k_proj.weight")) {
    factor = number("attention_in_multiplier") * number("key_multiplier");
  }
  if (rest.ends_with("o_proj.weight")) {
    factor = number("attention_out_multiplier");
  }
  if (rest == "mamba.out_proj.weight") factor = number("ssm_out_multiplier");
  if (rest == "mamba.in_proj.weight") factor = number("ssm_in_multiplier");
  for (float& weight : values.elements) weight *= factor;
  if (rest != "mamba.in_proj.weight") return;
  const int64_t keys = Int("mamba_n_groups") * Int("mamba_d_state");
  const int64_t parts[] = {Int("mamba_d_ssm"), Int("mamba_d_ssm"), keys, keys,
                           Int("mamba_n_heads")};
  auto at = values.elements.begin();
  for (size_t i = 0; i < 5; ++i) {
    const auto end = at + parts[i] * values.shape.back();
    for (; at < end; ++at) *at *= config_["ssm_multipliers"][i].get<float>();
  }
}

void StateConverter::Write(const std::string& name, const Values& values) {
  const Shape& shape = values.shape;
  const std::vector<uint64_t> dims(shape.rbegin(), shape.rend());
  const bool has_blocks = types_ != StateTypes::kF32 && shape.size() > 1 &&
                          shape.back() % 32 == 0 && !StaysF32(name);
  if (!has_blocks) {
    gguf_.Tensor(name, dims, 0, BytesOf(values.elements));
    return;
  }
  const auto blocks = static_cast<int64_t>(values.elements.size() / 32);
  std::string stored(static_cast<size_t>(blocks) * 34, '\0');
  auto* const bytes = reinterpret_cast<uint8_t*>(stored.data());
  kernels::StoreBlocks(BlockFormat::kQ8_0, values.elements.data(), blocks,
                       bytes);
  if (types_ == StateTypes::kQ8) {
    gguf_.Tensor(name, dims, 8, stored);
    return;
  }
  std::vector<float> wide(values.elements.size());
  kernels::WidenBlocks(BlockFormat::kQ8_0, bytes, blocks, wide.data());
  gguf_.Tensor(name, dims, 0, BytesOf(wide));
}

}  // namespace sluice::testing
