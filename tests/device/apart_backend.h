#ifndef SLUICE_TESTS_DEVICE_APART_BACKEND_H_
#define SLUICE_TESTS_DEVICE_APART_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/device/make_backends.h"

namespace sluice::testing {

// Backends that keep to the letter of Backend what a CPU would forgive, over
// a CPU's arithmetic:
//   - device memory is apart: an address on the device is that of a page that
//     nobody may read or write, so that a host that follows it dies; memory is
//     full of NaN until something is written; a view that leaves its
//     allocation ends the test;
//   - operations are late: they run in order at EndStep or Sync, not before.
//     Until then host memory that they fill is full of NaN, and answers are
//     INTERNAL;
//   - outside a step only copies are allowed.
StatusOr<std::vector<std::unique_ptr<Backend>>> MakeApartBackends(
    const BackendOptions& options);

// Which backends a test runs over.
enum class Device { kCpu, kApart };

inline BackendFactory FactoryOf(Device device) {
  return device == Device::kApart ? MakeApartBackends : MakeBackends;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_DEVICE_APART_BACKEND_H_
