// Models with layers that carry a state from token to token beside keys and
// values.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/family_readers.h"
#include "common/model_config/model_families.h"

namespace sluice {
namespace {

using Kind = kernels::StateMixer::Kind;

constexpr int64_t kMaxDim = 1 << 20;
constexpr int64_t kMaxInterval = 1 << 20;
constexpr double kMostFactor = 1e6;

// Reads an integer of a state, which the kernels bound.
Status ReadSize(const ConfigReader& reader, const char* key, int64_t most,
                int64_t absent, int64_t& out) {
  int32_t value = 0;
  SLUICE_RETURN_IF_ERROR(reader.Int(key, most, absent, value));
  out = value;
  return OkStatus();
}

// Returns a layer's type as transformers 5 names it.
Json TypeOf(const Json& type) {
  if (type == "mamba") return "linear_attention";
  if (type == "attention") return "full_attention";
  return type;
}

// Returns which layers have attention, by a list of layers' types, where
// `other` is the one of layers without, else by `usual`.
StatusOr<std::vector<bool>> ReadTypes(const ConfigReader& reader,
                                      std::string_view attention,
                                      std::string_view other,
                                      std::vector<bool> usual) {
  const Json* types = reader.Find("layer_types");
  if (types == nullptr) return usual;
  if (!types->is_array() || types->size() < usual.size()) {
    return InvalidArgument("layer_types is no list of at least ", usual.size(),
                           " layers' types");
  }
  for (size_t i = 0; i < usual.size(); ++i) {
    const Json type = TypeOf((*types)[i]);
    if (type != attention && type != other) {
      return InvalidArgument("layer_types has ", DumpJson(type).substr(0, 100),
                             " for layer ", i, "; supported are ", attention,
                             " and ", other);
    }
    usual[i] = type == attention;
  }
  return usual;
}

// Gives the state to every layer without attention.
void SetStates(const StateConfig& state, const std::vector<bool>& attends,
               ModelConfig& parsed) {
  for (size_t i = 0; i < attends.size(); ++i) {
    LayerConfig& layer = parsed.layers[i];
    layer.attention.present = attends[i];
    if (attends[i]) continue;
    layer.state = state;
    layer.attention.qk_norm = QkNorm::kNone;
    layer.attention.gate = false;
  }
}

// Heads share keys evenly, and a gated norm's groups are those of keys.
Status CheckHeads(const char* heads_key, const char* keys_key,
                  const kernels::StateShape& shape) {
  if (shape.num_heads % shape.num_key_heads == 0) return OkStatus();
  return InvalidArgument(heads_key, " ", shape.num_heads, " is no multiple of ",
                         keys_key, " ", shape.num_key_heads);
}

// Short convolutions ---------------------------------------------------------

StatusOr<std::vector<bool>> ReadFullAttention(const ConfigReader& reader,
                                              const ModelConfig& parsed) {
  const Json* indices = reader.Find("full_attn_idxs");
  if (indices == nullptr) {
    const std::vector<bool> all(parsed.layers.size(), true);
    return ReadTypes(reader, "full_attention", "conv", all);
  }
  std::vector<bool> attends(parsed.layers.size());
  if (!indices->is_array()) {
    return InvalidArgument("full_attn_idxs is ", indices->type_name(),
                           ", expected a list of layers");
  }
  for (const Json& index : *indices) {
    if (!index.is_number_integer() || index < 0 ||
        index >= parsed.num_layers()) {
      return InvalidArgument("full_attn_idxs has ",
                             DumpJson(index).substr(0, 100),
                             ", expected layers below ", parsed.num_layers());
    }
    attends[index.get<size_t>()] = true;
  }
  return attends;
}

Status ReadShortConvolutions(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(reader.MustBe("conv_bias", false));
  SetQkNorm(QkNorm::kHeads, parsed);
  SLUICE_ASSIGN_OR_RETURN(const std::vector<bool> attends,
                          ReadFullAttention(reader, parsed));
  StateConfig state;
  state.mixer.kind = Kind::kShortConvolution;
  state.mixer.shape.channels = parsed.hidden_size;
  SLUICE_RETURN_IF_ERROR(ReadSize(reader, "conv_L_cache",
                                  kernels::kMaxConvolutionTaps, 3,
                                  state.mixer.shape.taps));
  SetStates(state, attends, parsed);
  return OkStatus();
}

// Gated delta rule -----------------------------------------------------------

Status ReadDelta(const ConfigReader& reader, ModelConfig& parsed) {
  int32_t interval = 4;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("full_attention_interval", kMaxInterval, 4, interval));
  std::vector<bool> usual;
  for (int32_t i = 0; i < parsed.num_layers(); ++i) {
    usual.push_back((i + 1) % interval == 0);
  }
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<bool> attends,
      ReadTypes(reader, "full_attention", "linear_attention", usual));
  StateConfig state;
  state.mixer.kind = Kind::kGatedDelta;
  state.mixer.norm_eps = static_cast<float>(parsed.rms_norm_eps);
  kernels::StateShape& shape = state.mixer.shape;
  shape.delta = true;
  SLUICE_RETURN_IF_ERROR(ReadSize(reader, "linear_num_key_heads", kMaxHeads, 16,
                                  shape.num_key_heads));
  SLUICE_RETURN_IF_ERROR(ReadSize(reader, "linear_num_value_heads", kMaxHeads,
                                  32, shape.num_heads));
  SLUICE_RETURN_IF_ERROR(ReadSize(reader, "linear_key_head_dim",
                                  kernels::kMaxKeyDim, 128, shape.key_dim));
  SLUICE_RETURN_IF_ERROR(
      ReadSize(reader, "linear_value_head_dim", kMaxDim, 128, shape.value_dim));
  SLUICE_RETURN_IF_ERROR(ReadSize(reader, "linear_conv_kernel_dim",
                                  kernels::kMaxConvolutionTaps, 4, shape.taps));
  SLUICE_RETURN_IF_ERROR(
      CheckHeads("linear_num_value_heads", "linear_num_key_heads", shape));
  shape.channels = 2 * shape.keys() + shape.values();
  // A GGUF's norms have the 1 already, which the key of its config tells.
  SLUICE_RETURN_IF_ERROR(
      reader.Bool("norms_add_one", true, parsed.norms_add_one));
  SLUICE_RETURN_IF_ERROR(
      reader.Bool("linear_qkvz_apart", false, state.qkvz_apart));
  SetQkNorm(QkNorm::kHeads, parsed);
  for (LayerConfig& layer : parsed.layers) layer.attention.gate = true;
  SetStates(state, attends, parsed);
  return reader.MustBe("attention_bias", false);
}

