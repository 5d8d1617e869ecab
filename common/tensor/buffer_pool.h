#ifndef SLUICE_COMMON_TENSOR_BUFFER_POOL_H_
#define SLUICE_COMMON_TENSOR_BUFFER_POOL_H_

#include <cstddef>
#include <deque>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/tensor/buffer.h"

namespace sluice {

// Large buffers that come and go: memory is used again, whose pages the system
// need not clear. Any thread may call it; buffers keep the pool.
class BufferPool final : public BufferOwner,
                         public std::enable_shared_from_this<BufferPool> {
 public:
  // Keeps at most `most_bytes` that no buffer has.
  static std::shared_ptr<BufferPool> Make(size_t most_bytes) {
    return std::shared_ptr<BufferPool>(new BufferPool(most_bytes));
  }

  // Returns a buffer of `bytes`, uninitialised, in the least kept memory that
  // has them and is not twice as large, or in new memory.
  Buffer Take(size_t bytes);
  // What was returned first makes room.
  void Return(std::byte* data, size_t bytes) override;
  // Frees the memory that no buffer has.
  void Clear();
  // Of memory that no buffer has.
  size_t kept_bytes() const;

 private:
  explicit BufferPool(size_t most_bytes) : most_bytes_(most_bytes) {}

  const size_t most_bytes_;
  mutable Mutex mutex_;
  std::deque<Buffer> kept_ ABSL_GUARDED_BY(mutex_);  // as they were returned
  size_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// So much memory of large messages stays with the process.
inline constexpr size_t kKeptMessageBytes = size_t{256} << 20;

// Returns uninitialised memory for a message of `bytes`. A message of 8 MiB or
// more gets the memory of an earlier one, which a pool of the process keeps; a
// smaller one gets the heap's, which the heap keeps. glibc maps and unmaps a
// block of 32 MiB or more each time, and to clear its pages takes several times
// as long as to copy the bytes.
Buffer MessageBuffer(size_t bytes);
// Frees what no message has, before a process measures its memory anew.
void FreeMessageMemory();

}  // namespace sluice

#endif  // SLUICE_COMMON_TENSOR_BUFFER_POOL_H_
