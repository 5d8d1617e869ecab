#ifndef SLUICE_COMMON_SERVING_TEXT_WORK_H_
#define SLUICE_COMMON_SERVING_TEXT_WORK_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/concurrency/turn_queue.h"
#include "common/http/exchange.h"
#include "common/serving/request_metrics.h"

namespace sluice::serving {

// The threads for work on text, off the event loops.
struct TextWorkers {
  TurnQueue* queue = nullptr;  // null: on the caller's thread
  RequestMetrics& metrics;
  bool goes_on = false;  // see TurnQueue::Job
};

// Returns the deadline by X-Request-Timeout, in seconds from the request's
// arrival; nothing without the header. INVALID_ARGUMENT for a value that is no
// number in range.
StatusOr<std::optional<TimePoint>> DeadlineOf(const http::HttpRequest& request);

// Runs `work` for the exchange in its client's turn, unless the client left;
// `bytes` is the work's memory. If the queue is full, the wait is too long, the
// deadline passes or `work` throws, the exchange is answered with that error;
// `failed`, on the exchange's loop, replaces that answer. Any thread.
void RunTextWork(const TextWorkers& workers,
                 std::shared_ptr<http::Exchange> exchange, size_t bytes,
                 std::function<void()> work,
                 std::function<void(const Status&)> failed = nullptr);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_TEXT_WORK_H_