// Experts beside a gated shared one.
Status ReadGatedMixture(const ConfigReader& reader, ModelConfig& parsed) {
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadExperts(reader,
                                     {"num_experts", "moe_intermediate_size"},
                                     parsed.num_layers(), moe));
  SLUICE_RETURN_IF_ERROR(reader.Bool("norm_topk_prob", true, moe.normalise));
  SLUICE_RETURN_IF_ERROR(reader.Int("shared_expert_intermediate_size", kMaxDim,
                                    512, moe.shared_intermediate_size));
  moe.shared_gate = true;
  return ReadSparseLayers(reader, moe, parsed);
}

// Mamba 2 --------------------------------------------------------------------

// The keys of a Mamba-2 mixer.
struct MambaKeys {
  const char* heads;
  const char* head_dim;
  const char* state;
  const char* groups;
  const char* taps;
  const char* conv_bias;
  const char* proj_bias;
};
constexpr MambaKeys kMambaKeys = {
    "mamba_n_heads", "mamba_d_head",    "mamba_d_state",  "mamba_n_groups",
    "mamba_d_conv",  "mamba_conv_bias", "mamba_proj_bias"};
constexpr MambaKeys kNemotronMambaKeys = {
    "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups",
    "conv_kernel",     "use_conv_bias",  "mamba_proj_bias"};

