#ifndef SLUICE_SERVICES_CLI_MODEL_FACTS_H_
#define SLUICE_SERVICES_CLI_MODEL_FACTS_H_

#include <string>

#include "common/model_config/model_config.h"

namespace sluice::cli {

// Returns how a model's layers are computed, for people: lines of a name and a
// value for attention, windows, RoPE, norms, MLPs and experts, one for each
// value that some layers have, and what multiplies or caps embeddings and
// logits.
std::string ModelFacts(const ModelConfig& config);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_MODEL_FACTS_H_
