#ifndef SLUICE_KERNELS_CUDA_SHARED_SAMPLING_FINISH_H_
#define SLUICE_KERNELS_CUDA_SHARED_SAMPLING_FINISH_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/shared/sampling_rows.h"

namespace sluice::kernels::cuda {

// Steps 5 to 9 and the log probabilities, from the maxima and the sums.
void FinishSampling(Stream stream, const SampleArgs& args, int64_t rows);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_SAMPLING_FINISH_H_