// `size`: the columns of all heads; 0: heads times head_dim.
Status ReadMamba(const ConfigReader& reader, const MambaKeys& keys,
                 int64_t size, StateConfig& state) {
  state.mixer.kind = Kind::kMamba2;
  kernels::StateShape& shape = state.mixer.shape;
  SLUICE_RETURN_IF_ERROR(
      ReadSize(reader, keys.heads, kMaxHeads, 128, shape.num_heads));
  if (reader.Find(keys.head_dim) != nullptr &&
      *reader.Find(keys.head_dim) == "auto") {
    shape.value_dim = size / shape.num_heads;
    if (shape.value_dim < 1) {
      return InvalidArgument(keys.head_dim, " is \"auto\" for a mixer of size ",
                             size, " and ", shape.num_heads, " ", keys.heads);
    }
  } else {
    SLUICE_RETURN_IF_ERROR(
        ReadSize(reader, keys.head_dim, kMaxDim, 64, shape.value_dim));
  }
  SLUICE_RETURN_IF_ERROR(
      ReadSize(reader, keys.state, kernels::kMaxKeyDim, 128, shape.key_dim));
  SLUICE_RETURN_IF_ERROR(
      ReadSize(reader, keys.groups, kMaxHeads, 1, shape.num_key_heads));
  SLUICE_RETURN_IF_ERROR(
      ReadSize(reader, keys.taps, kernels::kMaxConvolutionTaps, 4, shape.taps));
  SLUICE_RETURN_IF_ERROR(CheckHeads(keys.heads, keys.groups, shape));
  if (size != 0 && size != shape.values()) {
    return InvalidArgument(keys.heads, " ", shape.num_heads, " times ",
                           keys.head_dim, " ", shape.value_dim,
                           " must be the mixer's size ", size);
  }
  SLUICE_RETURN_IF_ERROR(reader.Bool(keys.conv_bias, true, state.conv_bias));
  shape.channels = shape.values() + 2 * shape.keys();
  state.mixer.norm_groups = shape.num_key_heads;
  return reader.MustBe(keys.proj_bias, false);
}

// A limit as transformers writes it: a number, or {"__float__": "Infinity"}.
// Null stands for an infinity that is no JSON.
bool IsInfinite(const Json& limit) {
  return limit.is_null() || limit == Json{{"__float__", "Infinity"}};
}

// Reads the limits of a step of time.
Status ReadTimeLimits(const ConfigReader& reader, kernels::StateMixer& mixer) {
  const Json* found = reader.Find("time_step_limit");
  if (found == nullptr) return OkStatus();
  const bool is_pair = found->is_array() && found->size() == 2;
  const Json limits = is_pair ? *found : Json::array({Json(), Json()});
  const double least = limits[0].is_number() ? limits[0].get<double>() : -1.0;
  const bool is_open = IsInfinite(limits[1]);
  const double most = is_open                 ? 0.0
                      : limits[1].is_number() ? limits[1].get<double>()
                                              : -1.0;
  if (least < 0.0 || (!is_open && most <= least)) {
    return InvalidArgument("time_step_limit is ",
                           DumpJson(*found).substr(0, 200),
                           ", expected two numbers that rise, from 0 on");
  }
  mixer.time_step_min = static_cast<float>(least);
  mixer.time_step_max = static_cast<float>(most);
  return OkStatus();
}

