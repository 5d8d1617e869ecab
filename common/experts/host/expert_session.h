#ifndef SLUICE_COMMON_EXPERTS_HOST_EXPERT_SESSION_H_
#define SLUICE_COMMON_EXPERTS_HOST_EXPERT_SESSION_H_

#include <memory>
#include <set>
#include <string>

#include "common/base/clock.h"
#include "common/base/log_limit.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/wire/expert.h"

namespace sluice {

class BatchesStream;
class ExpertLoop;
class ExpertMetrics;

// The state that all streams of a host share: the loaded experts, the clients,
// and whether the host drains. Any thread: one mutex, held for moments. Streams
// hold shared references.
class ExpertSession {
 public:
  // `metrics` may be null; it outlives the session.
  explicit ExpertSession(ExpertMetrics* metrics) : metrics_(metrics) {}

  // While loading: answers every hello with UNAVAILABLE and this text.
  void SetLoading(std::string progress);
  // Accepts clients from now on. `loop` must outlive every stream.
  void SetLoaded(const wire::ExpertWelcome& welcome, ExpertLoop* loop);

  // The terms of an accepted stream.
  struct Terms {
    wire::ExpertWelcome welcome;
    ExpertLoop* loop = nullptr;
  };
  // Adds the stream to the clients. Errors as in expert.proto.
  StatusOr<std::shared_ptr<const Terms>> OnHello(
      const wire::ExpertHello& hello, std::shared_ptr<BatchesStream> stream);
  void OnStreamEnd(const std::shared_ptr<BatchesStream>& stream);
  v1::ExpertPong Pong(const v1::ExpertPing& ping) const;

  // Takes no new batch and tells all clients. Returns when no client is left,
  // or at `deadline`.
  void Drain(TimePoint deadline);
  // Ends every stream with UNAVAILABLE and refuses new ones.
  void Shutdown();

  bool draining() const;
  int32_t clients() const;
  ExpertMetrics* metrics() const { return metrics_; }

 private:
  std::set<std::shared_ptr<BatchesStream>> streams() const;

  ExpertMetrics* const metrics_;
  // Limits the log lines that clients cause.
  LogLimit visits_{50, std::chrono::seconds(1)};
  mutable Mutex mutex_;
  std::string loading_ ABSL_GUARDED_BY(mutex_) = "loading";
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const Terms> terms_ ABSL_GUARDED_BY(mutex_);  // loaded
  std::set<std::shared_ptr<BatchesStream>> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_HOST_EXPERT_SESSION_H_
