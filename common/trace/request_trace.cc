#include "common/trace/request_trace.h"

#include <chrono>
#include <utility>

namespace sluice::trace {
namespace {

int64_t UnixMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

RequestTrace::RequestTrace(std::string request_id, std::string tenant,
                           TimePoint arrival, Done done)
    : done_(std::move(done)) {
  const int64_t now = MonotonicNanos();
  record_.request_id = std::move(request_id);
  record_.tenant = std::move(tenant);
  record_.read = {ToNanos(arrival), now};
  record_.arrival_unix_us = UnixMicros() - record_.read.duration_ns() / 1000;
}

void RequestTrace::OnRequest(const http::HttpRequest& request) {
  MutexLock lock(mutex_);
  record_.request.method = request.method;
  record_.request.path = request.path;
  record_.request.traceparent = request.traceparent;
}

void RequestTrace::OnAccepted(TraceRecord::Request request) {
  MutexLock lock(mutex_);
  TraceRecord::Request& known = record_.request;
  request.method = std::move(known.method);
  request.path = std::move(known.path);
  request.traceparent = std::move(known.traceparent);
  request.prepared = true;
  known = std::move(request);
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
  if (!closed_) record_.choices[choice].submit_ns = MonotonicNanos();
}

void RequestTrace::OnInbox(size_t choice, const TraceSpan& inbox) {
  MutexLock lock(mutex_);
  if (!closed_) record_.choices[choice].inbox = inbox;
}

void RequestTrace::OnStep(size_t choice, std::shared_ptr<const StepTrace> step,
                          const TracedChunk& chunk) {
  MutexLock lock(mutex_);
  if (closed_) return;
  TraceRecord::Choice& of = record_.choices[choice];
  if (of.truncated || num_steps_ == kMaxSteps) {
    of.truncated = record_.truncated = true;
    return;
  }
  of.steps.push_back({std::move(step), chunk});
  ++num_steps_;
}

void RequestTrace::OnDelivery(size_t choice,
                              const TraceRecord::Delivery& delivery) {
  MutexLock lock(mutex_);
  if (closed_) return;
  TraceRecord::Choice& of = record_.choices[choice];
  // Behind a step that was left out; those before it are still shown.
  if (delivery.steps > of.steps.size()) return;
  if (num_deliveries_ == kMaxDeliveries) {
    of.truncated = record_.truncated = true;
    return;
  }
  of.deliveries.push_back(delivery);
  ++num_deliveries_;
}

void RequestTrace::OnWritten(const TraceSpan& wait, const TraceSpan& write) {
  MutexLock lock(mutex_);
  if (closed_) return;
  if (record_.blocks.size() == kMaxBlocks) {
    record_.truncated = true;
    record_.blocks.pop_back();
  }
  record_.blocks.push_back({wait, write});
}

void RequestTrace::OnClosed(const http::AnswerEnd& end) {
  TraceRecord record;
  {
    MutexLock lock(mutex_);
    if (std::exchange(closed_, true)) return;
    record_.answer.status = end.status;
    record_.answer.error_type = end.error_type;
    if (end.figures != nullptr) record_.answer.figures = *end.figures;
    record = std::move(record_);
  }
  done_(std::move(record));
}

}  // namespace sluice::trace