// Nemotron-H's layers, by letters or by names.
StatusOr<std::string> ReadLetters(const ConfigReader& reader,
                                  int32_t num_layers) {
  std::string letters;
  if (const Json* names = reader.Find("layers_block_type");
      names != nullptr && names->is_array()) {
    for (const Json& name : *names) {
      const Json type = TypeOf(name);
      letters += type == "linear_attention" ? 'M'
                 : type == "full_attention" ? '*'
                 : type == "mlp"            ? '-'
                 : type == "moe"            ? 'E'
                                            : '?';
      if (letters.back() != '?') continue;
      return InvalidArgument(
          "layers_block_type has ", DumpJson(name).substr(0, 100),
          " for layer ", letters.size() - 1,
          "; supported are linear_attention (mamba), full_attention "
          "(attention), mlp and moe");
    }
  } else if (const Json* found = reader.Find("hybrid_override_pattern");
             found != nullptr && found->is_string()) {
    letters = found->get<std::string>();
  }
  const bool is_known = letters.find_first_not_of("M*-E") == std::string::npos;
  if (is_known && std::ssize(letters) == num_layers) return letters;
  return InvalidArgument(
      "hybrid_override_pattern must have one of M, *, - and E for each of ",
      num_layers, " layers, is \"", letters.substr(0, 200), "\"");
}

StatusOr<std::vector<double>> ReadMultipliers(const ConfigReader& reader,
                                              const char* key, size_t count) {
  std::vector<double> multipliers(count, 1.0);
  const Json* found = reader.Find(key);
  if (found == nullptr) return multipliers;
  if (!found->is_array() || found->size() != count) {
    return InvalidArgument(key, " is no list of ", count, " numbers");
  }
  for (size_t i = 0; i < count; ++i) {
    const Json& number = (*found)[i];
    const double value = number.is_number() ? number.get<double>() : NAN;
    if (!(std::abs(value) <= kMostFactor)) {
      return InvalidArgument(key, " has ", DumpJson(number).substr(0, 100),
                             ", limit ", kMostFactor);
    }
    multipliers[i] = value;
  }
  return multipliers;
}

}  // namespace

int64_t StateConfig::unit() const {
  const kernels::StateShape& shape = mixer.shape;
  if (mixer.kind == Kind::kShortConvolution) return 32;
  return shape.values() / shape.num_key_heads;
}

Status ReadLfm2(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(reader.MustBe("block_use_swiglu", true));
  SLUICE_RETURN_IF_ERROR(ReadShortConvolutions(reader, parsed));
  int32_t width = parsed.layers[0].mlp.intermediate_size;
  SLUICE_RETURN_IF_ERROR(reader.Int("block_ff_dim", kMaxDim, width, width));
  bool adjusts = true;
  SLUICE_RETURN_IF_ERROR(
      reader.Bool("block_auto_adjust_ff_dim", true, adjusts));
  if (adjusts) {
    int32_t multiple = 256;
    double factor = 1.0;
    SLUICE_RETURN_IF_ERROR(
        reader.Int("block_multiple_of", kMaxDim, 256, multiple));
    SLUICE_RETURN_IF_ERROR(
        reader.Positive("block_ffn_dim_multiplier", 1e3, 1.0, factor));
    width = static_cast<int32_t>(factor * (2 * width / 3));
    width = (width + multiple - 1) / multiple * multiple;
  }
  for (LayerConfig& layer : parsed.layers) {
    layer.mlp.intermediate_size = width;
  }
  return OkStatus();
}

Status ReadLfm2Moe(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadShortConvolutions(reader, parsed));
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadExperts(reader,
                                     {"num_experts", "moe_intermediate_size"},
                                     parsed.num_layers(), moe));
  moe.score = kernels::RouterRule::Score::kSigmoid;
  moe.sum_floor = 1e-6;
  SLUICE_RETURN_IF_ERROR(reader.Bool("norm_topk_prob", true, moe.normalise));
  SLUICE_RETURN_IF_ERROR(reader.Bool("use_expert_bias", true, moe.correction));
  SLUICE_RETURN_IF_ERROR(
      reader.Positive("routed_scaling_factor", kMostFactor, 1.0, moe.scale));
  int32_t dense = 2;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("num_dense_layers", 0, parsed.num_layers(), 2, dense));
  for (int32_t i = dense; i < parsed.num_layers(); ++i) {
    parsed.layers[static_cast<size_t>(i)].moe = moe;
  }
  return OkStatus();
}

