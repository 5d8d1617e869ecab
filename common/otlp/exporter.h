#ifndef SLUICE_COMMON_OTLP_EXPORTER_H_
#define SLUICE_COMMON_OTLP_EXPORTER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/otlp/otlp_options.h"
#include "common/trace/trace_record.h"

namespace sluice::otlp {

// Counts of traces, for metrics.
struct ExportStats {
  std::atomic<uint64_t> sent{0};
  std::atomic<uint64_t> queue_full{0};      // dropped: too many waited
  std::atomic<uint64_t> failed{0};          // dropped: the collector did not
                                            // take them in time
  std::atomic<uint64_t> rejected_spans{0};  // the collector said so
};

// Sends traces to a collector. No caller ever waits: traces beyond the queue's
// limits are dropped and counted. The thread "otlp-0" makes the spans and calls
// the collector. A batch that a collector does not take is tried again, three
// times in all, then dropped and counted. Any thread.
class Exporter {
 public:
  // Reads the TLS files; connects when the first trace is sent. `version`: of
  // this build. NOT_FOUND for a missing file.
  static StatusOr<std::unique_ptr<Exporter>> Start(OtlpOptions options,
                                                   std::string version);
  ~Exporter();  // Stop()

  // Returns whether a request with that traceparent is to be traced for the
  // collector; false while the queue is full, so that a collector that is away
  // costs nothing.
  bool Wants(std::string_view traceparent);
  // Queues a trace that takes `bytes` in memory, or drops it.
  void Take(std::shared_ptr<const trace::TraceRecord> record, size_t bytes);
  // Sends what waits, for at most OtlpOptions::flush, and drops the rest.
  // Idempotent.
  void Stop();

  const ExportStats& stats() const;

 private:
  class Impl;
  explicit Exporter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::otlp

#endif  // SLUICE_COMMON_OTLP_EXPORTER_H_
