#ifndef SLUICE_COMMON_CONCURRENCY_BOUNDED_QUEUE_H_
#define SLUICE_COMMON_CONCURRENCY_BOUNDED_QUEUE_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace sluice {

// A FIFO between two loops. A full queue refuses an item, so a push never
// waits: the caller does admission control. Any thread may call all methods.
template <typename T>
class BoundedQueue {
 public:
  // Needs a `capacity` of at least 1.
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {
    SLUICE_CHECK(capacity > 0);
  }
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // RESOURCE_EXHAUSTED when full, UNAVAILABLE when closed. Moves from `item`
  // only on success.
  Status Push(T&& item) {
    {
      MutexLock lock(mutex_);
      if (closed_) return Unavailable("queue is closed");
      if (items_.size() >= capacity_) {
        return ResourceExhausted("queue is full: limit ", capacity_);
      }
      items_.push_back(std::move(item));
    }
    not_empty_.NotifyOne();
    return OkStatus();
  }
  Status Push(const T& item) {
    T copy(item);
    return Push(std::move(copy));
  }

  // Waits for an item. Nothing: the queue is closed and empty.
  std::optional<T> Pop() {
    MutexLock lock(mutex_);
    while (items_.empty() && !closed_) not_empty_.Wait(mutex_);
    return TakeFront();
  }

  // Waits for an item, at most until `deadline`. Nothing: the deadline passed,
  // or the queue is closed and empty.
  std::optional<T> Pop(TimePoint deadline) {
    MutexLock lock(mutex_);
    while (items_.empty() && !closed_) {
      if (!not_empty_.WaitUntil(mutex_, deadline)) break;
    }
    return TakeFront();
  }

  std::optional<T> TryPop() {
    MutexLock lock(mutex_);
    return TakeFront();
  }

  // Takes no more items; those in the queue can still be popped. Wakes every
  // waiting Pop. Idempotent.
  void Close() {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    not_empty_.NotifyAll();
  }

  bool closed() const {
    MutexLock lock(mutex_);
    return closed_;
  }
  size_t size() const {
    MutexLock lock(mutex_);
    return items_.size();
  }
  size_t capacity() const { return capacity_; }

 private:
  std::optional<T> TakeFront() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar not_empty_;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CONCURRENCY_BOUNDED_QUEUE_H_