Status ReadQwen3Next(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadDelta(reader, parsed));
  return ReadGatedMixture(reader, parsed);
}

Status ReadQwen35(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(reader.MustBe("attn_output_gate", true));
  return ReadDelta(reader, parsed);
}

Status ReadQwen35Moe(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadQwen35(reader, parsed));
  SLUICE_RETURN_IF_ERROR(ReadGatedMixture(reader, parsed));
  NormaliseExperts(parsed);  // whatever norm_topk_prob says
  return OkStatus();
}

Status ReadGraniteHybrid(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(reader.MustBe("normalization_function", "rmsnorm"));
  SLUICE_RETURN_IF_ERROR(ReadGranite(reader, parsed));
  int32_t expand = 2;
  SLUICE_RETURN_IF_ERROR(reader.Int("mamba_expand", 64, 2, expand));
  StateConfig state;
  SLUICE_RETURN_IF_ERROR(ReadMamba(
      reader, kMambaKeys, int64_t{expand} * parsed.hidden_size, state));
  SLUICE_RETURN_IF_ERROR(ReadTimeLimits(reader, state.mixer));
  state.mixer.norm_eps = static_cast<float>(parsed.rms_norm_eps);
  const std::vector<bool> none(parsed.layers.size());
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<bool> attends,
      ReadTypes(reader, "full_attention", "linear_attention", none));
  SetStates(state, attends, parsed);
  const Json* positions = reader.Find("position_embedding_type");
  if (positions == nullptr || *positions == "nope") {
    parsed.ropes[0] = NoRope();
  } else if (*positions != "rope") {
    return InvalidArgument("position_embedding_type is ",
                           DumpJson(*positions).substr(0, 100),
                           "; supported are rope and nope");
  }
  int32_t width = 0;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("shared_intermediate_size", kMaxDim, 1024, width));
  int32_t experts = 0;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("num_local_experts", 0, kMaxDim, 8, experts));
  MoeConfig moe;
  if (experts > 0) {
    SLUICE_RETURN_IF_ERROR(
        ReadExperts(reader, {"num_local_experts", "intermediate_size"},
                    parsed.num_layers(), moe));
    moe.score = kernels::RouterRule::Score::kSoftmaxOfSelected;
    moe.shared_intermediate_size = width;
  }
  for (LayerConfig& layer : parsed.layers) {
    layer.moe = moe;
    layer.mlp.intermediate_size = width;
  }
  return OkStatus();
}

Status ReadNemotronH(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(reader.MustBe("mlp_hidden_act", "relu2"));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("mamba_hidden_act", "silu"));
  for (const char* key : {"use_bias", "mlp_bias", "attention_bias"}) {
    SLUICE_RETURN_IF_ERROR(reader.MustBe(key, false));
  }
  if (reader.Find("moe_latent_size") != nullptr) {
    return InvalidArgument("moe_latent_size: latent experts are not supported");
  }
  SLUICE_RETURN_IF_ERROR(reader.Positive(
      "layer_norm_epsilon", 1.0, parsed.rms_norm_eps, parsed.rms_norm_eps));
  SLUICE_ASSIGN_OR_RETURN(const std::string letters,
                          ReadLetters(reader, parsed.num_layers()));
  StateConfig state;
  SLUICE_RETURN_IF_ERROR(ReadMamba(reader, kNemotronMambaKeys, 0, state));
  state.mixer.norm_eps = static_cast<float>(parsed.rms_norm_eps);
  double least = 0;
  SLUICE_RETURN_IF_ERROR(reader.Positive("time_step_min", 1e3, 1e-3, least));
  state.mixer.time_step_min = static_cast<float>(least);
  MoeConfig moe;
  if (letters.find('E') != std::string::npos) {
    SLUICE_RETURN_IF_ERROR(
        ReadExperts(reader, {"n_routed_experts", "moe_intermediate_size"},
                    parsed.num_layers(), moe));
    moe.score = kernels::RouterRule::Score::kSigmoid;
    moe.correction = true;
    SLUICE_RETURN_IF_ERROR(ReadGroups(reader, moe));
    SLUICE_RETURN_IF_ERROR(reader.Bool("norm_topk_prob", true, moe.normalise));
    SLUICE_RETURN_IF_ERROR(
        reader.Positive("routed_scaling_factor", kMostFactor, 1.0, moe.scale));
    SLUICE_RETURN_IF_ERROR(reader.Int("moe_shared_expert_intermediate_size", 0,
                                      kMaxDim, 0,
                                      moe.shared_intermediate_size));
    moe.activation = {kernels::Activation::Kind::kRelu2, 0, /*gated=*/false};
  }
  parsed.ropes[0] = NoRope();
  for (size_t i = 0; i < letters.size(); ++i) {
    LayerConfig& layer = parsed.layers[i];
    layer.norm.eps = parsed.rms_norm_eps;
    layer.attention.present = letters[i] == '*';
    if (letters[i] == 'M') layer.state = state;
    if (letters[i] == 'E') layer.moe = moe;
    layer.mlp.activation = {kernels::Activation::Kind::kRelu2, 0,
                            /*gated=*/false};
    if (letters[i] != '-') layer.mlp.intermediate_size = 0;
  }
  return OkStatus();
}

