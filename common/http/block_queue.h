#ifndef SLUICE_COMMON_HTTP_BLOCK_QUEUE_H_
#define SLUICE_COMMON_HTTP_BLOCK_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/exception_counts.h"
#include "common/http/connection_context.h"
#include "common/http/exchange.h"

namespace sluice::http {

// An answer's bytes that its connection has not written yet, in blocks. They
// count in the server's backlog and in the memory of all answers. On the
// exchange's loop.
class BlockQueue {
 public:
  struct Block {
    std::string bytes;
    int64_t queued_ns = 0;  // if observed
  };

  // `holder` is the answer; it and `context` outlive the queue.
  BlockQueue(const ConnectionContext& context, AnswerMemory::Holder& holder)
      : context_(context), holder_(holder) {}

  bool is_empty() const { return blocks_.empty(); }
  size_t backlog() const { return backlog_; }

  // Tells `observer` of every block from now on. Before the first one.
  void Observe(std::shared_ptr<WriteObserver> observer) {
    observer_ = std::move(observer);
  }
  bool is_observed() const { return observer_ != nullptr; }

  // Adds a block at the end. False: this answer is the one to be cut.
  bool Push(std::string bytes) {
    const size_t size = bytes.size();
    blocks_.push_back({std::move(bytes), is_observed() ? MonotonicNanos() : 0});
    return Count(static_cast<long long>(size));
  }
  // Returns the first block, which still counts. Needs a block.
  Block Take() {
    Block block = std::move(blocks_.front());
    blocks_.pop_front();
    return block;
  }
  // Counts `bytes` of taken blocks as written.
  void Written(size_t bytes) { Count(-static_cast<long long>(bytes)); }
  void Clear() {
    blocks_.clear();
    Written(backlog_);
  }

  // Tells the observer that a block is written, which was queued at
  // `queued_ns`.
  void TellWritten(int64_t queued_ns, const TraceSpan& write) {
    if (observer_ == nullptr) return;
    const Status told = CatchAndCount("http_observer", [&] {
      observer_->OnWritten({queued_ns, write.start_ns}, write);
    });
    if (!told.ok()) observer_ = nullptr;
  }
  // Tells the observer, for the last time, that no more is written.
  void TellClosed(const AnswerEnd& end) {
    if (const auto observer = std::exchange(observer_, nullptr)) {
      observer->OnClosed(end);
    }
  }

 private:
  // Adds `bytes`, which may be negative. Returns AnswerMemory's answer.
  bool Count(long long bytes) {
    backlog_ += static_cast<size_t>(bytes);
    context_.stats.backlog_bytes += bytes;
    return context_.answers.Change(holder_, bytes);
  }

  const ConnectionContext& context_;
  AnswerMemory::Holder& holder_;
  std::deque<Block> blocks_;
  size_t backlog_ = 0;  // bytes
  std::shared_ptr<WriteObserver> observer_;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_BLOCK_QUEUE_H_
