#ifndef SLUICE_COMMON_MODEL_CONFIG_CONFIG_DIFFERENCE_H_
#define SLUICE_COMMON_MODEL_CONFIG_CONFIG_DIFFERENCE_H_

#include <string>

#include "common/model_config/model_config.h"

namespace sluice {

// Returns what differs between the configs of a model and of a file that a
// converter makes of it, but for token ids and frequencies of RoPE: "layer 3's
// attention window". Empty: nothing.
std::string DifferenceOf(const ModelConfig& wanted, const ModelConfig& made);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_CONFIG_DIFFERENCE_H_
