#include "common/http/body_deadline.h"

#include <algorithm>
#include <chrono>

#include "common/base/cat.h"

namespace sluice::http {

using boost::system::error_code;

BodyDeadline::BodyDeadline(ClientStream& stream, const HttpLimits& limits)
    : limits_(limits),
      timer_(stream.get_executor()),
      watch_(std::make_shared<Watch>(stream.socket())) {}

BodyDeadline::~BodyDeadline() { watch_->is_over = true; }

void BodyDeadline::Set(size_t bytes) {
  TimePoint due = begin_ + limits_.body_time;
  is_rate_ = false;
  if (limits_.min_body_rate > 0) {
    const std::chrono::duration<double> earned(static_cast<double>(bytes) /
                                               limits_.min_body_rate);
    const TimePoint rate_due = begin_ + limits_.body_grace +
                               std::chrono::duration_cast<Duration>(earned);
    is_rate_ = rate_due < due;
    due = std::min(due, rate_due);
  }
  if (watch_->due == due) return;
  watch_->due = due;
  timer_.expires_at(due);
  timer_.async_wait([watch = watch_](error_code error) {
    // An earlier wait may have ended just before it was moved.
    if (error || watch->is_over || Clock::now() < watch->due) return;
    watch->is_past = true;
    error_code ignored;
    watch->socket.cancel(ignored);
  });
}

std::string BodyDeadline::Reason() const {
  if (is_rate_) {
    return Cat("The body came with less than ", limits_.min_body_rate,
               " bytes per second");
  }
  return Cat("The body was not there within ", Seconds(limits_.body_time),
             " seconds");
}

}  // namespace sluice::http
