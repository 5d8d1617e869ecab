#ifndef SLUICE_TESTS_NVML_FAKE_NVML_H_
#define SLUICE_TESTS_NVML_FAKE_NVML_H_

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sluice::testing {

// A GPU of fake_nvml.cc.
struct FakeGpu {
  explicit FakeGpu(std::string name) : id(std::move(name)) {}
  std::string id;
  std::atomic<uint64_t> used{0};
  uint64_t total = 0;
  unsigned busy = 0;  // per cent
  std::atomic<uint64_t> ecc_errors{0};
  std::atomic<bool> has_ecc{true};
  uint64_t events = 2 | 8;    // that it has: double-bit errors and XIDs
  FakeGpu* parent = nullptr;  // of a slice, which has no events itself
  unsigned instance = 0;      // of a slice
  // What calls about it give; 0: what they are asked for.
  std::atomic<int> result{0};
  std::atomic<uint64_t> registered{0};  // events that were asked for
  std::atomic<uint64_t> xid{0};         // told once, then 0
  unsigned xid_instance = 0xFFFFFFFF;   // whose: none's
};

// What a test tells the library that stands for NVML before it is used.
struct FakeNvml {
  std::vector<FakeGpu*> gpus;
  int init_result = 0;
  std::atomic<int> wait_result{0};  // of a wait for events; 0: what comes
  std::atomic<int> event_sets{0};
};

// Hands it to that library, by the library's function SluiceFakeNvml. Returns
// why this cannot be done; null if it is.
inline const char* TellFakeNvml(const char* library, FakeNvml* plan) {
  void* const loaded = ::dlopen(library, RTLD_NOW);
  void* const tell =
      loaded == nullptr ? nullptr : ::dlsym(loaded, "SluiceFakeNvml");
  if (tell == nullptr) return ::dlerror();
  reinterpret_cast<void (*)(FakeNvml*)>(tell)(plan);
  return nullptr;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_NVML_FAKE_NVML_H_
