#include "common/device/cuda/collective_clock.h"

#include <utility>

#include "common/base/check.h"

namespace sluice {

CollectiveClock::CollectiveClock(kernels::cuda::Runtime* runtime, size_t spans)
    : runtime_(*runtime), kinds_(spans) {
  if (spans > 0) runtime_.MakeMoments(2 * spans);
}

void CollectiveClock::Begin(Kind kind) {
  if (is_open_) return;
  if (ended_ - taken_ >= kinds_.size()) return Skip();
  kinds_[PlaceOf(ended_)] = kind;
  runtime_.NoteMoment(2 * PlaceOf(ended_));
  is_open_ = true;
}

void CollectiveClock::End() {
  if (!is_open_) return;
  runtime_.NoteMoment(2 * PlaceOf(ended_) + 1);
  ++ended_;
  is_open_ = false;
}

void CollectiveClock::SubmitStep() {
  SLUICE_CHECK(!is_open_);
  present_.end = ended_;
  submitted_.push_back(std::exchange(present_, {}));
}

CollectiveTimes CollectiveClock::TakeTimes() {
  SLUICE_CHECK(!submitted_.empty());
  const Step step = submitted_.front();
  submitted_.erase(submitted_.begin());
  CollectiveTimes times = step.times;
  for (; taken_ < step.end; ++taken_) {
    const size_t place = PlaceOf(taken_);
    times.*kinds_[place] += runtime_.NanosBetween(2 * place, 2 * place + 1);
  }
  return times;
}

}  // namespace sluice
