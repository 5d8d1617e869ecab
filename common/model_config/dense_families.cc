#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/core/kv_groups.h"
#include "common/model_config/family_readers.h"
#include "common/model_config/model_families.h"
#include "common/model_config/rope_frequencies.h"

namespace sluice {
namespace {

constexpr double kMaxMultiplier = 1e6;

// Reads a multiplier of every layer, or of the model.
Status ReadMultiplier(const ConfigReader& reader, const char* key,
                      double& multiplier) {
  return reader.Positive(key, kMaxMultiplier, multiplier, multiplier);
}

// Gives all layers the window of the config, if it has a window.
Status SetWindows(const ConfigReader& reader, ModelConfig& parsed) {
  if (reader.Find("sliding_window") == nullptr) return OkStatus();
  int32_t window = 0;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("sliding_window", kMaxKvWindow, {}, window));
  for (LayerConfig& layer : parsed.layers) layer.attention.window = window;
  return OkStatus();
}

std::vector<bool> Not(std::vector<bool> flags) {
  flags.flip();
  return flags;
}

void SetNorms(const NormConfig& norm, ModelConfig& parsed) {
  for (LayerConfig& layer : parsed.layers) {
    const double eps = layer.norm.eps;
    layer.norm = norm;
    layer.norm.eps = eps;
  }
}

}  // namespace

Status ReadBias(const ConfigReader& reader, bool on_o, bool absent,
                ModelConfig& parsed) {
  bool bias = false;
  SLUICE_RETURN_IF_ERROR(reader.Bool("attention_bias", absent, bias));
  for (LayerConfig& layer : parsed.layers) {
    layer.attention.qkv_bias = bias;
    layer.attention.o_bias = on_o && bias;
  }
  return OkStatus();
}

Status ReadMlpBias(const ConfigReader& reader, const char* key,
                   ModelConfig& parsed) {
  bool bias = false;
  SLUICE_RETURN_IF_ERROR(reader.Bool(key, false, bias));
  for (LayerConfig& layer : parsed.layers) layer.mlp.bias = bias;
  return OkStatus();
}

void SetQkNorm(QkNorm norm, ModelConfig& parsed) {
  for (LayerConfig& layer : parsed.layers) layer.attention.qk_norm = norm;
}

StatusOr<std::vector<bool>> ReadPatternOf(const ConfigReader& reader,
                                          const std::vector<bool>& usual,
                                          ModelConfig& parsed) {
  std::vector<bool> windowed = usual;
  if (reader.Find("layer_types") != nullptr) {
    SLUICE_RETURN_IF_ERROR(ReadLayerTypes(reader, parsed));
    const Json& types = *reader.Find("layer_types");
    for (size_t i = 0; i < windowed.size(); ++i) {
      windowed[i] = types[i] == "sliding_attention";
    }
    return windowed;
  }
  if (reader.Find("sliding_window") == nullptr) return windowed;
  int32_t window = 0;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("sliding_window", kMaxKvWindow, {}, window));
  for (size_t i = 0; i < windowed.size(); ++i) {
    parsed.layers[i].attention.window = windowed[i] ? window : 0;
  }
  return windowed;
}

RopeConfig NoRope() {
  RopeConfig rope;
  rope.theta = 1.0;
  rope.rotary_dim = 2;
  rope.inv_freq = {0.0};
  return rope;
}

void SetRope(const RopeConfig& rope, const std::vector<bool>& has,
             ModelConfig& parsed) {
  if (std::find(has.begin(), has.end(), true) == has.end()) return;
  const auto index = static_cast<int32_t>(parsed.ropes.size());
  parsed.ropes.push_back(rope);
  for (size_t i = 0; i < has.size(); ++i) {
    if (has[i]) parsed.layers[i].attention.rope = index;
  }
}

Status ReadLlama(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadMlpBias(reader, "mlp_bias", parsed));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("partial_rotary_factor", 1.0));
  SLUICE_RETURN_IF_ERROR(
      ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed));
  // Of a GGUF, whose biases may be there without that of o.
  bool on_o = parsed.layers[0].attention.o_bias;
  SLUICE_RETURN_IF_ERROR(reader.Bool("attention_out_bias", on_o, on_o));
  for (LayerConfig& layer : parsed.layers) layer.attention.o_bias = on_o;
  return OkStatus();
}

StatusOr<bool> HasWindows(const ConfigReader& reader) {
  bool windows = false;
  SLUICE_RETURN_IF_ERROR(reader.Bool("use_sliding_window", false, windows));
  // A window that is off is read all the same: it has no effect.
  const bool is_there = reader.Find("sliding_window") != nullptr;
  return windows && is_there;
}

