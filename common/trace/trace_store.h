#ifndef SLUICE_COMMON_TRACE_TRACE_STORE_H_
#define SLUICE_COMMON_TRACE_TRACE_STORE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/mutex.h"
#include "common/concurrency/bounded_queue.h"
#include "common/concurrency/named_thread.h"
#include "common/trace/request_trace.h"
#include "common/trace/trace_options.h"
#include "common/trace/trace_record.h"

namespace sluice::trace {

// Takes traces to another place. Called by any thread; must not block.
struct TraceExport {
  // Returns whether a request with that traceparent is wanted there.
  std::function<bool(std::string_view traceparent)> wants;
  // Takes a finished trace, which has `bytes` in memory.
  std::function<void(std::shared_ptr<const TraceRecord>, size_t bytes)> take;
};

// Decides which requests are traced and keeps the latest traces. Any thread;
// "trace-0" writes the files.
class TraceStore {
 public:
  using Stages = std::function<std::vector<TraceRecord::Stage>()>;
  // `stages` is called at the end of each trace and must outlive every request,
  // as `exported` must, which may be empty.
  TraceStore(TraceOptions options, Stages stages, TraceExport exported = {});
  ~TraceStore();

  // On the loop, when `exchange`'s request has been read: begins its trace.
  // Null for an untraced request. Traced are requests whose `header`
  // X-Sluice-Trace is "1" or "true", and the sampled share of requests without
  // one (empty). The export gets all of these and those that it wants, which
  // are not kept here; a request with another X-Sluice-Trace is never traced.
  std::shared_ptr<RequestTrace> Begin(std::string_view header,
                                      http::Exchange& exchange);

  // NOT_FOUND: `tenant` has no such request, or the request was not traced, is
  // not finished, or its trace was dropped for later ones or is too large.
  StatusOr<std::shared_ptr<const TraceRecord>> Find(
      std::string_view request_id, std::string_view tenant) const;
  // Returns the ids of the kept traces of `tenant`, latest first.
  std::vector<std::string> RequestIds(std::string_view tenant) const;

  void Stop();  // writes the remaining files

 private:
  bool Wanted(std::string_view header) const;
  void Finish(TraceRecord record, bool keep);
  void Keep(const std::shared_ptr<const TraceRecord>& record, size_t bytes);
  void RunWriter();  // the thread "trace-0"
  void Write(const TraceRecord& record);
  // Writes `text` to the folder under a free name. Returns whether it could.
  bool WriteFile(const std::string& request_id, const std::string& text);

  struct Kept {
    std::shared_ptr<const TraceRecord> record;
    size_t bytes = 0;
  };
  struct TooLarge {
    std::string request_id;
    std::string tenant;
    size_t bytes = 0;
  };
  // Traces that wait to be written; more than that are not.
  static constexpr size_t kMaxQueuedFiles = 16;

  const TraceOptions options_;
  const Stages stages_;
  const TraceExport export_;
  mutable Mutex mutex_;
  std::deque<Kept> kept_ ABSL_GUARDED_BY(mutex_);  // oldest first
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // The latest few that are not kept.
  std::deque<TooLarge> too_large_ ABSL_GUARDED_BY(mutex_);
  bool writes_ ABSL_GUARDED_BY(mutex_) = true;  // until the folder has enough

  // Of this run; the thread "trace-0"'s alone.
  size_t files_ = 0;
  size_t file_bytes_ = 0;
  size_t next_suffix_ = 2;
  BoundedQueue<std::shared_ptr<const TraceRecord>> to_write_{kMaxQueuedFiles};
  NamedThread writer_;  // with a folder
};

}  // namespace sluice::trace

#endif  // SLUICE_COMMON_TRACE_TRACE_STORE_H_
