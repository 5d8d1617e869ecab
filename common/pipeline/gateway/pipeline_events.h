#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_EVENTS_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_EVENTS_H_

#include <functional>
#include <optional>
#include <utility>

#include "common/base/catch_exceptions.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/concurrency/bounded_queue.h"

namespace sluice {

// Events from gRPC's threads and the engine's for the thread "pipeline". The
// streams' callbacks share it: it may outlive the assembler, which closes it.
// An event runs on the thread "pipeline" or not at all. Any thread.
class PipelineEvents {
 public:
  using Event = std::function<void()>;
  static constexpr size_t kMaxEvents = 8192;

  // Why a pipeline cannot go on; `thrown`: because of an exception.
  struct Break {
    Status why;
    bool thrown = false;
  };

  void Post(Event event) {
    const Status status = queue_.Push(std::move(event));
    if (status.code() == StatusCode::kResourceExhausted) {
      LogError("pipeline: an event is lost: ", Message(status));
    }
  }

  // Has the present pipeline built anew. Needs no memory.
  void BreakPipeline(Status why, bool thrown = false) {
    {
      MutexLock lock(mutex_);
      if (!break_.has_value()) break_ = Break{std::move(why), thrown};
    }
    // Without memory for the event the next tick finds it.
    (void)CatchExceptions("pipeline", [this] { Post([] {}); });
  }

  // Runs `work` at the edge of a gRPC thread. If an exception loses a message
  // or an end, this breaks the pipeline.
  template <typename Work>
  void Guard(Work&& work) {
    Status done = CatchExceptions("pipeline", std::forward<Work>(work));
    if (!done.ok()) BreakPipeline(std::move(done), true);
  }

  // The thread "pipeline" alone.
  std::optional<Event> Pop(TimePoint deadline) { return queue_.Pop(deadline); }
  std::optional<Break> TakeBreak() {
    MutexLock lock(mutex_);
    return std::exchange(break_, std::nullopt);
  }
  size_t size() const { return queue_.size(); }
  void Close() { queue_.Close(); }

 private:
  BoundedQueue<Event> queue_{kMaxEvents};
  Mutex mutex_;
  std::optional<Break> break_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_EVENTS_H_
