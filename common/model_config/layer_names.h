#ifndef SLUICE_COMMON_MODEL_CONFIG_LAYER_NAMES_H_
#define SLUICE_COMMON_MODEL_CONFIG_LAYER_NAMES_H_

#include <charconv>
#include <cstdint>
#include <string_view>

namespace sluice {

// What checkpoints put before a layer's number.
inline constexpr std::string_view kLayerPrefix = "model.layers.";

// A tensor's layer and, in `rest`, what follows its number and dot: 3 and
// "mlp.gate.weight" of "model.layers.3.mlp.gate.weight". -1 for other tensors.
inline int32_t LayerOfTensor(std::string_view name, std::string_view& rest) {
  if (!name.starts_with(kLayerPrefix)) return -1;
  name.remove_prefix(kLayerPrefix.size());
  int32_t layer = -1;
  const auto read =
      std::from_chars(name.data(), name.data() + name.size(), layer);
  if (read.ec != std::errc()) return -1;
  rest = name.substr(static_cast<size_t>(read.ptr - name.data()));
  if (rest.starts_with('.')) rest.remove_prefix(1);
  return layer;
}

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_LAYER_NAMES_H_
