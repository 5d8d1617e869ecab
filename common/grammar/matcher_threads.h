#ifndef SLUICE_COMMON_GRAMMAR_MATCHER_THREADS_H_
#define SLUICE_COMMON_GRAMMAR_MATCHER_THREADS_H_

#include <array>
#include <deque>
#include <functional>
#include <vector>

#include "common/base/mutex.h"
#include "common/concurrency/named_thread.h"

namespace sluice {

// Threads that run jobs in the order of their arrival, in two lanes:
// "grammar-N" as all other threads, and "grammar-idle-N" in the time that no
// other thread wants. Any thread may call all methods.
class MatcherThreads {
 public:
  enum class Lane { kNormal, kIdle };

  // `num_threads` of each lane.
  explicit MatcherThreads(int num_threads);
  // As Stop.
  ~MatcherThreads();
  MatcherThreads(const MatcherThreads&) = delete;
  MatcherThreads& operator=(const MatcherThreads&) = delete;

  // Queues `job`. Drops it after Stop.
  void Run(std::function<void()> job, Lane lane);

  // Waits for the jobs that run and drops the others. Not from a job.
  void Stop();

 private:
  struct Queue {
    CondVar wake;
    std::deque<std::function<void()>> jobs;
  };

  void Work(Lane lane);

  Mutex mutex_;
  std::array<Queue, 2> queues_ ABSL_GUARDED_BY(mutex_);  // by lane
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<NamedThread> threads_;  // last: joined first
};

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_MATCHER_THREADS_H_
