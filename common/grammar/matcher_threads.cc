#include "common/grammar/matcher_threads.h"

#include <sched.h>

#include <string>
#include <utility>

namespace sluice {
namespace {

// A system that refuses runs the thread as all others.
void RunInIdleTime() {
  const sched_param none = {};
  sched_setscheduler(0, SCHED_IDLE, &none);  // of this thread alone
}

}  // namespace

MatcherThreads::MatcherThreads(int num_threads) {
  try {
    for (int i = 0; i < num_threads; ++i) {
      const std::string number = std::to_string(i);
      threads_.emplace_back("grammar-" + number,
                            [this] { Work(Lane::kNormal); });
      threads_.emplace_back("grammar-idle-" + number, [this] {
        RunInIdleTime();
        Work(Lane::kIdle);
      });
    }
  } catch (...) {
    Stop();  // those that run wait for it
    throw;
  }
}

MatcherThreads::~MatcherThreads() { Stop(); }

void MatcherThreads::Run(std::function<void()> job, Lane lane) {
  MutexLock lock(mutex_);
  if (stopped_) return;
  Queue& queue = queues_[static_cast<size_t>(lane)];
  queue.jobs.push_back(std::move(job));
  queue.wake.NotifyOne();
}

void MatcherThreads::Stop() {
  std::deque<std::function<void()>> dropped;  // freed without the lock
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    for (Queue& queue : queues_) {
      for (std::function<void()>& job : queue.jobs) {
        dropped.push_back(std::move(job));
      }
      queue.jobs.clear();
      queue.wake.NotifyAll();
    }
  }
  for (NamedThread& thread : threads_) thread.Join();
}

void MatcherThreads::Work(Lane lane) {
  for (;;) {
    std::function<void()> job;
    {
      MutexLock lock(mutex_);
      Queue& queue = queues_[static_cast<size_t>(lane)];
      while (queue.jobs.empty() && !stopped_) queue.wake.Wait(mutex_);
      if (stopped_) return;
      job = std::move(queue.jobs.front());
      queue.jobs.pop_front();
    }
    job();
  }
}

}  // namespace sluice
