#ifndef SLUICE_COMMON_WEIGHTS_TEXT_PART_H_
#define SLUICE_COMMON_WEIGHTS_TEXT_PART_H_

#include "common/base/json_fwd.h"

namespace sluice::weights {

// Returns the config of the text part of a model that reads images or sound,
// too: its text_config, with the keys of tokens and of storage that stand
// around it. Any other config is returned as it is.
Json TextPartOf(const Json& config);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_TEXT_PART_H_
