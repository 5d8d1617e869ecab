#ifndef SLUICE_SERVICES_GATEWAY_TRACE_TRACE_STORE_H_
#define SLUICE_SERVICES_GATEWAY_TRACE_TRACE_STORE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/mutex.h"
#include "common/concurrency/work_queue.h"
#include "services/gateway/trace/request_trace.h"
#include "services/gateway/trace/trace_options.h"
#include "services/gateway/trace/trace_record.h"

namespace sluice::gateway {

// Decides which requests are traced and keeps the latest traces. Any thread;
// "trace" writes the files.
class TraceStore {
 public:
  using Stages = std::function<std::vector<TraceRecord::Stage>()>;
  // `stages` is asked at the end of each trace and must outlive every
  // request.
  TraceStore(TraceOptions options, Stages stages);
  ~TraceStore();

  // On the loop, when `exchange`'s request has been read: null if it is not to
  // be traced. It is if `header`, its X-Sluice-Trace, is "1" or "true"; of
  // those without the header (empty) the sampled share.
  std::shared_ptr<RequestTrace> Begin(std::string_view header,
                                      Exchange& exchange);

  // Null: there was no such request, it was not traced, is not finished, or
  // its trace gave way to later ones.
  std::shared_ptr<const TraceRecord> Find(std::string_view request_id) const;
  // Of the traces kept, latest first.
  std::vector<std::string> RequestIds() const;

  void Stop();  // writes what is to be written

 private:
  bool Wanted(std::string_view header) const;
  void Keep(TraceRecord record);
  void Write(const TraceRecord& record);

  struct Kept {
    std::shared_ptr<const TraceRecord> record;
    size_t bytes = 0;
  };
  const TraceOptions options_;
  const Stages stages_;
  std::unique_ptr<WorkQueue> writer_;  // with a folder
  mutable Mutex mutex_;
  std::deque<Kept> kept_ ABSL_GUARDED_BY(mutex_);  // oldest first
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t files_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_TRACE_TRACE_STORE_H_
