#ifndef SLUICE_COMMON_WEIGHTS_GGUF_ENDS_H_
#define SLUICE_COMMON_WEIGHTS_GGUF_ENDS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/weights/gguf_file.h"

namespace sluice::weights {

// Whether a control token of this text ends a turn in released models.
bool EndsATurn(std::string_view text);

// Returns the ids of a GGUF's control tokens whose texts end a turn, by rising
// id. Files name one or two of them by keys, and llama.cpp ends an answer at
// all of them.
std::vector<int64_t> EndsByText(const GgufMetadata& metadata);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_GGUF_ENDS_H_
