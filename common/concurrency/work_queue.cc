#include "common/concurrency/work_queue.h"

#include <optional>
#include <utility>

#include "common/base/cat.h"
#include "common/base/catch_exceptions.h"
#include "common/base/check.h"
#include "common/base/log.h"

namespace sluice {

WorkQueue::WorkQueue(const std::string& name, int num_threads,
                     size_t max_queued)
    : queue_(max_queued) {
  SLUICE_CHECK(num_threads > 0);
  threads_.reserve(static_cast<size_t>(num_threads));
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back(Cat(name, "-", i), [this] { Run(); });
  }
}

WorkQueue::~WorkQueue() { Stop(); }

Status WorkQueue::Push(std::function<void()> work) {
  return queue_.Push(std::move(work));
}

void WorkQueue::Stop() {
  queue_.Close();
  for (NamedThread& thread : threads_) thread.Join();
}

void WorkQueue::Run() {
  while (std::optional<std::function<void()>> work = queue_.Pop()) {
    const Status status = CatchExceptions("a function", *work);
    if (!status.ok()) LogError("not done: ", Message(status));
  }
}

}  // namespace sluice
