#include "common/model_config/gguf_read_parts.h"

#include <cmath>
#include <limits>
#include <utility>

#include "common/base/json.h"
#include "common/core/kv_groups.h"

namespace sluice::gguf {
namespace {

using weights::LocatedTensor;

constexpr int64_t kMostLayers = 1 << 16;
constexpr std::string_view kWindowKey = ".attention.sliding_window";
constexpr std::string_view kPatternKey = ".attention.sliding_window_pattern";

// Reads the window; 0: none.
StatusOr<int64_t> WindowOf(const GgufView& gguf, int64_t absent) {
  if (!gguf.Has(kWindowKey)) return absent;
  SLUICE_ASSIGN_OR_RETURN(const int64_t window, gguf.Int(kWindowKey));
  if (window >= 0 && window <= kMaxKvWindow) return window;
  return InvalidArgument(gguf.Key(kWindowKey), " is ", window,
                         ", limits 0 and ", kMaxKvWindow);
}

// Returns which layers have windows: the file's list, or all but every n-th.
StatusOr<std::vector<int64_t>> PatternOf(const GgufView& gguf, int64_t period,
                                         int64_t layers) {
  if (gguf.Has(kPatternKey)) {
    auto list = gguf.metadata().Ints(gguf.Key(kPatternKey));
    if (list.ok() && std::ssize(*list) >= layers) return *list;
    if (list.ok()) {
      return InvalidArgument(gguf.Key(kPatternKey), " has ", list->size(),
                             " layers of ", layers);
    }
    SLUICE_ASSIGN_OR_RETURN(period, gguf.Int(kPatternKey));
    if (period < 0) {
      return InvalidArgument(gguf.Key(kPatternKey), " is ", period,
                             ", limit 0");
    }
  }
  std::vector<int64_t> windowed;
  for (int64_t i = 0; i < layers; ++i) {
    windowed.push_back(period == 0 || (i + 1) % period != 0 ? 1 : 0);
  }
  return windowed;
}

}  // namespace

bool HasBias(const GgufView& gguf, std::string_view name) {
  return gguf.FindTensor(Cat("blk.0.", name, ".bias")) != nullptr;
}

// Checks that a number is one of two, if the file has it.
Status MustBe(const GgufView& gguf, std::string_view key, double built,
              double none) {
  if (!gguf.Has(key)) return OkStatus();
  const weights::GgufValue& value = *gguf.metadata().Find(gguf.Key(key));
  double found = 0.0;
  if (const auto* integer = std::get_if<int64_t>(&value.value)) {
    found = static_cast<double>(*integer);
  } else {
    SLUICE_ASSIGN_OR_RETURN(found, gguf.Float(key));
  }
  if (found == built || found == none) return OkStatus();
  return InvalidArgument(gguf.Key(key), " is ", found,
                         ", supported for this architecture is ", built);
}

// Returns how many dimensions of a head turn.
StatusOr<int64_t> RotaryDim(const GgufView& gguf, const Json& config) {
  constexpr std::string_view kKey = ".rope.dimension_count";
  const auto head_dim = config["head_dim"].get<int64_t>();
  if (!gguf.Has(kKey)) return head_dim;
  SLUICE_ASSIGN_OR_RETURN(const int64_t rotary, gguf.Int(kKey));
  if (rotary >= 2 && rotary <= head_dim) return rotary;
  return InvalidArgument(gguf.Key(kKey), " is ", rotary,
                         ", limits 2 and head_dim ", head_dim);
}

Status CheckWholeHeads(const GgufView& gguf, const Json& config) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t rotary, RotaryDim(gguf, config));
  if (rotary == config["head_dim"].get<int64_t>()) return OkStatus();
  return InvalidArgument(gguf.Key(".rope.dimension_count"), " is ", rotary,
                         ", head_dim ", config["head_dim"].get<int64_t>(),
                         "; a part of a head is not supported");
}

// Sets the share of a head that turns: the reader multiplies and rounds down.
Status SetRotaryShare(const GgufView& gguf, Json& config) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t rotary, RotaryDim(gguf, config));
  const auto head_dim = config["head_dim"].get<double>();
  double share = static_cast<double>(rotary) / head_dim;
  if (static_cast<int64_t>(head_dim * share) < rotary) {
    share = std::nextafter(share, std::numeric_limits<double>::infinity());
  }
  config["partial_rotary_factor"] = share;
  return OkStatus();
}