Status ReadWindowsFrom(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_ASSIGN_OR_RETURN(const bool windows, HasWindows(reader));
  if (!windows) return OkStatus();
  int32_t from = 0;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("max_window_layers", 0, kMaxPattern, 28, from));
  return ReadPattern(
             reader, [&](int32_t i) { return i >= from; }, parsed)
      .status();
}

Status ReadQwen2(const ConfigReader& reader, ModelConfig& parsed) {
  for (LayerConfig& layer : parsed.layers) layer.attention.qkv_bias = true;
  return ReadWindowsFrom(reader, parsed);
}

Status ReadQwen3Attention(const ConfigReader& reader, ModelConfig& parsed) {
  SetQkNorm(QkNorm::kHeads, parsed);
  return ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed);
}

Status ReadQwen3(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadWindowsFrom(reader, parsed));
  return ReadQwen3Attention(reader, parsed);
}

Status ReadMistral(const ConfigReader& reader, ModelConfig& parsed) {
  return SetWindows(reader, parsed);
}

Status ReadMinistral(const ConfigReader& reader, ModelConfig& parsed) {
  return ReadPattern(
             reader, [](int32_t) { return true; }, parsed)
      .status();
}

Status ReadInternLm3(const ConfigReader& reader, ModelConfig& parsed) {
  bool qkv = false;
  bool bias = false;
  SLUICE_RETURN_IF_ERROR(reader.Bool("qkv_bias", false, qkv));
  SLUICE_RETURN_IF_ERROR(reader.Bool("bias", false, bias));
  for (LayerConfig& layer : parsed.layers) {
    layer.attention.qkv_bias = qkv;
    layer.attention.o_bias = layer.mlp.bias = bias;
  }
  return OkStatus();
}

// q grows with the position: llama_4_scaling_beta beside RoPE's keys.
Status ReadMinistral3(const ConfigReader& reader, ModelConfig& parsed) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* found = reader.Find(key);
    if (found == nullptr || !found->is_object()) continue;
    const ConfigReader rope(*found);
    if (rope.Find("llama_4_scaling_beta") == nullptr) break;
    QueryGrowthConfig growth;
    SLUICE_RETURN_IF_ERROR(
        rope.Positive("llama_4_scaling_beta", 1e3, 1.0, growth.beta));
    SLUICE_RETURN_IF_ERROR(rope.Positive("original_max_position_embeddings",
                                         1e9, 0.0, growth.original));
    for (LayerConfig& layer : parsed.layers) layer.attention.growth = growth;
    break;
  }
  return SetWindows(reader, parsed);
}

Status ReadSeedOss(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(
      ReadBias(reader, /*on_o=*/false, /*absent=*/true, parsed));
  bool on_o = false;
  SLUICE_RETURN_IF_ERROR(reader.Bool("attention_out_bias", false, on_o));
  for (LayerConfig& layer : parsed.layers) layer.attention.o_bias = on_o;
  return ReadMlpBias(reader, "mlp_bias", parsed);
}

// Layers without RoPE: no_rope_layers has 0 for them, else every
// no_rope_layer_interval-th. Without layer_types these have the windows.
Status ReadSmolLm3(const ConfigReader& reader, ModelConfig& parsed) {
  int32_t interval = 4;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("no_rope_layer_interval", kMaxPattern, 4, interval));
  std::vector<bool> plain;
  for (int32_t i = 0; i < parsed.num_layers(); ++i) {
    plain.push_back((i + 1) % interval == 0);
  }
  if (const Json* list = reader.Find("no_rope_layers")) {
    if (!list->is_array() || list->size() < plain.size()) {
      return InvalidArgument("no_rope_layers is no list of at least ",
                             plain.size(), " layers");
    }
    for (size_t i = 0; i < plain.size(); ++i) plain[i] = (*list)[i] == 0;
  }
  SLUICE_ASSIGN_OR_RETURN(const bool windows, HasWindows(reader));
  if (windows) {
    SLUICE_RETURN_IF_ERROR(ReadPatternOf(reader, plain, parsed).status());
  }
  SetRope(NoRope(), plain, parsed);
  SLUICE_RETURN_IF_ERROR(ReadMlpBias(reader, "mlp_bias", parsed));
  return ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed);
}

