#ifndef SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SUPPORT_SLICE_H_
#define SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SUPPORT_SLICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace grpc {

// Bytes that copies share.
class Slice {
 public:
  Slice() = default;
  explicit Slice(std::string bytes) {
    auto kept = std::make_shared<std::string>(std::move(bytes));
    size_ = kept->size();
    bytes_ = std::shared_ptr<const uint8_t>(
        kept, reinterpret_cast<const uint8_t*>(kept->data()));
  }
  Slice(void* bytes, size_t size, void (*destroy)(void*), void* user)
      : bytes_(static_cast<const uint8_t*>(bytes),
               [destroy, user](const uint8_t*) { destroy(user); }),
        size_(size) {}
  const uint8_t* begin() const { return bytes_.get(); }
  size_t size() const { return size_; }

 private:
  std::shared_ptr<const uint8_t> bytes_;
  size_t size_ = 0;
};

}  // namespace grpc

#endif  // SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SUPPORT_SLICE_H_
