#ifndef SLUICE_TESTS_DEVICE_CUDA_DEVICE_BACKENDS_H_
#define SLUICE_TESTS_DEVICE_CUDA_DEVICE_BACKENDS_H_

#include <string>

#include "common/device/device_choice.h"
#include "common/device/make_backends.h"
#include "tests/device/cuda/fake_nccl.h"

namespace sluice::testing {

// In which order a device's threads and blocks take their turns, where the
// test may choose.
enum class Turns { kForward, kBackward };

// Backends over kernels/cuda, whose ranks are virtual: on machines that stand
// for GPUs (tests/cuda_machine), where a fault of a kernel ends the test;
// in a build with SLUICE_CUDA on the GPU that $SLUICE_TEST_DEVICE names, cuda:0
// if it is not set.
BackendFactory DeviceBackends(Turns turns = Turns::kForward,
                              Numerics numerics = Numerics::kCanonical);

// Returns the library to load as NCCL: one that stands for it, and is told
// `plan`; in a build with SLUICE_CUDA what $SLUICE_TEST_NCCL names,
// libnccl.so.2 if it is not set.
std::string NcclToTest(FakeNccl* plan);

// Why there are none; empty if there are.
std::string NoDevice();

}  // namespace sluice::testing

// Ends a test that needs DeviceBackends as skipped where there are none.
#define SLUICE_REQUIRE_DEVICE()                                            \
  if (const std::string why = ::sluice::testing::NoDevice(); !why.empty()) \
  GTEST_SKIP() << why

#endif  // SLUICE_TESTS_DEVICE_CUDA_DEVICE_BACKENDS_H_
