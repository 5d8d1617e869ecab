#include "common/grammar/matcher_threads.h"

#include <string>
#include <utility>

namespace sluice {

MatcherThreads::MatcherThreads(int num_threads) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back("grammar-" + std::to_string(i), [this] { Work(); });
  }
}

MatcherThreads::~MatcherThreads() { Stop(); }

void MatcherThreads::Run(std::function<void()> job) {
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    jobs_.push_back(std::move(job));
  }
  wake_.NotifyOne();
}

void MatcherThreads::Stop() {
  std::deque<std::function<void()>> dropped;  // freed without the lock
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    dropped.swap(jobs_);
  }
  wake_.NotifyAll();
  for (NamedThread& thread : threads_) thread.Join();
}

void MatcherThreads::Work() {
  for (;;) {
    std::function<void()> job;
    {
      MutexLock lock(mutex_);
      while (jobs_.empty() && !stopped_) wake_.Wait(mutex_);
      if (stopped_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace sluice
