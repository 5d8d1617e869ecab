#include "common/nvml/nvml_library.h"

#include <dlfcn.h>

namespace sluice {

StatusOr<NvmlLibrary> NvmlLibrary::Load(const std::string& name) {
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return NotFound(::dlerror());
  NvmlLibrary nvml;
  const char* missing = nullptr;
  const auto find = [&]<typename Function>(const char* call,
                                           Function*& function) {
    function = reinterpret_cast<Function*>(::dlsym(library, call));
    if (function == nullptr) missing = call;
  };
  find("nvmlInit_v2", nvml.init);
  find("nvmlDeviceGetHandleByUUID", nvml.device_by_uuid);
  find("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", nvml.parent_of_slice);
  find("nvmlDeviceGetGpuInstanceId", nvml.instance_of_slice);
  find("nvmlDeviceGetMemoryInfo", nvml.memory_info);
  find("nvmlDeviceGetUtilizationRates", nvml.utilization);
  find("nvmlDeviceGetTotalEccErrors", nvml.total_ecc_errors);
  find("nvmlEventSetCreate", nvml.event_set_create);
  find("nvmlEventSetFree", nvml.event_set_free);
  find("nvmlDeviceGetSupportedEventTypes", nvml.supported_events);
  find("nvmlDeviceRegisterEvents", nvml.register_events);
  find("nvmlEventSetWait_v2", nvml.event_set_wait);
  find("nvmlErrorString", nvml.error_string);
  if (missing != nullptr) {
    return FailedPrecondition(name, " has no ", missing);
  }
  if (const int result = nvml.init(); result != kSuccess) {
    return FailedPrecondition(name, ": ", nvml.error_string(result));
  }
  return nvml;
}

}  // namespace sluice
