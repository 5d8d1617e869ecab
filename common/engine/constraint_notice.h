#ifndef SLUICE_COMMON_ENGINE_CONSTRAINT_NOTICE_H_
#define SLUICE_COMMON_ENGINE_CONSTRAINT_NOTICE_H_

#include <functional>
#include <utility>

#include "common/base/mutex.h"
#include "common/core/ids.h"

namespace sluice {

// Tells an engine of a constraint's step, until the engine is gone. Any thread.
class ConstraintNoticeBoard {
 public:
  explicit ConstraintNoticeBoard(std::function<void(SequenceId)> tell)
      : tell_(std::move(tell)) {}

  void Tell(SequenceId sequence) {
    MutexLock lock(mutex_);
    if (tell_) tell_(sequence);
  }
  // No call of `tell` runs or begins when Close returns.
  void Close() {
    MutexLock lock(mutex_);
    tell_ = nullptr;
  }

 private:
  Mutex mutex_;
  std::function<void(SequenceId)> tell_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_CONSTRAINT_NOTICE_H_
