#ifndef SLUICE_COMMON_DEVICE_HOST_MIRROR_H_
#define SLUICE_COMMON_DEVICE_HOST_MIRROR_H_

#include "common/device/backend.h"
#include "common/tensor/buffer.h"
#include "kernels/views.h"

namespace sluice {

// A device matrix as the host sees it: the same memory if the backend shares
// the host's, else a copy. Used by the backend's thread.
class HostMirror {
 public:
  HostMirror() = default;
  // `device` with as many rows as there will ever be; its memory and the
  // backend must outlive the mirror.
  HostMirror(Backend* backend, DeviceMatrix device)
      : backend_(backend), device_(device) {
    if (backend->info().shares_host_memory) return;
    copy_ = Buffer(BytesOf(device.type) * device.rows * device.cols);
  }

  // Enqueues that the host sees the first `rows` rows, once the backend has
  // done so; see Backend::Sync.
  void Fetch(int64_t rows) {
    if (!copy_.empty()) backend_->CopyOut(device_.Rows(0, rows), copy_.data());
  }
  // Enqueues that the device sees the first `rows` rows as the host left them.
  void Push(int64_t rows) {
    if (!copy_.empty()) backend_->CopyIn(copy_.data(), device_.Rows(0, rows));
  }

  template <typename T>
  T* as() {
    return copy_.empty() ? static_cast<T*>(device_.data) : copy_.as<T>();
  }
  // Of an F32 matrix.
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