// Checks what is 1, or absent, where a family's mixture is fixed.
Status CheckPlainMixture(const GgufView& gguf) {
  SLUICE_RETURN_IF_ERROR(MustBe(gguf, ".expert_weights_scale", 1.0, 0.0));
  return MustBe(gguf, ".expert_group_count", 1.0, 0.0);
}

// Sets the window of every layer.
Status SetWindow(const GgufView& gguf, Json& config) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t window, WindowOf(gguf, 0));
  config["sliding_window"] = window > 0 ? Json(window) : Json();
  return OkStatus();
}

// Sets the window and the layers that have it.
Status SetWindows(const GgufView& gguf, int64_t absent, int64_t period,
                  Json& config) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t window, WindowOf(gguf, absent));
  const auto layers = config["num_hidden_layers"].get<int64_t>();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> windowed,
                          PatternOf(gguf, period, layers));
  config["sliding_window"] = window > 0 ? Json(window) : Json();
  Json& types = config["layer_types"] = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    const bool has = window > 0 && windowed[static_cast<size_t>(i)] != 0;
    types.push_back(has ? "sliding_attention" : "full_attention");
  }
  return OkStatus();
}

// Checks that layers with windows have the theta of the rest.
Status CheckOneTheta(const GgufView& gguf, const Json& config) {
  constexpr std::string_view kKey = ".rope.freq_base_swa";
  if (!gguf.Has(kKey)) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const double theta, gguf.Float(kKey));
  const auto all = config["rope_theta"].get<double>();
  if (theta == all) return OkStatus();
  return InvalidArgument(gguf.Key(kKey), " is ", theta,
                         ", supported for this architecture is freq_base ",
                         all);
}

// Sets the sizes that the experts' tensors have, where the file has no key.
void SetExpertSizes(const GgufView& gguf, Json& config) {
  const std::pair<const char*, const char*> sizes[] = {
      {"moe_intermediate_size", "blk.0.ffn_gate_exps.weight"},
      {"shared_expert_intermediate_size", "blk.0.ffn_gate_shexp.weight"}};
  for (const auto& [key, name] : sizes) {
    const LocatedTensor* tensor = gguf.FindTensor(name);
    if (!config[key].is_null() || tensor == nullptr) continue;
    const std::vector<int64_t>& shape = tensor->info.shape;
    if (shape.size() >= 2) config[key] = shape[shape.size() - 2];
  }
}

StatusOr<std::vector<int64_t>> IntsOfLayers(const GgufView& gguf,
                                            std::string_view key,
                                            int64_t layers) {
  if (auto list = gguf.metadata().Ints(gguf.Key(key)); list.ok()) {
    if (layers >= 0 && std::ssize(*list) >= layers) {
      list->resize(static_cast<size_t>(layers));
      return *std::move(list);
    }
    return InvalidArgument(gguf.Key(key), " has ", list->size(), " layers of ",
                           layers);
  }
  SLUICE_ASSIGN_OR_RETURN(const int64_t value, gguf.Int(key));
  if (layers < 0 || layers > kMostLayers) {
    return InvalidArgument(gguf.Key(".block_count"), " is ", layers,
                           ", limits 0 and ", kMostLayers);
  }
  return std::vector<int64_t>(static_cast<size_t>(layers), value);
}

StatusOr<int64_t> TheOneAboveZero(const GgufView& gguf, std::string_view key,
                                  const std::vector<int64_t>& ints) {
  int64_t found = 0;
  for (size_t layer = 0; layer < ints.size(); ++layer) {
    const int64_t value = ints[layer];
    if (value == 0 || value == found) continue;
    if (value < 0 || found > 0) {
      return InvalidArgument(gguf.Key(key), " is ", value, " for layer ", layer,
                             ", supported are 0 and one number above, ",
                             found > 0 ? Cat("here ", found) : "not below 0");
    }
    found = value;
  }
  return found;
}

Status DropLayersBehind(const GgufView& gguf, Json& config) {
  constexpr std::string_view kBehind = ".nextn_predict_layers";
  int64_t behind = 0;
  if (gguf.Has(kBehind)) {
    SLUICE_ASSIGN_OR_RETURN(behind, gguf.Int(kBehind));
  }
  const auto layers = config["num_hidden_layers"].get<int64_t>();
  if (behind < 0 || layers < behind) {
    return InvalidArgument(gguf.Key(kBehind), " is ", behind,
                           " of a block_count of ", layers);
  }
  config["num_hidden_layers"] = layers - behind;
  config["num_nextn_predict_layers"] = behind;
  return OkStatus();
}

}  // namespace sluice::gguf