Status ReadGranite(const ConfigReader& reader, ModelConfig& parsed) {
  double residual = 1.0;
  double attention = 1.0;
  double logits = 1.0;
  SLUICE_RETURN_IF_ERROR(
      ReadMultiplier(reader, "embedding_multiplier", parsed.embedding_scale));
  SLUICE_RETURN_IF_ERROR(
      ReadMultiplier(reader, "residual_multiplier", residual));
  SLUICE_RETURN_IF_ERROR(
      ReadMultiplier(reader, "attention_multiplier", attention));
  SLUICE_RETURN_IF_ERROR(ReadMultiplier(reader, "logits_scaling", logits));
  parsed.logit_scale = 1.0 / logits;
  for (LayerConfig& layer : parsed.layers) {
    layer.residual_scale = residual;
    layer.attention.scale = attention;
  }
  SLUICE_RETURN_IF_ERROR(ReadMlpBias(reader, "mlp_bias", parsed));
  return ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed);
}

Status ReadErnie(const ConfigReader& reader, ModelConfig& parsed) {
  parsed.ropes[0].interleaved = true;
  bool bias = false;
  SLUICE_RETURN_IF_ERROR(reader.Bool("use_bias", false, bias));
  for (LayerConfig& layer : parsed.layers) {
    layer.attention.qkv_bias = layer.attention.o_bias = bias;
    layer.mlp.bias = bias;
  }
  return OkStatus();
}

Status ReadHunyuan(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(reader.MustBe("use_cla", false));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("mlp_bias", false));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("norm_type", "rms"));
  bool norms = true;
  SLUICE_RETURN_IF_ERROR(reader.Bool("use_qk_norm", true, norms));
  if (norms) SetQkNorm(QkNorm::kHeadsAfterRope, parsed);
  return ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed);
}

Status ReadGlm(const ConfigReader& reader, ModelConfig& parsed) {
  parsed.ropes[0].interleaved = true;
  parsed.ropes[0].rotary_dim /= 2;
  return ReadBias(reader, /*on_o=*/false, /*absent=*/true, parsed);
}

Status ReadGlm4(const ConfigReader& reader, ModelConfig& parsed) {
  parsed.ropes[0].interleaved = true;
  parsed.ropes[0].rotary_dim /= 2;
  for (LayerConfig& layer : parsed.layers) layer.norm.after = true;
  return ReadBias(reader, /*on_o=*/false, /*absent=*/true, parsed);
}

// Queries, keys and values have biases, whatever attention_bias says.
Status ReadGlm4v(const ConfigReader& reader, ModelConfig& parsed) {
  reader.Find("attention_bias");
  parsed.ropes[0].interleaved = true;
  for (LayerConfig& layer : parsed.layers) {
    layer.norm.after = true;
    layer.attention.qkv_bias = true;
  }
  return OkStatus();
}

Status ReadPhi3(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(reader.MustBe("attention_bias", false));
  return SetWindows(reader, parsed);
}

Status ReadStarcoder2(const ConfigReader& reader, ModelConfig& parsed) {
  bool bias = true;
  SLUICE_RETURN_IF_ERROR(reader.Bool("use_bias", true, bias));
  SetNorms({.layer_norm = true, .bias = true}, parsed);
  for (LayerConfig& layer : parsed.layers) {
    layer.attention.qkv_bias = layer.attention.o_bias = bias;
    layer.mlp.bias = bias;
    layer.mlp.activation.gated = false;
  }
  return SetWindows(reader, parsed);
}

Status ReadCohere(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(reader.MustBe("use_qk_norm", false));
  SetNorms({.parallel = true, .layer_norm = true}, parsed);
  parsed.ropes[0].interleaved = true;
  SLUICE_RETURN_IF_ERROR(
      ReadMultiplier(reader, "logit_scale", parsed.logit_scale));
  return ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed);
}

Status ReadStableLm(const ConfigReader& reader, ModelConfig& parsed) {
  for (const char* key : {"use_parallel_residual", "qk_layernorm"}) {
    SLUICE_RETURN_IF_ERROR(reader.MustBe(key, false));
  }
  SetNorms({.layer_norm = true, .bias = true}, parsed);
  bool bias = false;
  SLUICE_RETURN_IF_ERROR(reader.Bool("use_qkv_bias", false, bias));
  for (LayerConfig& layer : parsed.layers) layer.attention.qkv_bias = bias;
  return OkStatus();
}

Status ReadNemotron(const ConfigReader& reader, ModelConfig& parsed) {
  SetNorms({.layer_norm = true, .bias = true}, parsed);
  SLUICE_RETURN_IF_ERROR(
      reader.Bool("norms_add_one", true, parsed.norms_add_one));
  return ReadArcee(reader, parsed);
}

