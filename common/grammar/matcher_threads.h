#ifndef SLUICE_COMMON_GRAMMAR_MATCHER_THREADS_H_
#define SLUICE_COMMON_GRAMMAR_MATCHER_THREADS_H_

#include <deque>
#include <functional>
#include <vector>

#include "common/base/mutex.h"
#include "common/concurrency/named_thread.h"

namespace sluice {

// Threads "grammar-N" that run jobs in the order of their arrival. Any thread
// may call all methods.
class MatcherThreads {
 public:
  explicit MatcherThreads(int num_threads);
  // As Stop.
  ~MatcherThreads();
  MatcherThreads(const MatcherThreads&) = delete;
  MatcherThreads& operator=(const MatcherThreads&) = delete;

  // Queues `job`. Drops it after Stop.
  void Run(std::function<void()> job);

  // Waits for the jobs that run and drops the others. Not from a job.
  void Stop();

 private:
  void Work();

  Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void()>> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<NamedThread> threads_;  // last: joined first
};

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_MATCHER_THREADS_H_
