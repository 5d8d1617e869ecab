#ifndef SLUICE_SERVICES_GATEWAY_TEXT_WORK_H_
#define SLUICE_SERVICES_GATEWAY_TEXT_WORK_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/concurrency/turn_queue.h"
#include "common/http/exchange.h"
#include "services/gateway/gateway_metrics.h"

namespace sluice::gateway {

// Where work on a request's text runs, off the event loops.
struct TextWorkers {
  TurnQueue* queue = nullptr;  // null: it runs where it is asked for
  GatewayMetrics& metrics;
  bool goes_on = false;  // see TurnQueue::Job
};

// The request's deadline by X-Request-Timeout, in seconds from its arrival;
// nothing without one. INVALID_ARGUMENT if that is no number in range.
StatusOr<std::optional<TimePoint>> DeadlineOf(const http::HttpRequest& request);

// Runs `work` for the exchange in its client's turn; `bytes` is the memory
// that it takes. Not if the client went away. If it cannot run (the queue is
// full, it waited too long, the deadline passed), or threw, the exchange is
// answered with that error, which is counted; `failed`, on the exchange's
// loop, takes the place of that answer. Any thread.
void RunTextWork(const TextWorkers& workers,
                 std::shared_ptr<http::Exchange> exchange, size_t bytes,
                 std::function<void()> work,
                 std::function<void(const Status&)> failed = nullptr);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_TEXT_WORK_H_
