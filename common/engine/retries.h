#ifndef SLUICE_COMMON_ENGINE_RETRIES_H_
#define SLUICE_COMMON_ENGINE_RETRIES_H_

#include <algorithm>
#include <chrono>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/engine/sequence.h"

namespace sluice {

// Sequences whose part of a step failed with UNAVAILABLE: the pipeline stands,
// but cannot compute them now, as when experts have no host. They are computed
// again from their tokens, after a pause that doubles. Without a clock.
class Retries {
 public:
  static constexpr Duration kFirstPause = std::chrono::milliseconds(50);
  static constexpr Duration kLongestPause = std::chrono::seconds(1);

  // A sequence that fails for longer than `patience` is given up; zero: at
  // once.
  explicit Retries(Duration patience) : patience_(patience) {}

  // Returns whether to compute the sequence again, whose chunk up to position
  // `end` failed with `why`.
  bool Take(Sequence& sequence, int32_t end, const Status& why, TimePoint now) {
    if (why.code() != StatusCode::kUnavailable) return false;
    if (!sequence.fails_since) {
      if (patience_ == Duration::zero()) return false;
      sequence.fails_since = now;
      ++num_failing_;
    } else if (now - *sequence.fails_since >= patience_) {
      return false;
    }
    sequence.failed_end = std::max(sequence.failed_end, end);
    sequence.num_void = sequence.plans_in_flight;
    // The failures of plans that were in flight together count once.
    if (next_ == TimePoint::max()) {
      next_ = now + pause_;
      pause_ = std::min(2 * pause_, kLongestPause);
    }
    return true;
  }

  // A chunk up to position `end` was computed.
  void OnComputed(Sequence& sequence, int32_t end) {
    if (!sequence.fails_since || end < sequence.failed_end) return;
    pause_ = kFirstPause;
    Forget(sequence);
  }

  // The sequence no longer fails, or ends.
  void Forget(Sequence& sequence) {
    if (!sequence.fails_since) return;
    sequence.fails_since.reset();
    sequence.failed_end = 0;
    --num_failing_;
  }

  // Ends a pause that is over at `now`.
  void Release(TimePoint now) {
    if (next_ <= now) next_ = TimePoint::max();
  }
  // Whether no sequence may start: a pause lasts.
  bool holds_starts() const { return next_ != TimePoint::max(); }
  // The end of the pause; TimePoint::max(): there is none.
  TimePoint next() const { return next_; }
  int num_failing() const { return num_failing_; }

 private:
  const Duration patience_;
  Duration pause_ = kFirstPause;
  TimePoint next_ = TimePoint::max();
  int num_failing_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_RETRIES_H_
