// A library with the calls of NVML that Sluice uses (NvmlLibrary), for GPUs
// that a test makes up: see fake_nvml.h.
#include "tests/nvml/fake_nvml.h"

#include <chrono>
#include <thread>

#include "common/nvml/nvml_library.h"

using sluice::NvmlLibrary;
using sluice::testing::FakeGpu;
using sluice::testing::FakeNvml;

namespace {

constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
FakeNvml* plan = nullptr;

FakeGpu& GpuOf(void* device) { return *static_cast<FakeGpu*>(device); }

}  // namespace

extern "C" {

void SluiceFakeNvml(FakeNvml* told) { plan = told; }

int nvmlInit_v2() { return plan->init_result; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  for (FakeGpu* gpu : plan->gpus) {
    if (gpu->id != uuid) continue;
    *device = gpu;
    return 0;
  }
  return kNotFound;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* slice, void** parent) {
  *parent = GpuOf(slice).parent;
  return *parent != nullptr ? 0 : kInvalidArgument;
}

int nvmlDeviceGetGpuInstanceId(void* slice, unsigned* instance) {
  *instance = GpuOf(slice).instance;
  return 0;
}

int nvmlDeviceGetMemoryInfo(void* device, NvmlLibrary::Memory* memory) {
  const FakeGpu& gpu = GpuOf(device);
  if (gpu.result != 0) return gpu.result;
  *memory = {gpu.total, gpu.total - gpu.used, gpu.used};
  return 0;
}

int nvmlDeviceGetUtilizationRates(void* device,
                                  NvmlLibrary::Utilization* rates) {
  const FakeGpu& gpu = GpuOf(device);
  *rates = {gpu.busy, 0};
  return gpu.result;
}

int nvmlDeviceGetTotalEccErrors(void* device, int kind, int counter,
                                unsigned long long* count) {
  const FakeGpu& gpu = GpuOf(device);
  if (gpu.result != 0) return gpu.result;
  if (!gpu.has_ecc || kind != 1 || counter != 0) return kNotSupported;
  *count = gpu.ecc_errors;
  return 0;
}

int nvmlEventSetCreate(void** set) {
  ++plan->event_sets;
  *set = plan;
  return 0;
}

int nvmlEventSetFree(void*) {
  --plan->event_sets;
  return 0;
}

int nvmlDeviceGetSupportedEventTypes(void* device, unsigned long long* types) {
  *types = GpuOf(device).parent == nullptr ? GpuOf(device).events : 0;
  return 0;
}

int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void*) {
  FakeGpu& gpu = GpuOf(device);
  const uint64_t has = gpu.parent == nullptr ? gpu.events : 0;
  if (types == 0 || (types & ~has) != 0) return kNotSupported;
  gpu.registered = types;
  return 0;
}

int nvmlEventSetWait_v2(void*, NvmlLibrary::Event* event,
                        unsigned int milliseconds) {
  if (plan->wait_result != 0) return plan->wait_result;
  for (unsigned waited = 0; waited < milliseconds; waited += 5) {
    for (FakeGpu* gpu : plan->gpus) {
      if ((gpu->registered & NvmlLibrary::kXidError) == 0) continue;
      const uint64_t xid = gpu->xid.exchange(0);
      if (xid == 0) continue;
      *event = {gpu, NvmlLibrary::kXidError, xid, gpu->xid_instance, 0};
      return 0;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return NvmlLibrary::kTimeout;
}

const char* nvmlErrorString(int result) {
  if (result == NvmlLibrary::kGpuIsLost) return "GPU is lost";
  if (result == NvmlLibrary::kResetRequired) return "GPU requires reset";
  return result == kNotSupported ? "Not Supported" : "Not Found";
}

}  // extern "C"
