#include "services/gateway/trace/request_trace.h"

#include <chrono>
#include <utility>

namespace sluice::gateway {
namespace {

int64_t UnixMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

RequestTrace::RequestTrace(std::string request_id, TimePoint arrival, Done done)
    : done_(std::move(done)) {
  const int64_t now = MonotonicNanos();
  record_.request_id = std::move(request_id);
  record_.read = {ToNanos(arrival), now};
  record_.arrival_unix_us = UnixMicros() - record_.read.duration_ns() / 1000;
}

void RequestTrace::OnPrepared(const TraceSpan& prepare) {
  MutexLock lock(mutex_);
  record_.prepare_wait = {record_.read.stop_ns, prepare.start_ns};
  record_.prepare = prepare;
}

void RequestTrace::OnStart(size_t num_choices) {
  MutexLock lock(mutex_);
  record_.start_wait = {record_.prepare.stop_ns, MonotonicNanos()};
  record_.choices.resize(num_choices);
}

void RequestTrace::OnSubmit(size_t choice) {
  MutexLock lock(mutex_);
  record_.choices[choice].submit_ns = MonotonicNanos();
}

void RequestTrace::OnInbox(size_t choice, const TraceSpan& inbox) {
  MutexLock lock(mutex_);
  if (!closed_) record_.choices[choice].inbox = inbox;
}

void RequestTrace::OnStep(size_t choice, std::shared_ptr<const StepTrace> step,
                          const TracedChunk& chunk) {
  MutexLock lock(mutex_);
  if (closed_) return;
  auto& steps = record_.choices[choice].steps;
  if (steps.size() < kMaxSteps) {
    steps.push_back({std::move(step), chunk});
  } else {
    record_.truncated = true;
  }
}

size_t RequestTrace::num_steps(size_t choice) const {
  MutexLock lock(mutex_);
  return closed_ ? 0 : record_.choices[choice].steps.size();
}

void RequestTrace::OnDelivery(size_t choice,
                              const TraceRecord::Delivery& delivery) {
  MutexLock lock(mutex_);
  if (closed_ || record_.truncated) return;
  record_.choices[choice].deliveries.push_back(delivery);
}

void RequestTrace::OnWritten(const TraceSpan& wait, const TraceSpan& write) {
  MutexLock lock(mutex_);
  if (!closed_) record_.blocks.push_back({wait, write});
}

void RequestTrace::OnClosed() {
  TraceRecord record;
  {
    MutexLock lock(mutex_);
    if (std::exchange(closed_, true)) return;
    record = std::move(record_);
  }
  done_(std::move(record));
}

}  // namespace sluice::gateway
