#ifndef SLUICE_COMMON_EXPERTS_CLIENT_CLIENT_CORE_H_
#define SLUICE_COMMON_EXPERTS_CLIENT_CLIENT_CORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/mutex.h"
#include "common/concurrency/named_thread.h"
#include "common/experts/client/client_metrics.h"
#include "common/experts/client/expert_client.h"
#include "common/experts/client/expert_stream.h"
#include "common/experts/client/latency_window.h"
#include "common/experts/client/question.h"
#include "common/rpc/transport.h"
#include "common/wire/expert.h"

namespace sluice {

// The client behind its streams, which hold weak references to it. One mutex
// guards everything; batches are made and sent outside of it.
class ExpertClient::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(const ModelConfig& config, ExpertClientOptions options);

  Status MakeChannels();
  void Connect(const StageInfo& info);
  Status Ready() const;
  Status WaitReady(TimePoint deadline) const;
  void Stop();

  const ShardMap& map() const { return map_; }
  void Begin(const ExpertAsk& ask);
  std::vector<RowFailure> Finish(std::span<const kernels::Matrix> parts);

 private:
  struct Host {
    ExpertHost name;
    bool needed = false;  // has experts of the stage's layers
    std::vector<wire::LayerExperts> wanted;
    std::shared_ptr<grpc::Channel> channel;
    std::shared_ptr<ExpertStream> stream;  // null between two attempts
    uint64_t generation = 0;               // of the stream
    bool up = false;                       // welcomed us
    bool draining = false;
    bool silent = false;
    wire::ExpertLimits limits;
    int64_t heard_ns = 0;
    int64_t pinged_ns = 0;
    uint64_t batches_done = 0;  // of all askers, as it told last
    int64_t progress_ns = 0;    // since when it has told that
    bool ping_open = false;     // not answered yet
    uint64_t pings = 0;
    TimePoint next_attempt{};
    Duration backoff{};
    Status why = Unavailable("not connected yet");
    int32_t in_flight = 0;  // batches
    int64_t asks = 0;       // pairs of row and expert in them
  };
  // A batch that was not answered yet.
  struct Call {
    int32_t host = 0;
    uint64_t question = 0;
    std::vector<size_t> units;
    std::vector<int32_t> rows;
    wire::ExpertAsked asked;
    int64_t sent_ns = 0;
    int64_t asks = 0;
  };
  // Units that go to one host in one batch.
  struct Outgoing {
    int32_t host = 0;
    int32_t chunk = 0;
    std::vector<size_t> units;
    int64_t asks = 0;
    bool hedge = false;
    bool charged = false;  // to the budget of hedges
    bool retry = false;
  };

  // The watch's.
  void Watch();
  void OpenStream(int32_t host) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tick(
      std::vector<std::pair<std::shared_ptr<ExpertStream>, uint64_t>>& pings)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::vector<std::shared_ptr<ExpertStream>> StuckStreams() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The streams'.
  void OnWelcome(int32_t host, uint64_t generation,
                 const wire::ExpertWelcome& welcome);
  void OnResult(int32_t host, uint64_t generation,
                const v1::ExpertResult& proto, Buffer sums);
  void OnPong(int32_t host, uint64_t generation, const v1::ExpertPong& pong);
  void OnEnd(int32_t host, uint64_t generation, const Status& status);
  void Heard(Host& host) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetUp(int32_t host, bool up) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status CheckWelcome(const Host& host,
                      const wire::ExpertWelcome& welcome) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle(Call call, wire::ExpertResult result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The call will not be answered: its units are open to others.
  void Lose(const Call& call, bool refused, const Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Call TakeCall(std::unordered_map<uint64_t, Call>::iterator at)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The stage's thread's.
  enum class Pick { kHost, kWait, kNobody };
  struct Choice {
    Pick pick = Pick::kNobody;
    int32_t host = 0;
  };
  // `whole`: of hosts that take the unit's chunk in one batch.
  Choice Choose(const AskUnit& unit, bool whole) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asked of none but hosts gone silent.
  bool AskedInVain(const AskUnit& unit) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Everything that can be sent now; units for which nobody is left fail.
  std::vector<Outgoing> PlanSends(int64_t now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Outgoing& AddTo(std::vector<Outgoing>& sends, int32_t host, size_t unit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountSends(const std::vector<Outgoing>& sends) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(const Outgoing& outgoing) ABSL_LOCKS_EXCLUDED(mutex_);
  void SendAll() ABSL_LOCKS_EXCLUDED(mutex_);
  // When to look again if nothing happens before.
  TimePoint NextLook(int64_t now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status NoHostLeft(const AskUnit& unit) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Usable(const Host& host) const { return host.up && !host.draining; }
  // That, and heard of lately.
  bool Counts(const Host& host) const;
  Status ReadyLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null when stopping: a stream's callback may outlive the metrics.
  ExpertClientMetrics* metrics() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ ? nullptr : options_.metrics;
  }

  const ExpertClientOptions options_;
  const ShardMap map_;
  wire::ExpertModel model_;  // const after Connect
  std::string asker_;        // const after Connect
  // Of the stage's thread alone, as its structure; the units' states are
  // guarded.
  std::unique_ptr<Question> question_;
  uint64_t wire_epoch_ = 0;
  uint64_t next_batch_ = 1;

  mutable Mutex mutex_;
  mutable CondVar changed_;  // answers, hosts, stopping
  CondVar wake_watch_;       // stopping alone
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Host> hosts_ ABSL_GUARDED_BY(mutex_);
  uint64_t question_id_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: none is open
  uint64_t last_question_ ABSL_GUARDED_BY(mutex_) = 0;
  int32_t rotation_ ABSL_GUARDED_BY(mutex_) = 0;
  double hedge_budget_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unordered_map<uint64_t, Call> calls_ ABSL_GUARDED_BY(mutex_);
  LatencyWindow latencies_ ABSL_GUARDED_BY(mutex_);
  NamedThread watch_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_CLIENT_CLIENT_CORE_H_
