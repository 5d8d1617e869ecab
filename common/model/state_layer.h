#ifndef SLUICE_COMMON_MODEL_STATE_LAYER_H_
#define SLUICE_COMMON_MODEL_STATE_LAYER_H_

#include "common/model/decoder_layer.h"

namespace sluice {

// x += W_out mix(W_in before(n)): the layer's mixer with a state
// (kernels/state_mixer.h). `before`: none where n is normed.
void AddStateMixer(Backend& device, const StageLayer& layer,
                   const LayerActivations& a, DeviceMatrix n,
                   const NormSpec& before, DeviceMatrix x);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_STATE_LAYER_H_