Status ReadFalconH1(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(reader.MustBe("mamba_use_mlp", true));
  for (const char* key : {"attention_bias", "mlp_bias", "projectors_bias"}) {
    SLUICE_RETURN_IF_ERROR(reader.MustBe(key, false));
  }
  int32_t size = 0;
  int32_t expand = 2;
  SLUICE_RETURN_IF_ERROR(reader.Int("mamba_expand", 64, 2, expand));
  SLUICE_RETURN_IF_ERROR(reader.Int(
      "mamba_d_ssm", kMaxDim, int64_t{expand} * parsed.hidden_size, size));
  StateConfig state;
  SLUICE_RETURN_IF_ERROR(ReadMamba(reader, kMambaKeys, size, state));
  SLUICE_RETURN_IF_ERROR(ReadTimeLimits(reader, state.mixer));
  state.mixer.norm_eps = static_cast<float>(parsed.rms_norm_eps);
  bool norm = false;
  SLUICE_RETURN_IF_ERROR(reader.Bool("mamba_rms_norm", false, norm));
  if (!norm) state.mixer.norm_groups = 0;
  SLUICE_RETURN_IF_ERROR(reader.Bool("mamba_norm_before_gate", true,
                                     state.mixer.norm_before_gate));
  double attention_in = 1.0, attention_out = 1.0, key = 1.0, head = 1.0;
  double state_in = 1.0;
  for (const auto& [name, to] :
       {std::pair{"embedding_multiplier", &parsed.embedding_scale},
        {"attention_in_multiplier", &attention_in},
        {"attention_out_multiplier", &attention_out},
        {"key_multiplier", &key},
        {"ssm_in_multiplier", &state_in},
        {"ssm_out_multiplier", &state.out_scale},
        {"lm_head_multiplier", &head}}) {
    SLUICE_RETURN_IF_ERROR(reader.Positive(name, kMostFactor, 1.0, *to));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<double> parts,
                          ReadMultipliers(reader, "ssm_multipliers", 5));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<double> mlp,
                          ReadMultipliers(reader, "mlp_multipliers", 2));
  for (size_t i = 0; i < parts.size(); ++i) {
    state.mixer.scales[i] = static_cast<float>(parts[i] * state_in);
  }
  parsed.logit_scale = head;
  for (LayerConfig& layer : parsed.layers) {
    layer.state = state;
    // Queries, keys and values are linear in their input.
    layer.attention.scale *= attention_in * attention_in * key;
    layer.attention.out_scale = attention_in * attention_out;
    layer.mlp.gate_scale = mlp[0];
    layer.mlp.out_scale = mlp[1];
  }
  return OkStatus();
}

}  // namespace sluice
