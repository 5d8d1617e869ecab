#include "services/stage/stall_watch.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

#include "common/base/log.h"

namespace sluice::stage {
namespace {

// How long the last words may take.
constexpr unsigned kLastWordsSeconds = 2;

// Says why, and ends the process. A thread that stands still may hold the lock
// of the log or of the allocator: a signal ends the process then.
[[noreturn]] void End(Duration standing) {
  ::signal(SIGALRM, [](int) { _exit(kStandsStill); });
  ::alarm(kLastWordsSeconds);
  LogError("the loop has stood still for ", Seconds(standing),
           " s: this process ends");
  FlushLog(std::chrono::seconds(1));  // _exit leaves waiting lines out
  _exit(kStandsStill);                // the loop's thread cannot be joined
}

}  // namespace

StallWatch::StallWatch(std::function<LoopReading()> read,
                       std::function<void(bool)> on_standing,
                       const StallLimits& limits)
    : read_(std::move(read)),
      on_standing_(std::move(on_standing)),
      limits_(limits),
      reader_("stall-read", [this] { Read(); }),
      watcher_("stall-watch", [this] { Watch(); }) {}

void StallWatch::Stop() {
  for (auto [stop, thread] : {std::pair{&stop_reading_, &reader_},
                              std::pair{&stop_watching_, &watcher_}}) {
    {
      MutexLock lock(mutex_);
      *stop = true;
    }
    wake_.NotifyAll();
    thread->Join();
  }
}

bool StallWatch::WaitToLook(const bool& stopping) {
  MutexLock lock(mutex_);
  const TimePoint next = Clock::now() + limits_.look_every;
  while (!stopping && wake_.WaitUntil(mutex_, next)) {
  }
  return !stopping;
}

void StallWatch::Read() {
  bool told = false;
  do {
    const LoopReading reading = read_();
    progress_ = reading.progress;
    is_held_ = reading.is_held;
    ++reads_;
    if (told_ != told) {
      told = told_;
      on_standing_(told);
    }
  } while (WaitToLook(stop_reading_));
}

void StallWatch::Watch() {
  StallJudge judge(limits_);
  while (WaitToLook(stop_watching_)) {
    judge.Take(reads_, {progress_, is_held_}, Clock::now());
    told_ = judge.is_told();
    if (judge.is_dead()) End(judge.standing());
  }
}

}  // namespace sluice::stage
