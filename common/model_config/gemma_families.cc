#include <algorithm>
#include <charconv>
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

// Gemma 4's "vision" is of images alone.
Status CheckCausal(const ConfigReader& reader) {
  constexpr const char* kKey = "use_bidirectional_attention";
  const Json* found = reader.Find(kKey);
  if (found != nullptr && *found == "vision") return OkStatus();
  return reader.MustBe(kKey, false);
}

// Four norms a layer, scaled embeddings, a soft cap of logits.
Status ReadFourNorms(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(CheckCausal(reader));
  for (LayerConfig& layer : parsed.layers) layer.norm.after = true;
  // IEEE rounds the root correctly.
  parsed.embedding_scale = std::sqrt(static_cast<double>(parsed.hidden_size));
  if (reader.Find("final_logit_softcapping") != nullptr) {
    SLUICE_RETURN_IF_ERROR(reader.Positive("final_logit_softcapping", 1e6, 1.0,
                                           parsed.logit_soft_cap));
  }
  return ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed);
}

// Of all of Gemma 2 and 3.
Status ReadGemma(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadFourNorms(reader, parsed));
  // A GGUF's norms have the 1 already, which the key of its config tells.
  SLUICE_RETURN_IF_ERROR(
      reader.Bool("norms_add_one", true, parsed.norms_add_one));
  double scalar = parsed.layers[0].attention.head_dim;
  SLUICE_RETURN_IF_ERROR(
      reader.Positive("query_pre_attn_scalar", 1e6, scalar, scalar));
  double soft_cap = 0.0;
  if (reader.Find("attn_logit_softcapping") != nullptr) {
    SLUICE_RETURN_IF_ERROR(
        reader.Positive("attn_logit_softcapping", 1e6, 1.0, soft_cap));
  }
  for (LayerConfig& layer : parsed.layers) {
    layer.attention.scale = 1.0 / std::sqrt(scalar);
    layer.attention.soft_cap = soft_cap;
  }
  return OkStatus();
}

}  // namespace

Status ReadGemma1(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(CheckCausal(reader));
  SLUICE_RETURN_IF_ERROR(
      reader.Bool("norms_add_one", true, parsed.norms_add_one));
  parsed.embedding_scale = std::sqrt(static_cast<double>(parsed.hidden_size));
  return ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed);
}

Status ReadGemma2(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadGemma(reader, parsed));
  return ReadPattern(
             reader, [](int32_t i) { return i % 2 == 0; }, parsed)
      .status();
}

// Layers with windows have a RoPE of their own, without scaling.
Status ReadGemma3(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadGemma(reader, parsed));
  SetQkNorm(QkNorm::kHeads, parsed);
  int32_t period = 6;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("sliding_window_pattern", kMaxPattern, 6, period));
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<bool> windowed,
      ReadPattern(
          reader, [&](int32_t i) { return (i + 1) % period != 0; }, parsed));
  RopeConfig local = parsed.ropes[0];
  const Json* of_types = reader.Find("rope_parameters");
  if (of_types != nullptr && of_types->is_object() &&
      of_types->contains("sliding_attention")) {
    SLUICE_RETURN_IF_ERROR(ReadRope(reader, "sliding_attention",
                                    parsed.layers[0].attention.head_dim,
                                    local));
  } else {
    SLUICE_RETURN_IF_ERROR(
        reader.Positive("rope_local_base_freq", 1e15, 10000.0, local.theta));
    local.inv_freq = RopeInvFreq(local.theta, local.rotary_dim, {});
  }
  SetRope(local, windowed, parsed);
  return OkStatus();
}

