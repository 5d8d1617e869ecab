#ifndef SLUICE_COMMON_MODEL_LATENT_ATTENTION_H_
#define SLUICE_COMMON_MODEL_LATENT_ATTENTION_H_

#include "common/device/backend.h"
#include "common/model/decoder_layer.h"

namespace sluice {

// Latent attention (MLA) of one layer, in the form that reads the cache's rows
// as they are, for prompts as for single tokens, so that one order of sums
// holds for all chunks. A row is [rope(k); c]: with a head's key W_k c and
// value W_v c, q . W_k c is (W_k^T q) . c, and a sum of values is W_v times the
// sum of rows. heads [T, N w] = the heads' outputs for norm(x); `norm` may be
// none.
void RunLatentAttention(Backend& device, const StageLayer& layer,
                        const LayerActivations& a, DeviceMatrix x,
                        const NormSpec& norm, DeviceMatrix heads);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_LATENT_ATTENTION_H_
