#ifndef SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SUPPORT_BYTE_BUFFER_H_
#define SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SUPPORT_BYTE_BUFFER_H_

#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <cstddef>
#include <vector>

namespace grpc {

class ByteBuffer {
 public:
  ByteBuffer() = default;
  ByteBuffer(const Slice* slices, size_t count)
      : slices_(slices, slices + count) {}
  Status Dump(std::vector<Slice>* slices) const {
    *slices = slices_;
    return Status();
  }
  size_t Length() const {
    size_t length = 0;
    for (const Slice& slice : slices_) length += slice.size();
    return length;
  }
  void Clear() { slices_.clear(); }

 private:
  std::vector<Slice> slices_;
};

}  // namespace grpc

#endif  // SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SUPPORT_BYTE_BUFFER_H_
