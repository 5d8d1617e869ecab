#ifndef SLUICE_COMMON_CONCURRENCY_WORK_QUEUE_H_
#define SLUICE_COMMON_CONCURRENCY_WORK_QUEUE_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/concurrency/bounded_queue.h"
#include "common/concurrency/named_thread.h"

namespace sluice {

// A few threads that run functions which would block an event loop:
// tokenizing, rendering a template. Not for kernels. Functions start in the
// order of Push; with one thread they also end in it. One that throws is logged
// and ends alone.
class WorkQueue {
 public:
  // Threads "name-0", "name-1", ...; at most `max_queued` functions wait.
  // Both numbers are at least 1.
  WorkQueue(const std::string& name, int num_threads, size_t max_queued);
  ~WorkQueue();  // Stop()

  // Any thread. RESOURCE_EXHAUSTED when full, UNAVAILABLE when stopped; then
  // `work` is not run.
  Status Push(std::function<void()> work);

  // Refuses more, runs what was taken, joins. Idempotent. Not from within a
  // function of this queue.
  void Stop();

  size_t queued() const { return queue_.size(); }

 private:
  void Run();

  BoundedQueue<std::function<void()>> queue_;
  std::vector<NamedThread> threads_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CONCURRENCY_WORK_QUEUE_H_
