#ifndef SLUICE_COMMON_MODEL_GPU_SUPPORT_H_
#define SLUICE_COMMON_MODEL_GPU_SUPPORT_H_

#include "common/base/status.h"
#include "common/model_config/model_config.h"

namespace sluice {

// UNIMPLEMENTED, with the layer, the mechanism and what to do, for a model that
// the kernels for GPUs do not compute yet.
Status CheckGpuHas(const ModelConfig& config);
// The same of the experts alone, for a host that has nothing else.
Status CheckGpuHasExperts(const ModelConfig& config);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_GPU_SUPPORT_H_
