#ifndef SLUICE_COMMON_BASE_LOG_LIMIT_H_
#define SLUICE_COMMON_BASE_LOG_LIMIT_H_

#include <cstdint>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mutex.h"

namespace sluice {

// Limits the lines that a peer can cause: `burst` at once and one more every
// `interval`. The next line says how many were dropped. Any thread.
class LogLimit {
 public:
  LogLimit(int burst, Duration interval)
      : burst_(burst), interval_(interval), left_(burst) {}

  // Whether a line may be written at `now`; if so, `dropped` becomes the number
  // of lines left out since the last one.
  bool Take(TimePoint now, uint64_t* dropped);

  template <typename... Parts>
  void Write(LogLevel level, const Parts&... parts) {
    if (!IsLogged(level)) return;
    uint64_t dropped = 0;
    if (!Take(Clock::now(), &dropped)) return;
    if (dropped == 0) {
      Log(level, Cat(parts...));
    } else {
      Log(level, Cat(parts..., " (", dropped, " such lines were left out)"));
    }
  }

 private:
  const int burst_;
  const Duration interval_;
  Mutex mutex_;
  int left_ ABSL_GUARDED_BY(mutex_);
  TimePoint since_ ABSL_GUARDED_BY(mutex_){};  // of the latest refill
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_LOG_LIMIT_H_
