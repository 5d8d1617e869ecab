#ifndef SLUICE_COMMON_TRACE_REQUEST_TRACE_H_
#define SLUICE_COMMON_TRACE_REQUEST_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "common/http/exchange.h"
#include "common/trace/trace_record.h"

namespace sluice::trace {

// Collects the times of one traced request and passes the record on when the
// answer's last byte is written. Each method is called at its measurement: by
// the loop, the text threads and the engine's thread.
class RequestTrace : public http::WriteObserver {
 public:
  // Limits of one record, over all choices. The record leaves out the rest and
  // says so. The last block is always there.
  static constexpr size_t kMaxSteps = 4096;
  static constexpr size_t kMaxDeliveries = 2 * kMaxSteps;
  static constexpr size_t kMaxBlocks = 2 * kMaxSteps;
  using Done = std::function<void(TraceRecord)>;

  // The handler has the request, whose header began to arrive at `arrival`.
  // `tenant`: the API key's name, or empty.
  RequestTrace(std::string request_id, std::string tenant, TimePoint arrival,
               Done done);

  // The request's head, where it is for other readers than the store's.
  void OnRequest(const http::HttpRequest& request);
  // The request was parsed and tokenized.
  void OnPrepared(const TraceSpan& prepare);
  // What it asks for, if it is to run. Keeps method, path and traceparent.
  void OnAccepted(TraceRecord::Request request);
  // The loop submits the request's `num_choices` sequences now.
  void OnStart(size_t num_choices);
  void OnSubmit(size_t choice);  // just before EngineLoop::Submit

  // From the engine's thread.
  void OnInbox(size_t choice, const TraceSpan& inbox);
  void OnStep(size_t choice, std::shared_ptr<const StepTrace> step,
              const TracedChunk& chunk);

  // From the loop, when the delivery's bytes are queued.
  void OnDelivery(size_t choice, const TraceRecord::Delivery& delivery);

  void OnWritten(const TraceSpan& wait, const TraceSpan& write) override;
  void OnClosed(const http::AnswerEnd& end) override;

 private:
  const Done done_;
  Mutex mutex_;
  TraceRecord record_ ABSL_GUARDED_BY(mutex_);
  size_t num_steps_ ABSL_GUARDED_BY(mutex_) = 0;       // of all choices
  size_t num_deliveries_ ABSL_GUARDED_BY(mutex_) = 0;  // likewise
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::trace

#endif  // SLUICE_COMMON_TRACE_REQUEST_TRACE_H_
