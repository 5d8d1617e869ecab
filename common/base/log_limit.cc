#include "common/base/log_limit.h"

#include <algorithm>
#include <utility>

namespace sluice {

bool LogLimit::Take(TimePoint now, uint64_t* dropped) {
  MutexLock lock(mutex_);
  if (left_ == burst_) since_ = now;
  const int64_t due = (now - since_) / interval_;
  if (due > 0) {
    left_ = static_cast<int>(std::min<int64_t>(burst_, left_ + due));
    since_ += due * interval_;
  }
  if (left_ == 0) {
    ++dropped_;
    return false;
  }
  --left_;
  *dropped = std::exchange(dropped_, 0);
  return true;
}

}  // namespace sluice
