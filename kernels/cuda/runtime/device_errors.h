#ifndef SLUICE_KERNELS_CUDA_RUNTIME_DEVICE_ERRORS_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_DEVICE_ERRORS_H_

#include <span>
#include <string>

namespace sluice::kernels::cuda {

// What a runtime says of devices that it cannot open; empty: nothing is wrong.
// Apart from CUDA's calls, so that it can be tested without a GPU.

// Of a driver that runs CUDA `version` (13000 is 13.0; 0: there is none), which
// is older than this build's.
std::string DriverError(int version);
// Of device `index`, where the process sees `count` devices.
std::string IndexError(int index, int count);
// Of a device of architecture sm_MAJORMINOR.
std::string ArchitectureError(int index, const std::string& name, int major,
                              int minor);

// Returns a device's id of its sixteen bytes, as NVIDIA's tools write them:
// GPU-00112233-4455-6677-8899-aabbccddeeff.
std::string IdOf(std::span<const char, 16> uuid);
// Returns the index of the one of `ids` whose digits begin as those of `id`,
// which begins with GPU- or MIG-; -1 with `error` set if there is none, or
// several.
int FindId(std::span<const std::string> ids, const std::string& id,
           std::string* error);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_DEVICE_ERRORS_H_
