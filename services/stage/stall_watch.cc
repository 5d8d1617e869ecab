#include "services/stage/stall_watch.h"

#include <unistd.h>

#include <utility>

#include "common/base/log.h"

namespace sluice::stage {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(250);

}  // namespace

StallWatch::StallWatch(std::function<LoopReading()> read,
                       std::function<void(bool)> on_standing)
    : read_(std::move(read)),
      on_standing_(std::move(on_standing)),
      thread_("stall-watch", [this] { Run(); }) {}

void StallWatch::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  thread_.Join();
}

void StallWatch::Run() {
  StallJudge judge;
  bool told = false;
  while (true) {
    {
      MutexLock lock(mutex_);
      if (!stopping_) wake_.WaitUntil(mutex_, Clock::now() + kLookEvery);
      if (stopping_) return;
    }
    judge.Take(read_(), Clock::now());
    if (judge.is_told() != told) {
      told = judge.is_told();
      on_standing_(told);
    }
    if (!judge.is_dead()) continue;
    LogError("the loop has stood still for ", Seconds(judge.standing()),
             " s: this process ends");
    FlushLog(std::chrono::seconds(1));  // _exit leaves waiting lines out
    _exit(kStandsStill);                // the loop's thread cannot be joined
  }
}

}  // namespace sluice::stage
