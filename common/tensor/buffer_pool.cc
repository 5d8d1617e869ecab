#include "common/tensor/buffer_pool.h"

#include <utility>

namespace sluice {
namespace {

// For as long as the process: messages live in other statics, too.
BufferPool& MessagePool() {
  static const auto* const pool =
      new std::shared_ptr(BufferPool::Make(kKeptMessageBytes));
  return **pool;
}

}  // namespace

Buffer BufferPool::Take(size_t bytes) {
  if (bytes == 0) return Buffer();
  Buffer memory;
  {
    MutexLock lock(mutex_);
    auto best = kept_.end();
    for (auto at = kept_.begin(); at != kept_.end(); ++at) {
      const bool fits = at->size() >= bytes && at->size() / 2 < bytes;
      if (!fits) continue;
      // Of equal ones the latest: a cache may have it.
      if (best == kept_.end() || at->size() <= best->size()) best = at;
    }
    if (best != kept_.end()) {
      memory = std::move(*best);
      kept_.erase(best);
      kept_bytes_ -= memory.size();
    }
  }
  if (memory.empty()) memory = Buffer(bytes);
  return Buffer(std::move(memory), bytes, shared_from_this());
}

void BufferPool::Return(std::byte* data, size_t bytes) {
  Buffer memory = Buffer::Adopt(data, bytes);
  std::deque<Buffer> freed;  // behind the lock
  MutexLock lock(mutex_);
  if (bytes > most_bytes_) return freed.push_back(std::move(memory));
  while (kept_bytes_ + bytes > most_bytes_) {
    kept_bytes_ -= kept_.front().size();
    freed.push_back(std::move(kept_.front()));
    kept_.pop_front();
  }
  kept_bytes_ += bytes;
  kept_.push_back(std::move(memory));
}

void BufferPool::Clear() {
  std::deque<Buffer> freed;  // behind the lock
  MutexLock lock(mutex_);
  freed.swap(kept_);
  kept_bytes_ = 0;
}

Buffer MessageBuffer(size_t bytes) {
  constexpr size_t kPoolFrom = size_t{8} << 20;
  if (bytes < kPoolFrom) return Buffer(bytes, Buffer::Kept::kPass);
  return MessagePool().Take(bytes);
}

void FreeMessageMemory() { MessagePool().Clear(); }

size_t BufferPool::kept_bytes() const {
  MutexLock lock(mutex_);
  return kept_bytes_;
}

}  // namespace sluice
