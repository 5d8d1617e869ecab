#ifndef SLUICE_COMMON_BASE_LOG_WRITER_H_
#define SLUICE_COMMON_BASE_LOG_WRITER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace sluice {

// The lines that wait for stderr, and the thread "log" that writes them. Its
// writes may block while the reader does not read; Append never does. The
// descriptor's flags stay, since other processes share it. One per process,
// which lives as long as the process and starts its thread with the first line.
// Any thread.
class LogWriter {
 public:
  static LogWriter& Get();

  // Takes `line`, its '\n' included, unless more than kMaxBytes would wait.
  void Append(std::string_view line);
  // Counts a line that could not even be made.
  void Drop();
  // Lines that the queue or stderr refused.
  uint64_t dropped() const { return dropped_; }
  // Returns false if some line is not written within `wait`.
  bool Flush(Duration wait);

  static constexpr size_t kMaxBytes = size_t{1} << 20;

 private:
  LogWriter();
  static void* Main(void* writer);
  void Run();
  // Returns false if there is no memory for the line.
  bool TellOfMissed(uint64_t missed);
  // Returns how many of `lines` could not be written; they count as dropped.
  uint64_t Write(std::string_view lines);
  bool idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return lines_.empty() && missed_ == 0 && writing_ == 0;
  }

  bool has_thread_ = false;  // else lines are written where they are made
  std::atomic<uint64_t> dropped_{0};

  Mutex mutex_;
  CondVar taken_, written_;
  std::string lines_ ABSL_GUARDED_BY(mutex_);
  size_t writing_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes that the thread has
  // Dropped since the log last reported drops. Until then all lines are
  // dropped: a short line does not overtake longer ones.
  uint64_t missed_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_LOG_WRITER_H_
