#ifndef SLUICE_COMMON_RPC_SEND_QUEUE_H_
#define SLUICE_COMMON_RPC_SEND_QUEUE_H_

#include <cstddef>
#include <deque>
#include <utility>

#include "common/base/mutex.h"

namespace sluice::rpc {

// The outgoing half of a stream: a bounded queue, at most one write under way,
// and one end. The caller follows Decide() after every change. Any thread.
template <typename Message>
class SendQueue {
 public:
  enum class Next {
    kNothing,
    kWrite,  // start writing current(), then report Written
    kEnd,    // once: no write is under way and none follows
  };

  explicit SendQueue(size_t capacity) : capacity_(capacity) {}

  // Returns false, and drops the message, if the queue is full or closed.
  bool Push(Message message) {
    MutexLock lock(mutex_);
    if (closed_ || queue_.size() >= capacity_) return false;
    queue_.push_back(std::move(message));
    return true;
  }
  // Takes no more messages; queued ones are still written.
  void Close() {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  // Takes no more messages, and drops the waiting ones.
  void Abort() {
    MutexLock lock(mutex_);
    closed_ = true;
    queue_.clear();
  }
  // Reports the end of the write from Decide().
  void Written(bool ok) {
    MutexLock lock(mutex_);
    writing_ = false;
    current_ = Message();
    if (ok) return;
    closed_ = true;
    queue_.clear();
  }
  Next Decide() {
    MutexLock lock(mutex_);
    if (writing_ || ended_) return Next::kNothing;
    if (!queue_.empty()) {
      current_ = std::move(queue_.front());
      queue_.pop_front();
      writing_ = true;
      return Next::kWrite;
    }
    if (!closed_) return Next::kNothing;
    ended_ = true;
    return Next::kEnd;
  }
  // Stable from kWrite until Written.
  const Message* current() const { return &current_; }

 private:
  const size_t capacity_;
  mutable Mutex mutex_;
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  Message current_;  // owned by the write under way
};

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_SEND_QUEUE_H_
