#ifndef SLUICE_COMMON_TENSOR_BUFFER_H_
#define SLUICE_COMMON_TENSOR_BUFFER_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "common/base/check.h"

namespace sluice {

// Takes back the memory of buffers: BufferPool. Any thread may call it.
class BufferOwner {
 public:
  virtual ~BufferOwner() = default;
  // `data` has `bytes`, for std::free.
  virtual void Return(std::byte* data, size_t bytes) = 0;
};

// Bytes of host memory, aligned to 64, uninitialised, moved and never copied.
class Buffer {
 public:
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kHugePage = size_t{2} << 20;

  // How long the bytes are kept. kStay of kHugePage bytes or more asks the
  // system for huge pages: weights and KV are read in long streams, which small
  // pages cut at every 4 KiB. kPass is for messages: the heap has such memory
  // from the message before, and the system clears no page for it.
  enum class Kept { kStay, kPass };

  Buffer() = default;
  // Throws std::bad_alloc. Callers check sizes from outside against negotiated
  // limits first.
  explicit Buffer(size_t bytes, Kept kept = Kept::kStay) : size_(bytes) {
    if (bytes == 0) return;
    const bool huge = kept == Kept::kStay && bytes >= kHugePage;
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* memory = nullptr;
    if (posix_memalign(&memory, huge ? kHugePage : kAlignment, rounded) != 0) {
      throw std::bad_alloc();
    }
    data_.reset(static_cast<std::byte*>(memory));
    // Whole pages alone: the rest of one would be memory without use. A system
    // without huge pages refuses, which changes nothing.
    if (huge) madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
  // Memory of `bytes` that posix_memalign gave.
  static Buffer Adopt(std::byte* data, size_t bytes) {
    Buffer buffer;
    buffer.data_.reset(data);
    buffer.size_ = bytes;
    return buffer;
  }
  // The first `bytes` of the memory of `whole`, which goes to `owner` at last.
  Buffer(Buffer whole, size_t bytes, std::shared_ptr<BufferOwner> owner)
      : size_(bytes) {
    const size_t all = whole.size();
    SLUICE_CHECK(bytes <= all);
    data_ = {whole.Release(), Free{std::move(owner), all}};
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  // Gives the bytes to the caller; std::free takes them.
  std::byte* Release() {
    size_ = 0;
    return data_.release();
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* p) const {
      if (owner == nullptr) return std::free(p);
      owner->Return(p, bytes);
    }
    std::shared_ptr<BufferOwner> owner;
    size_t bytes;  // of the memory, where it has an owner
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TENSOR_BUFFER_H_
