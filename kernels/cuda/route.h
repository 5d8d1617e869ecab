#ifndef SLUICE_KERNELS_CUDA_ROUTE_H_
#define SLUICE_KERNELS_CUDA_ROUTE_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/route.h"

namespace sluice::kernels::cuda {

// route.h's Route on a stream, with its contract and its bits. The rule is the
// host's, all other memory the device's.
void Route(Stream stream, ConstMatrix logits, const RouterRule& rule,
           const float* correction, int32_t* ids, float* weights);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_ROUTE_H_