namespace {

// Reads one key that per_layer_config has for each of the layers that see all,
// with one value; layers that it does not name have `absent`. `layers`: their
// numbers.
Status ReadPerLayer(const Json& per_layer, const std::vector<int32_t>& layers,
                    const char* key, int64_t most, int32_t absent,
                    int32_t& out) {
  std::vector<int32_t> values(layers.size(), absent);
  for (const auto& [name, of_layer] : per_layer.items()) {
    int64_t number = -1;
    const auto read =
        std::from_chars(name.data(), name.data() + name.size(), number);
    const auto at = std::find(layers.begin(), layers.end(), number);
    if (read.ptr != name.data() + name.size() || !of_layer.is_object() ||
        (at == layers.end() && of_layer.contains(key))) {
      return InvalidArgument("per_layer_config has ",
                             DumpJson(of_layer).substr(0, 200), " for layer ",
                             name.substr(0, 20),
                             ", expected keys of layers with full_attention");
    }
    if (at == layers.end()) continue;
    SLUICE_RETURN_IF_ERROR(ConfigReader(of_layer).Int(
        key, most, absent, values[static_cast<size_t>(at - layers.begin())]));
  }
  if (values.empty()) return OkStatus();
  out = values.front();
  const bool is_same = std::all_of(values.begin(), values.end(),
                                   [&](int32_t value) { return value == out; });
  if (is_same) return OkStatus();
  return InvalidArgument("per_layer_config: ", key,
                         " differs between layers with full_attention, which "
                         "is not supported");
}

// Layers that see all have heads of their own size, and perhaps fewer keys,
// which are the values, too.
Status ReadGlobalHeads(const ConfigReader& reader,
                       const std::vector<bool>& windowed, ModelConfig& parsed) {
  AttentionConfig all = parsed.layers[0].attention;
  SLUICE_RETURN_IF_ERROR(reader.Bool("attention_k_eq_v", false, all.k_is_v));
  const Json* per_layer = reader.Find("per_layer_config");
  if (per_layer != nullptr && per_layer->is_object()) {
    std::vector<int32_t> layers;
    for (int32_t i = 0; i < parsed.num_layers(); ++i) {
      if (!windowed[static_cast<size_t>(i)]) layers.push_back(i);
    }
    SLUICE_RETURN_IF_ERROR(ReadPerLayer(*per_layer, layers, "head_dim",
                                        kMaxHeadDim, all.head_dim,
                                        all.head_dim));
    SLUICE_RETURN_IF_ERROR(ReadPerLayer(*per_layer, layers,
                                        "num_key_value_heads", kMaxHeads,
                                        all.num_kv_heads, all.num_kv_heads));
  } else {
    SLUICE_RETURN_IF_ERROR(
        reader.Int("global_head_dim", kMaxHeadDim, 512, all.head_dim));
  }
  if (all.k_is_v && per_layer == nullptr) {
    SLUICE_RETURN_IF_ERROR(reader.Int("num_global_key_value_heads", kMaxHeads,
                                      all.num_kv_heads, all.num_kv_heads));
  }
  if (all.head_dim % 2 != 0 || all.num_heads % all.num_kv_heads != 0) {
    return InvalidArgument("global_head_dim ", all.head_dim,
                           " is odd, or num_attention_heads ", all.num_heads,
                           " is no multiple of num_global_key_value_heads ",
                           all.num_kv_heads);
  }
  RopeConfig rope = parsed.ropes[0];
  rope.rotary_dim = all.head_dim;
  rope.theta = 1000000.0;
  SLUICE_RETURN_IF_ERROR(
      ReadRope(reader, "full_attention", all.head_dim, rope));
  for (size_t i = 0; i < windowed.size(); ++i) {
    if (windowed[i]) continue;
    AttentionConfig& attention = parsed.layers[i].attention;
    attention.head_dim = all.head_dim;
    attention.num_kv_heads = all.num_kv_heads;
    attention.k_is_v = all.k_is_v;
  }
  std::vector<bool> sees_all = windowed;
  sees_all.flip();
  SetRope(rope, sees_all, parsed);
  return OkStatus();
}

// The last layers have the keys and values of the last layer before them of
// the same kind.
Status ReadSharedKv(const ConfigReader& reader,
                    const std::vector<bool>& windowed, ModelConfig& parsed) {
  int32_t shared = 0;
  SLUICE_RETURN_IF_ERROR(reader.Int("num_kv_shared_layers", 0,
                                    parsed.num_layers() - 1, 0, shared));
  bool wide = false;
  SLUICE_RETURN_IF_ERROR(reader.Bool("use_double_wide_mlp", false, wide));
  const int32_t own = parsed.num_layers() - shared;
  for (int32_t i = own; i < parsed.num_layers(); ++i) {
    LayerConfig& layer = parsed.layers[static_cast<size_t>(i)];
    int32_t source = own - 1;
    while (source >= 0 && windowed[static_cast<size_t>(source)] !=
                              windowed[static_cast<size_t>(i)]) {
      --source;
    }
    if (source < 0) {
      return InvalidArgument("num_kv_shared_layers ", shared,
                             ": no layer before layer ", own, " is of layer ",
                             i, "'s type");
    }
    layer.attention.kv_layer = source;
    if (wide) layer.mlp.intermediate_size *= 2;
  }
  return OkStatus();
}

}  // namespace

Status ReadGemma4(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadFourNorms(reader, parsed));
  SLUICE_RETURN_IF_ERROR(reader.Int("hidden_size_per_layer_input", 0, 1 << 14,
                                    0, parsed.per_layer_input));
  if (parsed.per_layer_input > 0) {
    SLUICE_RETURN_IF_ERROR(
        reader.MustBe("vocab_size_per_layer_input", parsed.vocab_size));
  }
  SetQkNorm(QkNorm::kHeads, parsed);
  for (LayerConfig& layer : parsed.layers) {
    layer.attention.scale = 1.0;
    layer.attention.v_norm = true;
    layer.output_scale = true;
    layer.own_input = parsed.per_layer_input > 0;
  }
  // The last layer sees all, whatever the list says.
  const int32_t last = parsed.num_layers() - 1;
  SLUICE_ASSIGN_OR_RETURN(
      std::vector<bool> windowed,
      ReadPattern(
          reader, [&](int32_t i) { return (i + 1) % 6 != 0 && i != last; },
          parsed));
  windowed[static_cast<size_t>(last)] = false;
  parsed.layers[static_cast<size_t>(last)].attention.window = 0;
  SLUICE_RETURN_IF_ERROR(ReadGlobalHeads(reader, windowed, parsed));
  RopeConfig& local = parsed.ropes[0];
  SLUICE_RETURN_IF_ERROR(
      ReadRope(reader, "sliding_attention", local.rotary_dim, local));
  SLUICE_RETURN_IF_ERROR(ReadSharedKv(reader, windowed, parsed));
  bool experts = false;
  SLUICE_RETURN_IF_ERROR(reader.Bool("enable_moe_block", false, experts));
  if (!experts) return OkStatus();
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadExperts(
      reader, {"num_experts", "moe_intermediate_size", "top_k_experts"},
      parsed.num_layers(), moe));
  moe.activation = parsed.layers[0].mlp.activation;
  moe.normalise = true;
  moe.own_norms = true;
  for (LayerConfig& layer : parsed.layers) {
    moe.shared_intermediate_size = layer.mlp.intermediate_size;
    layer.moe = moe;
  }
  return OkStatus();
}

}  // namespace sluice
