#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_IMPL_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_IMPL_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log_limit.h"
#include "common/base/mutex.h"
#include "common/base/random_bytes.h"
#include "common/concurrency/bounded_queue.h"
#include "common/concurrency/named_thread.h"
#include "common/pipeline/gateway/handshake.h"
#include "common/pipeline/gateway/heartbeats.h"
#include "common/pipeline/gateway/pipeline_client.h"
#include "common/pipeline/gateway/stage_clock.h"
#include "common/pipeline/gateway/stage_links.h"
#include "common/pipeline/gateway/step_traces.h"

namespace sluice {

// PipelineClient's inside. The thread "pipeline" owns everything below "owner
// state"; gRPC's callbacks hold weak references and post to it.
class PipelineClient::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(PipelineOptions options);

  Status OpenChannels();  // before Start; checks addresses and TLS files
  void Start(PipelineCallbacks callbacks);
  void Drain(TimePoint deadline);
  void Stop();
  void Submit(const StepPlan& plan);
  void Break(Status why);
  PipelineStatus status() const;
  bool ready() const;
  std::optional<PipelineModel> model() const;

 private:
  using Event = std::function<void()>;

  enum class Phase {
    kGathering,  // not every stage has welcomed us, or we wait to try again
    kAssigning,  // last stage first
    kOpening,    // Results and Steps
    kUp,
  };

  struct Stage {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;  // of Control
    std::shared_ptr<ControlLink> link;
    uint64_t link_id = 0;  // tells events of an older link apart
    TimePoint connect_at{};
    TimePoint linked_at{};
    Duration backoff{};
    std::optional<StageWelcome> welcome;
    wire::StageIdentity identity;  // of the latest welcome, kept when lost
    StageLoad load;
    bool seen = false;  // has welcomed us at some time
    TimePoint heard{};
    Heartbeats heartbeats;  // of this link
    Duration rtt{};
    StageState down_state = StageState::kConnecting;  // while not welcomed
    bool refused = false;                             // welcomed, does not fit
    bool held = false;                                // by another gateway
    std::string message;
    bool drained = false;
    std::optional<TimePoint> leaves_at;  // at the latest; it has said so
  };

  // From gRPC's threads.
  void Post(Event event);
  ControlLink::Events ControlEvents(size_t index, uint64_t link_id);
  ResultsLink::Events ResultsEvents(Epoch epoch, const PlanLimits& limits);
  rpc::CreditedSenderEvents StepsEvents(Epoch epoch);
  template <typename Work>
  void Guard(Work&& work);
  void Take(Epoch epoch, const v1::StepResult& proto, const PlanLimits& limits);
  void OnException(const Status& what);
  void FinishTrace(StepResult& result, int64_t received_ns);
  std::vector<ClockEstimate> Clocks() const;

  // The owner's thread from here on.
  void Run();
  void Tick(TimePoint now);
  void ConnectStage(size_t index, TimePoint now);
  void CheckSilence(size_t index, TimePoint now);
  void LetGo(size_t index);
  // The latest proof that the stage lives: a message, or a result, which
  // passed through all of them.
  TimePoint HeardOf(const Stage& stage) const;
  void SendDrain();
  void CheckDrained();
  void OnControl(size_t index, uint64_t link_id, v1::ControlResponse response,
                 int64_t received_ns);
  void OnHeartbeat(size_t index, const v1::HeartbeatReply& reply,
                   int64_t received_ns);
  void OnRoundTrip(size_t index, int64_t sent_ns, int64_t stage_ns,
                   int64_t received_ns);
  void OnWelcome(size_t index, const v1::Welcome& welcome);
  void OnControlEnd(size_t index, uint64_t link_id, const Status& status);
  void OnAssigned(size_t index, const v1::Assigned& assigned);
  void OnFailure(size_t index, const v1::Failure& failure);
  void OnDraining(size_t index, const v1::Draining& draining);
  // Lets go of a stage that leaves once nothing needs it any more.
  void ReleaseLeaving(size_t index);
  void BeginAssigning(TimePoint now);
  void AssignStage();  // number assigning_
  void OpenStreams();
  Status OpenDataStreams();
  void OnStepsReady(Epoch epoch);
  void OnStreamEnd(Epoch epoch, size_t index, const char* what,
                   const Status& status);
  // The pipeline cannot go on because of stage `index`.
  void Lose(size_t index, const Status& why);
  void CloseStreams(const Status& why);
  void SetLive(Epoch epoch, std::shared_ptr<rpc::CreditedSender> sender);
  void Publish();
  std::string Describe(size_t index) const;
  // The pause after one more failure: twice `last`, 0.1 s to 1 s.
  static Duration NextBackoff(Duration last);

  const PipelineOptions options_;
  // Of this run: the stages are held by it. Told to them alone.
  const std::string secret_ = RandomBytes(wire::kSecretBytes);
  PipelineCallbacks callbacks_;
  BoundedQueue<Event> events_;
  NamedThread thread_;

  // The way of a plan and its result, past the owner's thread.
  Mutex submit_mutex_;
  Epoch submit_epoch_ ABSL_GUARDED_BY(submit_mutex_);
  std::shared_ptr<rpc::CreditedSender> sender_ ABSL_GUARDED_BY(submit_mutex_);
  Mutex deliver_mutex_;  // held while on_result runs
  Epoch deliver_epoch_ ABSL_GUARDED_BY(deliver_mutex_);
  mutable Mutex trace_mutex_;
  StepTraces traces_ ABSL_GUARDED_BY(trace_mutex_);
  std::vector<StageClock> clocks_ ABSL_GUARDED_BY(trace_mutex_);  // per stage

  mutable Mutex status_mutex_;
  PipelineStatus published_ ABSL_GUARDED_BY(status_mutex_);
  std::vector<TimePoint> heard_ ABSL_GUARDED_BY(status_mutex_);
  std::optional<PipelineModel> model_ ABSL_GUARDED_BY(status_mutex_);

  mutable CondVar drained_changed_;
  bool drained_ ABSL_GUARDED_BY(status_mutex_) = false;
  std::atomic<int64_t> last_result_ns_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> event_lost_{false};  // there was no memory for it
  LogLimit exceptions_log_{8, std::chrono::seconds(1)};

  // Owner state.
  bool draining_ = false;
  Phase phase_ = Phase::kGathering;
  std::vector<Stage> stages_;
  JoinedPipeline joined_;
  Epoch epoch_;
  std::string epoch_secret_;  // of its data streams
  size_t assigning_ = 0;
  TimePoint assign_at_{};  // not before
  Duration assign_backoff_{};
  TimePoint phase_deadline_{};           // of kAssigning and kOpening
  TimePoint down_since_ = Clock::now();  // unless kUp
  bool was_up_ = false;                  // at some time
  Duration last_recovery_{};             // of a pipeline that had been up
  TimePoint heartbeat_at_{};
  uint64_t heartbeats_ = 0;
  uint64_t links_ = 0;
  std::string message_ = "connecting to the stages";
  std::shared_ptr<rpc::CreditedSender> steps_;
  std::shared_ptr<ResultsLink> results_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_IMPL_H_
