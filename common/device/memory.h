#ifndef SLUICE_COMMON_DEVICE_MEMORY_H_
#define SLUICE_COMMON_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <utility>

namespace sluice {

class Backend;

// The type of a device matrix's elements. A CPU has F32, INT32 for expert ids
// and BF16 and Q8_0 for keys and values; another device may keep hidden states,
// logits and partial sums in less.
enum class ElementType : uint8_t { kF32, kInt32, kBf16, kQ8_0 };

// Of an element; Q8_0 has none of its own.
inline constexpr size_t BytesOf(ElementType type) {
  return type == ElementType::kBf16 ? sizeof(uint16_t) : sizeof(float);
}
// Of keys or values; Q8_0 takes whole blocks of 32 elements.
inline constexpr size_t KvBytesOf(ElementType type, int64_t elements) {
  return type == ElementType::kQ8_0
             ? static_cast<size_t>(elements / 32 * 34)
             : BytesOf(type) * static_cast<size_t>(elements);
}

// Bytes of one backend's device, given back by the destructor; empty by
// default. data() is an address on the device: only the backend's operations
// read and write there. The backend must outlive the memory.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // `owner` frees the bytes; null: the caller owns them.
  DeviceMemory(Backend* owner, void* data, size_t bytes)
      : owner_(owner), data_(data), bytes_(bytes) {}
  ~DeviceMemory() { Release(); }
  DeviceMemory(DeviceMemory&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    Release();
    owner_ = std::exchange(other.owner_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void Release();

  Backend* owner_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// A view of a row-major matrix in device memory. `stride` is in elements. The
// host may compute addresses from `data` and must not read through it.
struct DeviceMatrix {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  ElementType type = ElementType::kF32;

  void* row(int64_t r) const {
    return static_cast<std::byte*>(data) + r * stride * BytesOf(type);
  }
  DeviceMatrix Rows(int64_t begin, int64_t count) const {
    return {row(begin), count, cols, stride, type};
  }
  DeviceMatrix Columns(int64_t begin, int64_t count) const {
    return {static_cast<std::byte*>(data) + begin * BytesOf(type), rows, count,
            stride, type};
  }
  // Returns the same memory as `count` packed columns, at most the matrix's.
  DeviceMatrix Packed(int64_t count) const {
    return {data, rows, count, count, type};
  }
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_MEMORY_H_
