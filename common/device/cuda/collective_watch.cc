#include "common/device/cuda/collective_watch.h"

#include <algorithm>
#include <string>

#include "common/base/cat.h"
#include "common/base/end_process.h"

namespace sluice {
namespace {

// A look that comes late counts as this: the whole process may have been
// stopped.
constexpr Duration kLateLook = std::chrono::seconds(1);

}  // namespace

CollectiveWatch::CollectiveWatch(const OwnRanks& ranks,
                                 DeviceExchange* exchange,
                                 const CollectiveLimits& limits)
    : ranks_(ranks),
      exchange_(*exchange),
      limits_(limits),
      turns_(static_cast<size_t>(ranks.count)),
      thread_("rank-watch", [this] { Watch(); }) {}

CollectiveWatch::~CollectiveWatch() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.NotifyAll();
  thread_.Join();
}

bool CollectiveWatch::WaitToLook() {
  MutexLock lock(mutex_);
  const TimePoint next = Clock::now() + limits_.look_every;
  while (!stop_ && wake_.WaitUntil(mutex_, next)) {
  }
  return !stop_;
}

void CollectiveWatch::Watch() {
  struct Waiting {
    uint64_t turn = 0;
    Duration time = Duration::zero();
  };
  std::vector<Waiting> ranks(turns_.size());
  TimePoint looked = Clock::now();
  const auto end = [this](const std::string& why) {
    EndToBeReplaced(why, [this] { exchange_.Abort(); });
  };
  while (WaitToLook()) {
    const TimePoint now = Clock::now();
    const Duration passed = std::min<Duration>(now - looked, kLateLook);
    looked = now;
    if (const std::string fault = exchange_.Fault(); !fault.empty()) end(fault);
    for (size_t r = 0; r < ranks.size(); ++r) {
      const uint64_t turn = turns_[r].value.load(std::memory_order_relaxed);
      const bool waits_on = turn % 2 == 1 && turn == ranks[r].turn;
      ranks[r] = {turn, waits_on ? ranks[r].time + passed : Duration::zero()};
      if (ranks[r].time < limits_.deadline) continue;
      end(Cat(ranks_.TextOf(static_cast<int>(r)), " has waited ",
              Seconds(ranks[r].time), " s for the others"));
    }
  }
}

}  // namespace sluice
