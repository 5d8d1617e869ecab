#ifndef SLUICE_SERVICES_CLI_MODEL_RATES_H_
#define SLUICE_SERVICES_CLI_MODEL_RATES_H_

#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"
#include "common/tools/measure/measure_rates.h"
#include "common/weights/model_file.h"

namespace sluice::cli {

// Returns what to measure for a model whose weights are computed with as `mode`
// says: products of its types, with matrices of the shape that most have.
measure::RateOptions RatesFor(const ModelConfig& config,
                              const weights::ModelFile& model,
                              WeightsMode mode);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_MODEL_RATES_H_
