#ifndef SLUICE_TESTS_SIMULATION_HOST_COMMON_BASE_MUTEX_H_
#define SLUICE_TESTS_SIMULATION_HOST_COMMON_BASE_MUTEX_H_

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "tests/simulation/fibre.h"

namespace sluice {

// A mutex of fibres. Before it is locked, another fibre may run.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    simulation::MayYield();
    LockNow();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    locked_ = false;
    waiting_.WakeOne();
  }

 private:
  friend class CondVar;
  void LockNow() {
    while (locked_) waiting_.Wait();
    locked_ = true;
  }
  bool locked_ = false;
  simulation::WaitList waiting_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  void Wait(Mutex& mutex)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    mutex.Unlock();
    waiting_.Wait();
    mutex.LockNow();
  }
  bool WaitUntil(Mutex& mutex, TimePoint deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    mutex.Unlock();
    const bool woken = waiting_.WaitUntil(deadline);
    mutex.LockNow();
    return woken;
  }
  void NotifyOne() { waiting_.WakeOne(); }
  void NotifyAll() { waiting_.WakeAll(); }

 private:
  simulation::WaitList waiting_;
};

}  // namespace sluice

#endif  // SLUICE_TESTS_SIMULATION_HOST_COMMON_BASE_MUTEX_H_