Status ReadHelium(const ConfigReader& reader, ModelConfig& parsed) {
  parsed.ropes[0].interleaved = true;
  return ReadLlama(reader, parsed);
}

// An MLP without a gate.
Status ReadArcee(const ConfigReader& reader, ModelConfig& parsed) {
  for (LayerConfig& layer : parsed.layers) layer.mlp.activation.gated = false;
  SLUICE_RETURN_IF_ERROR(ReadMlpBias(reader, "mlp_bias", parsed));
  return ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed);
}

// Attention and MLP read one norm's rows. Layers without a window have no RoPE.
Status ReadCohere2(const ConfigReader& reader, ModelConfig& parsed) {
  for (const char* key : {"use_parallel_block", "use_gated_activation"}) {
    SLUICE_RETURN_IF_ERROR(reader.MustBe(key, true));
  }
  for (const char* key : {"use_qk_norm", "use_parallel_embedding"}) {
    SLUICE_RETURN_IF_ERROR(reader.MustBe(key, false));
  }
  SLUICE_RETURN_IF_ERROR(reader.MustBe("position_embedding_type", "rope_gptj"));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("rotary_pct", 1.0));
  SetNorms({.parallel = true, .layer_norm = true}, parsed);
  parsed.ropes[0].interleaved = true;
  SLUICE_RETURN_IF_ERROR(
      ReadMultiplier(reader, "logit_scale", parsed.logit_scale));
  int32_t period = 4;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("sliding_window_pattern", kMaxPattern, 4, period));
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<bool> windowed,
      ReadPattern(
          reader, [&](int32_t i) { return (i + 1) % period != 0; }, parsed));
  SetRope(NoRope(), Not(windowed), parsed);
  return ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed);
}

Status ReadApertus(const ConfigReader& reader, ModelConfig& parsed) {
  SetQkNorm(QkNorm::kHeads, parsed);
  for (LayerConfig& layer : parsed.layers) layer.mlp.activation.gated = false;
  SLUICE_RETURN_IF_ERROR(reader.MustBe("qk_norm", true));
  for (const char* key : {"mlp_bias", "post_norm"}) {
    SLUICE_RETURN_IF_ERROR(reader.MustBe(key, false));
  }
  return ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed);
}

Status ReadOlmo2(const ConfigReader& reader, ModelConfig& parsed) {
  SetNorms({.before = false, .after = true}, parsed);
  SetQkNorm(QkNorm::kAllHeads, parsed);
  return ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed);
}

// A scaling of RoPE is of the layers without windows alone.
Status ReadOlmo3(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadOlmo2(reader, parsed));
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<bool> windowed,
      ReadPattern(
          reader, [](int32_t i) { return (i + 1) % 4 != 0; }, parsed));
  const int32_t head_dim = parsed.layers[0].attention.head_dim;
  RopeConfig plain = parsed.ropes[0];
  SLUICE_RETURN_IF_ERROR(
      ReadRope(reader, "sliding_attention", head_dim, plain));
  plain.scaling = RopeScaling();
  plain.inv_freq = RopeInvFreq(plain.theta, plain.rotary_dim, plain.scaling);
  SetRope(plain, windowed, parsed);
  return OkStatus();
}

// Where some layers have windows, the rest have no RoPE.
Status ReadExaone4(const ConfigReader& reader, ModelConfig& parsed) {
  SetNorms({.before = false, .after = true}, parsed);
  SetQkNorm(QkNorm::kHeads, parsed);
  if (reader.Find("sliding_window") == nullptr) return OkStatus();
  std::vector<bool> usual(parsed.layers.size(), true);
  if (const Json* pattern = reader.Find("sliding_window_pattern")) {
    std::string letters;
    if (pattern->is_string()) {
      letters = pattern->get<std::string>();
    } else {
      int32_t period = 1;
      SLUICE_RETURN_IF_ERROR(
          reader.Int("sliding_window_pattern", 4096, {}, period));
      letters = std::string(static_cast<size_t>(period) - 1, 'L') + 'G';
    }
    if (letters.empty()) {
      return InvalidArgument("sliding_window_pattern is empty");
    }
    for (size_t i = 0; i < usual.size(); ++i) {
      usual[i] = letters[i % letters.size()] == 'L';
    }
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<bool> windowed,
                          ReadPatternOf(reader, usual, parsed));
  SetRope(NoRope(), Not(windowed), parsed);
  return OkStatus();
}

}  // namespace sluice
