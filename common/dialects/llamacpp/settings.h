#ifndef SLUICE_COMMON_DIALECTS_LLAMACPP_SETTINGS_H_
#define SLUICE_COMMON_DIALECTS_LLAMACPP_SETTINGS_H_

#include <cstdint>

#include "common/base/json_fwd.h"
#include "common/core/sampling_params.h"
#include "common/dialects/llamacpp/parse.h"

namespace sluice::llamacpp {

// Returns the settings of tokens as llama.cpp tells them, in /props and as
// `generation_settings`. `sampling` is resolved; `body` has the rest. Samplers
// that are not built have the values that switch them off. `n_ctx`: positions
// of a sequence.
Json SettingsJson(const SamplingParams& sampling, const CompletionBody& body,
                  int64_t n_ctx);

}  // namespace sluice::llamacpp

#endif  // SLUICE_COMMON_DIALECTS_LLAMACPP_SETTINGS_H_
