#include "services/cli/model_facts.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/cat.h"

namespace sluice::cli {
namespace {

// A number with six digits at most: 0.0883883, 500000, 1e-05.
std::string Short(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

// "3", "0-3, 5, 7-9" of rising numbers.
std::string Ranges(const std::vector<int32_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += Cat(text.empty() ? "" : ", ", numbers[i]);
    if (end - i > 1) text += Cat("-", numbers[end - 1]);
    i = end;
  }
  return text;
}

std::string FactLine(std::string_view name, const std::string& value) {
  std::string line(name);
  line.resize(std::max<size_t>(line.size() + 1, 25), ' ');
  return Cat(line, value, "\n");
}

// Returns a line for each value that `value_of` gives of layers; layers with
// an empty value have none.
template <typename ValueOf>
std::string Lines(std::string_view name, const ModelConfig& config,
                  const ValueOf& value_of) {
  std::vector<std::pair<std::string, std::vector<int32_t>>> values;
  for (int32_t i = 0; i < config.num_layers(); ++i) {
    const std::string value = value_of(config.layers[static_cast<size_t>(i)]);
    if (value.empty()) continue;
    auto at = values.begin();
    while (at != values.end() && at->first != value) ++at;
    if (at == values.end()) at = values.insert(at, {value, {}});
    at->second.push_back(i);
  }
  std::string text;
  for (const auto& [value, layers] : values) {
    const bool all = static_cast<int32_t>(layers.size()) == config.num_layers();
    text += FactLine(
        name, all ? value : Cat(value, " (layers ", Ranges(layers), ")"));
  }
  return text;
}

std::string AttentionText(const LayerConfig& layer) {
  const AttentionConfig& a = layer.attention;
  std::string text =
      Cat(a.num_heads, " heads, ", a.num_kv_heads, " of keys and values, ",
          a.head_dim, " wide, scale ", Short(a.scale));
  const auto add = [&](bool has, std::string_view what) {
    if (has) text += Cat(", ", what);
  };
  add(a.qkv_bias, "biases of q, k, v");
  add(a.o_bias, "bias of o");
  add(a.qk_norm == QkNorm::kHeads, "norms of q and k");
  add(a.qk_norm == QkNorm::kHeadsAfterRope, "norms of q and k behind RoPE");
  add(a.qk_norm == QkNorm::kAllHeads, "norms of q and k over all heads");
  add(a.v_norm, "norm of v");
  add(a.k_is_v, "values are keys");
  add(a.sinks, "sinks");
  if (a.soft_cap != 0) text += Cat(", soft cap ", Short(a.soft_cap));
  if (a.clip_qkv != 0) text += Cat(", q, k, v within ", Short(a.clip_qkv));
  if (a.growth.beta != 0) {
    text += Cat(", q grows by ", Short(a.growth.beta), " from ",
                Short(a.growth.original), " on");
  }
  if (a.kv_layer >= 0) text += Cat(", keys and values of layer ", a.kv_layer);
  return text;
}

std::string ScalingText(const RopeScaling& scaling) {
  using Kind = RopeScaling::Kind;
  const std::string original =
      Cat(" of ", Short(scaling.original_max_position_embeddings));
  switch (scaling.kind) {
    case Kind::kNone:
      return "";
    case Kind::kLinear:
      return Cat(", linear, factor ", Short(scaling.factor));
    case Kind::kLlama3:
      return Cat(", llama3, factor ", Short(scaling.factor), original,
                 ", from ", Short(scaling.low_freq_factor), " to ",
                 Short(scaling.high_freq_factor));
    case Kind::kYarn:
      return Cat(", yarn, factor ", Short(scaling.factor), original, ", beta ",
                 Short(scaling.beta_fast), " and ", Short(scaling.beta_slow),
                 ", attention factor ", Short(scaling.attention_factor),
                 scaling.truncate ? "" : ", not truncated");
    case Kind::kDivisors:
      return ", a divisor per frequency";
    case Kind::kLongRope:
      return Cat(", longrope", original, ", attention factor ",
                 Short(scaling.attention_factor));
    case Kind::kDynamic:
      return Cat(", dynamic, alpha ", Short(scaling.alpha));
    case Kind::kProportional:
      return Cat(", the first ", Short(scaling.share), " of the pairs turn");
  }
  return "";
}

// Whether a RoPE turns nothing.
bool Stands(const RopeConfig& rope) {
  for (const double frequency : rope.inv_freq) {
    if (frequency != 0.0) return false;
  }
  return true;
}

std::string RopeText(const ModelConfig& config, const LayerConfig& layer) {
  const size_t index = static_cast<size_t>(layer.attention.rope);
  if (index >= config.ropes.size()) return "none";
  const RopeConfig& rope = config.ropes[index];
  if (Stands(rope)) return "none";
  return Cat("theta ", Short(rope.theta), ", ", rope.rotary_dim,
             " of the head's columns", rope.interleaved ? ", interleaved" : "",
             ScalingText(rope.scaling));
}

std::string NormText(const ModelConfig& config, const LayerConfig& layer) {
  const NormConfig& norm = layer.norm;
  return Cat(
      norm.layer_norm ? "LayerNorms" : "RMS norms",
      norm.before ? " before" : "", norm.before && norm.after ? " and" : "",
      norm.after ? " behind" : "", " attention and MLP",
      norm.parallel ? ", which are parallel" : "",
      norm.bias ? ", with biases" : "",
      config.norms_add_one ? ", weights 1 + w" : "", ", eps ", Short(norm.eps));
}

std::string ActivationText(const kernels::Activation& activation) {
  using Kind = kernels::Activation::Kind;
  switch (activation.kind) {
    case Kind::kSilu:
      return "silu";
    case Kind::kClampedSwiGlu:
      return Cat("swiglu within ", Short(activation.limit));
    case Kind::kGeluTanh:
      return activation.gated ? "gelu (tanh)" : "gelu (tanh), no gate";
    case Kind::kRelu2:
      return activation.gated ? "relu squared" : "relu squared, no gate";
    case Kind::kXIelu:
      return "xielu";
    default:
      return "another activation";
  }
}

std::string MlpText(const LayerConfig& layer) {
  if (layer.is_sparse()) return "";
  return Cat(layer.mlp.intermediate_size, " wide, ",
             ActivationText(layer.mlp.activation),
             layer.mlp.bias ? ", biases" : "");
}

std::string ExpertsText(const LayerConfig& layer) {
  if (!layer.is_sparse()) return "";
  const MoeConfig& moe = layer.moe;
  constexpr const char* kScores[] = {"sigmoid", "softmax",
                                     "softmax of the chosen"};
  std::string text =
      Cat(moe.num_experts, ", ", moe.experts_per_token, " per token, ",
          moe.intermediate_size, " wide, ", ActivationText(moe.activation),
          ", ", kScores[static_cast<size_t>(moe.score)]);
  const auto add = [&](bool has, const std::string& what) {
    if (has) text += Cat(", ", what);
  };
  add(moe.normalise, "normalised");
  add(moe.scale != 1.0, Cat("scale ", Short(moe.scale)));
  add(moe.num_groups > 1,
      Cat(moe.groups_per_token, " of ", moe.num_groups, " groups"));
  add(moe.correction, "a bias to choose");
  add(moe.shared_intermediate_size > 0,
      Cat("a shared expert ", moe.shared_intermediate_size, " wide",
          moe.shared_gate ? " with a gate" : ""));
  return text;
}

std::string WindowText(const LayerConfig& layer) {
  const int32_t window = layer.attention.window;
  return window > 0 ? Cat(window, " tokens") : std::string();
}

}  // namespace

std::string ModelFacts(const ModelConfig& config) {
  std::string text = Lines("attention", config, AttentionText);
  text += Lines("window", config, WindowText);
  text += Lines("RoPE", config, [&](const LayerConfig& layer) {
    return RopeText(config, layer);
  });
  text += Lines("norms", config, [&](const LayerConfig& layer) {
    return NormText(config, layer);
  });
  text += Lines("MLP", config, MlpText);
  text += Lines("router and experts", config, ExpertsText);
  text += Lines("residual's scale", config, [](const LayerConfig& layer) {
    return layer.residual_scale == 1.0 ? "" : Short(layer.residual_scale);
  });
  if (config.embedding_scale != 1.0) {
    text += FactLine("embedding's scale", Short(config.embedding_scale));
  }
  if (config.logit_scale != 1.0) {
    text += FactLine("logits' scale", Short(config.logit_scale));
  }
  if (config.logit_soft_cap != 0.0) {
    text += FactLine("logits' soft cap", Short(config.logit_soft_cap));
  }
  return text;
}

}  // namespace sluice::cli
