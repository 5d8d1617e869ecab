#include "services/cli/model_rates.h"

#include "common/placement/step_cost.h"

namespace sluice::cli {
namespace {

// Returns the shape of most weights of most layers.
measure::MatrixShape UsualShape(const ModelConfig& config) {
  const LayerConfig& layer = config.layers.back();
  return {layer.is_sparse() ? layer.moe.intermediate_size
                            : layer.mlp.intermediate_size,
          config.hidden_size};
}

}  // namespace

measure::RateOptions RatesFor(const ModelConfig& config,
                              const weights::ModelFile& model,
                              WeightsMode mode) {
  measure::RateOptions rates;
  rates.types = placement::TypesIn(placement::ProductsOf(config, model, mode));
  rates.shape = UsualShape(config);
  return rates;
}

}  // namespace sluice::cli
