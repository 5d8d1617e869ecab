#ifndef SLUICE_TESTS_NVML_FAKE_NVML_H_
#define SLUICE_TESTS_NVML_FAKE_NVML_H_

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
  bool has_ecc = true;
  bool has_events = true;
  std::atomic<uint64_t> xid{0};  // told once, then 0
};

// What a test tells the library that stands for NVML, by its function
// SluiceFakeNvml, before it is used.
struct FakeNvml {
  std::vector<FakeGpu*> gpus;
  int init_result = 0;
  std::atomic<int> event_sets{0};
};

using TellFakeNvml = void(FakeNvml* plan);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_NVML_FAKE_NVML_H_
