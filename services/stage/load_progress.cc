#include "services/stage/load_progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "common/base/log.h"

namespace sluice::stage {

LoadProgress::LoadProgress() : terminal_(isatty(STDERR_FILENO) == 1) {}

std::string LoadProgress::Report(uint64_t done, uint64_t total) {
  constexpr int kWidth = 40;
  const double share = total == 0
                           ? 1.0
                           : std::min(1.0, static_cast<double>(done) /
                                               static_cast<double>(total));
  const int percent = static_cast<int>(share * 100);
  const std::string text =
      Cat("loading, ", percent, " % of ", total / 1000000, " MB");
  MutexLock lock(mutex_);
  if (terminal_ && percent != shown_percent_) {
    shown_percent_ = percent;
    const std::string bar(static_cast<size_t>(share * kWidth), '#');
    std::fprintf(stderr, "\r[%-*s] %s%s", kWidth, bar.c_str(), text.c_str(),
                 percent == 100 ? "\n" : "");
    std::fflush(stderr);
  } else if (!terminal_ && percent / 10 != shown_percent_ / 10) {
    shown_percent_ = percent;
    LogInfo(text);
  }
  return text;
}

}  // namespace sluice::stage
