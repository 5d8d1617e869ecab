#include <cstdlib>

#include "common/device/device_choice.h"
#include "tests/device/cuda/device_backends.h"

namespace sluice::testing {
namespace {

std::string DeviceName() {
  const char* const name = std::getenv("SLUICE_TEST_DEVICE");
  return name == nullptr ? "cuda:0" : name;
}

}  // namespace

BackendFactory DeviceBackends(Turns, Numerics numerics) {
  return [numerics](BackendOptions options) {
    options.device = DeviceName();
    options.numerics = numerics == Numerics::kFast ? "fast" : "canonical";
    return MakeBackends(options);
  };
}

std::string NcclToTest(FakeNccl*) {
  const char* const name = std::getenv("SLUICE_TEST_NCCL");
  return name == nullptr ? "libnccl.so.2" : name;
}

std::string NoDevice() { return Message(CheckDevice(DeviceName())); }

}  // namespace sluice::testing
