#include "common/http/event_loop.h"

#include <ctime>
#include <utility>

#include "common/base/exception_counts.h"
#include "common/base/log.h"
#include "common/concurrency/short_slices.h"
#include "common/http/loop_executor.h"

namespace sluice::http {
namespace {

// Longer than this no event should hold a loop.
constexpr long long kLongHoldNs = 50'000'000;
constexpr auto kRepairPause = std::chrono::milliseconds(5);
// How often a thread tells of it.
constexpr auto kTellEvery = std::chrono::seconds(1);

long long ThreadCpuNanos() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1'000'000'000LL * now.tv_sec + now.tv_nsec;
}

void RaiseTo(std::atomic<long long>& most, long long value) {
  long long seen = most.load(std::memory_order_relaxed);
  while (value > seen && !most.compare_exchange_weak(seen, value)) {
  }
}

void CountHold(long long held_ns, HttpServerStats& stats) {
  RaiseTo(stats.longest_hold_ns, held_ns);
  if (held_ns <= kLongHoldNs) return;
  ++stats.long_holds;
  thread_local TimePoint next_words{};
  if (Clock::now() < next_words) return;
  next_words = Clock::now() + kTellEvery;
  LogWarning("an event held its HTTP event loop for ", held_ns / 1000000,
             " ms of CPU time");
}

}  // namespace

void RunEventLoop(boost::asio::io_context& io, HttpServerStats& stats,
                  const std::function<bool()>& repair) {
  AskForShortSlices();
  LoopReserve& reserve = LoopReserve::Of(io);
  long long begin_ns = ThreadCpuNanos();
  bool more = true;
  while (more) {
    try {
      const Status ran = CatchExceptions("http_loop", [&] {
        reserve.Run();
        if (repair()) {
          more = io.run_one() > 0;
        } else {
          io.run_one_for(kRepairPause);
          more = !io.stopped();
        }
      });
      // The wait for an event takes no CPU time: what passed is the event's.
      const long long end_ns = ThreadCpuNanos();
      const long long held_ns = end_ns - std::exchange(begin_ns, end_ns);
      if (!ran.ok()) CountException("http_loop");
      CountHold(held_ns, stats);
      if (!ran.ok()) LogError("an event was dropped: ", Message(ran));
    } catch (...) {
      CountException("http_loop");  // not even its words found memory
    }
  }
}

}  // namespace sluice::http
