#ifndef SLUICE_COMMON_MODEL_CONFIG_OPEN_MODEL_H_
#define SLUICE_COMMON_MODEL_CONFIG_OPEN_MODEL_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/weights/model_file.h"

namespace sluice {

// Opens a model as weights::OpenModel. A GGUF of a known architecture gets a
// config.json from its metadata and tensor names of the family's table
// (tensor_table.h), a model of distributed-llama from its header. Another GGUF
// gets the model_type "gguf ARCHITECTURE", which ParseModelConfig refuses by
// name.
StatusOr<std::unique_ptr<weights::ModelFile>> OpenModel(
    const std::string& path);

// A GGUF's tensors of divisors of RoPE's frequencies; of two for short and long
// contexts.
inline constexpr std::string_view kRopeDivisors = "rope_freqs.weight";
inline constexpr std::string_view kShortRopeDivisors =
    "rope_factors_short.weight";
inline constexpr std::string_view kLongRopeDivisors =
    "rope_factors_long.weight";

// Returns the config.json of an opened GGUF, whose tensors have their own
// names. `unread` gets the keys that are not read and not known to have no
// effect (config_report.h). INVALID_ARGUMENT names a key that is missing or not
// supported.
StatusOr<Json> ConfigOfGguf(const weights::ModelContents& contents,
                            std::vector<std::string>& unread);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_OPEN_MODEL_H_
