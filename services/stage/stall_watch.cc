#include "services/stage/stall_watch.h"

#include <utility>

#include "common/base/cat.h"

namespace sluice::stage {

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
    if (!judge.is_dead()) continue;
    EndToBeReplaced(
        Cat("the loop has stood still for ", Seconds(judge.standing()), " s"));
  }
}

}  // namespace sluice::stage
