#include "common/serving/text_work.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "common/base/exception_counts.h"
#include "common/base/log.h"
#include "common/serving/error.h"

namespace sluice::serving {
namespace {

constexpr std::string_view kTimeoutHeader = "x-request-timeout";
constexpr double kMaxTimeoutSeconds = 86400;

// Logs exceptions; a refused request needs no log line.
void LogFailure(http::Exchange& exchange, const Status& why) {
  if (why.code() != StatusCode::kUnavailable &&
      why.code() != StatusCode::kInternal) {
    return;
  }
  LogError("request ", exchange.request().request_id,
           " failed: ", Message(why));
}

}  // namespace

StatusOr<std::optional<TimePoint>> DeadlineOf(
    const http::HttpRequest& request) {
  const std::string_view text = request.Header(kTimeoutHeader);
  if (text.empty()) return std::optional<TimePoint>();
  double seconds = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(),
                                   seconds, std::chars_format::fixed);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size() ||
      !(seconds > 0 && seconds <= kMaxTimeoutSeconds)) {
    return InvalidArgument(
        "header X-Request-Timeout must be a number of seconds above 0 and at "
        "most ",
        kMaxTimeoutSeconds);
  }
  return std::optional<TimePoint>(request.arrival +
                                  std::chrono::duration_cast<Duration>(
                                      std::chrono::duration<double>(seconds)));
}

void RunTextWork(const TextWorkers& workers,
                 std::shared_ptr<http::Exchange> exchange, size_t bytes,
                 std::function<void()> work,
                 std::function<void(const Status&)> failed) {
  TurnQueue::Job job;
  job.client = exchange->request().client;
  job.bytes = bytes;
  job.goes_on = workers.goes_on;
  // A bad deadline is refused when the request is parsed.
  if (const auto deadline = DeadlineOf(exchange->request()); deadline.ok()) {
    job.deadline = *deadline;
  }
  job.wanted = [exchange] { return !exchange->gone(); };
  job.run = std::move(work);
  job.refused = [exchange, &metrics = workers.metrics,
                 failed = std::move(failed)](const Status& why) {
    if (why.code() == StatusCode::kResourceExhausted) {
      metrics.OnRejection(Rejection::kQueueFull);
    }
    exchange->Post([exchange, why, failed] {
      exchange->ReleaseBody();
      if (failed) {
        failed(why);
      } else {
        LogFailure(*exchange, why);
        exchange->SendError(ToApiError(why));
      }
    });
  };
  const auto refused = job.refused;
  if (workers.queue != nullptr) {
    const Status pushed = workers.queue->Push(std::move(job));
    if (!pushed.ok()) refused(pushed);
    return;
  }
  if (!job.wanted()) return;
  const Status done = CatchAndCount("text", job.run);
  if (done.ok()) return;
  refused(done);
}

}  // namespace sluice::serving
