#ifndef SLUICE_COMMON_DEVICE_HOST_MIRROR_H_
#define SLUICE_COMMON_DEVICE_HOST_MIRROR_H_

#include "common/device/backend.h"
#include "common/tensor/buffer.h"
#include "kernels/views.h"

namespace sluice {

// The host's view of a device matrix: the same memory if the backend shares the
// host's, else a copy. Used by the backend's thread.
class HostMirror {
 public:
  HostMirror() = default;
  // Needs `device` with the most rows of any step; its memory and the backend
  // must outlive the mirror.
  HostMirror(Backend* backend, DeviceMatrix device)
      : backend_(backend), device_(device) {
    if (backend->info().shares_host_memory) return;
    copy_ = Buffer(BytesOf(device.type) * device.rows * device.cols);
  }

  // Enqueues a copy of the first `rows` rows to the host; see Backend::Sync.
  void Fetch(int64_t rows) {
    if (!copy_.empty()) backend_->CopyOut(device_.Rows(0, rows), copy_.data());
  }
  // Enqueues a copy of the host's first `rows` rows to the device.
  void Push(int64_t rows) {
    if (!copy_.empty()) backend_->CopyIn(copy_.data(), device_.Rows(0, rows));
  }

  template <typename T>
  T* as() {
    return copy_.empty() ? static_cast<T*>(device_.data) : copy_.as<T>();
  }
  // The first rows of an F32 matrix.
  kernels::Matrix Rows(int64_t rows) {
    return {as<float>(), rows, device_.cols, device_.cols};
  }

 private:
  Backend* backend_ = nullptr;
  DeviceMatrix device_;
  Buffer copy_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_HOST_MIRROR_H_
