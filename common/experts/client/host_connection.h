#ifndef SLUICE_COMMON_EXPERTS_CLIENT_HOST_CONNECTION_H_
#define SLUICE_COMMON_EXPERTS_CLIENT_HOST_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/experts/client/client_metrics.h"
#include "common/experts/client/expert_stream.h"
#include "common/model_config/expert_placement.h"
#include "common/rpc/transport_options.h"
#include "common/wire/expert.h"

namespace sluice {

struct DispatchOptions;

// A stage's connection to one host of remote experts: its stream, its state,
// and its outstanding work. Not thread-safe: guarded by its dispatcher's mutex.
class HostConnection {
 public:
  // Without a finished batch for this long, while one of the stage's is open,
  // the host answers pings and computes nothing.
  static constexpr int64_t kNoProgressSeconds = 10;

  // `index`: of the placement's hosts. `options` must outlive the connection.
  HostConnection(int32_t index, const DispatchOptions& options);

  // Whether the host has experts of the stage's layers.
  bool needed() const { return !wanted_.empty(); }
  // INVALID_ARGUMENT for a host without an address, or with one that may not be
  // used. Connects to nothing yet.
  Status MakeChannel(const rpc::TransportOptions& transport);

  // Whether a stream is to be opened now. `generation`, above all earlier ones,
  // tells the new stream's events from older ones.
  bool ConnectDue() const;
  void Open(uint64_t generation, wire::ExpertHello hello,
            ExpertStreamEvents events);
  uint64_t generation() const { return generation_; }
  const std::shared_ptr<ExpertStream>& stream() const { return stream_; }

  // Decides whether the host is silent. Returns the sequence of a ping if due.
  std::optional<uint64_t> Tick(int64_t now_ns);

  // Events of the stream. OnWelcome: an error if the host does not serve
  // `model` and the wanted experts. OnPong: returns whether a change may end a
  // dispatch's wait. OnEnd: sets the time of the next attempt.
  Status OnWelcome(const wire::ExpertWelcome& welcome,
                   const wire::ExpertModel& model);
  bool OnPong(const v1::ExpertPong& pong);
  void OnEnd(const Status& status, bool stopping);
  // Any message proves that the host lives.
  void Heard();
  // Sets whether the stream takes work; false lasts until the next welcome.
  void SetUp(bool up);

  bool up() const { return up_; }
  bool usable() const { return up_ && !draining_; }
  bool silent() const { return silent_; }
  // Whether the host counts for readiness: usable, and not silent for long.
  bool Counts() const;
  bool wedged() const {
    return heard_ns_ - progress_ns_ > kNoProgressSeconds * 1'000'000'000;
  }
  std::string WhyNot() const;  // the reason why it is not usable, for people

  const std::string& name() const { return host_.name; }
  const wire::ExpertLimits& limits() const { return limits_; }
  bool full() const { return in_flight_ >= limits_.max_batches_in_flight; }
  // Pairs of row and expert in unanswered batches.
  int64_t outstanding() const { return outstanding_; }
  void AddWork(int32_t batches, int64_t pairs) {
    in_flight_ += batches;
    outstanding_ += pairs;
  }

  // Null after Detach: a stream's callback may outlive the metrics.
  ExpertClientMetrics* metrics() const { return metrics_; }
  void Detach() { metrics_ = nullptr; }

 private:
  const int32_t index_;
  const DispatchOptions& options_;
  const ExpertHost& host_;
  ExpertClientMetrics* metrics_;
  std::vector<wire::LayerExperts> wanted_;
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<ExpertStream> stream_;  // null between two attempts
  uint64_t generation_ = 0;
  bool up_ = false;  // has sent its welcome
  bool draining_ = false;
  bool silent_ = false;
  wire::ExpertLimits limits_;
  int64_t heard_ns_ = 0;
  int64_t pinged_ns_ = 0;
  uint64_t pings_ = 0;
  bool ping_open_ = false;     // unanswered
  uint64_t batches_done_ = 0;  // of all stages, from the latest pong
  int64_t progress_ns_ = 0;    // of the latest sign of progress
  TimePoint next_attempt_{};
  Duration backoff_;
  Status why_ = Unavailable("not connected yet");
  int32_t in_flight_ = 0;  // batches
  int64_t outstanding_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_CLIENT_HOST_CONNECTION_H_
