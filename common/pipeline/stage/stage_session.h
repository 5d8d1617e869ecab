#ifndef SLUICE_COMMON_PIPELINE_STAGE_STAGE_SESSION_H_
#define SLUICE_COMMON_PIPELINE_STAGE_STAGE_SESSION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/log_limit.h"
#include "common/base/mutex.h"
#include "common/pipeline/stage/step_runner.h"
#include "common/rpc/transport_options.h"
#include "common/stage/stage.h"
#include "common/stage/stage_loop.h"
#include "common/wire/stage.h"

namespace sluice::rpc {
class CreditedSender;
}  // namespace sluice::rpc

namespace sluice {

class ControlStream;
class ResultsStream;
class StageMetrics;
class StepsStream;

// One epoch of this stage, as the gateway assigned it. A value.
struct Assignment {
  ReplicaId replica;
  Epoch epoch;
  wire::PipelineLimits limits;  // of the pipeline
  std::string next_address;     // empty: the last stage
  std::string secret;           // who names it belongs to the pipeline
};

struct StageSessionOptions {
  rpc::TransportOptions transport;  // towards the successor
  int32_t max_steps_in_flight = 16;
  StageMetrics* metrics = nullptr;  // outlives the session; may be null
};

// What a stage knows of its pipeline: which gateway holds it, the epoch, the
// streams to its neighbours. Streams report to it and are told by it; it
// computes nothing. Any thread: one mutex, never held while writing to a peer
// or calling the runner, but for its Reset: the runner and the session change
// epochs as one. Streams and callbacks hold shared references.
class StageSession : public StepOutputSink,
                     public std::enable_shared_from_this<StageSession> {
 public:
  explicit StageSession(StageSessionOptions options);
  ~StageSession() override;

  // While loading: a hello is answered UNAVAILABLE with this text, and with
  // the reason in the status' details.
  void SetLoading(std::string progress);
  // From now on gateways are welcome. `runner` must outlive every stream.
  void SetLoaded(const StageInfo& info, StepRunner* runner);

  // Control. A gateway that comes again with the secret of its run replaces
  // its stream; another one only what has been silent for the peer timeout.
  StatusOr<v1::Welcome> OnHello(const v1::Hello& hello,
                                std::shared_ptr<ControlStream> control);
  // Answers with Assigned through the stream, at once or when the successor
  // has answered. Nothing, if another stream has replaced `control`.
  void OnAssign(const v1::Assign& assign, const ControlStream* control);
  v1::HeartbeatReply OnHeartbeat(const v1::Heartbeat& heartbeat,
                                 const ControlStream* control);
  // A hello from `peer` was refused: for the log.
  void OnRefused(const std::string& peer, const Status& why);
  // What heartbeats say from now on.
  void SetExpertsMissing(bool missing);
  // Answers with Drained when no step is under way. Until the Control stream
  // ends; the next gateway is welcome.
  void OnDrain();
  void OnControlEnd(const ControlStream* control);

  // Steps. What the stream needs to check and queue its frames.
  struct InputTerms {
    Assignment assignment;
    int32_t hidden_size = 0;  // of the frames' payload; 0: the first stage
    StepRunner* runner = nullptr;
  };
  StatusOr<InputTerms> OnStepsHello(const v1::StepsHello& hello,
                                    std::shared_ptr<StepsStream> steps);
  // Queues a step that the stream has checked.
  Status OnStepInput(StepInput input, int64_t wire_bytes);
  void OnStepsEnd(const StepsStream* steps, const Status& status);

  // Results.
  Status OnResults(const v1::ResultsRequest& request,
                   std::shared_ptr<ResultsStream> results);
  void OnResultsEnd(const ResultsStream* results);

  // From the runner's thread.
  void OnStep(StepOutput output) override;
  void OnStepError(Epoch epoch, StepId step, Status why) override;

  // Announces to the gateway that this stage ends, takes no other gateway and
  // no new epoch, and goes on with the one it has. Returns when no gateway
  // holds it any more, or at `deadline`.
  void Leave(TimePoint deadline);
  // Takes no new epoch and no new step. Returns when none is under way, or
  // at `deadline`.
  void Drain(TimePoint deadline);
  // Ends every stream with UNAVAILABLE. No gateway is welcome any more.
  void Shutdown();

  bool draining() const;  // or leaving
  bool held() const;      // by a gateway
  Epoch epoch() const;

 private:
  struct Live;  // the streams of the epoch
  // The gateway that has the stage, or had it last.
  struct Holder {
    std::string id;  // for people
    std::string secret;
    TimePoint since{};
    TimePoint heard{};
  };
  // Whether the gateway with `secret` may have the stage.
  Status CheckHold(const std::string& secret, TimePoint now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::Welcome MakeWelcome() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status CheckResults(const v1::ResultsRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status CheckAssign(const v1::Assign& assign,
                     const wire::PipelineLimits& limits) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OpenNext(const Assignment& assignment);
  void OnNextReady(Epoch epoch);
  void OnNextAck(const v1::StepAck& ack);
  void OnNextEnd(Epoch epoch, const Status& status);
  // `begin_ns`: since when the output is being made ready to go.
  Status SendOn(rpc::CreditedSender& next, StepOutput output, int64_t begin_ns);
  void SendAcks(Epoch epoch);
  void SendResult(v1::StepResult result);
  void AnswerAssign(Epoch epoch, const Status& status);
  // Ends the streams of an epoch that is no longer live_; may be null.
  void EndEpoch(std::unique_ptr<Live> ended, const Status& why);
  void Fail(Epoch epoch, v1::FailureSide side, const Status& why);
  void NoteStepDone(Epoch epoch);
  bool idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whom to tell that no step is under way any more; null: nobody waits for
  // that, or there is one.
  std::shared_ptr<ControlStream> TakeDrained()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const StageSessionOptions options_;
  // Gateways come and go as often as strangers like.
  LogLimit visits_{20, std::chrono::seconds(1)};
  LogLimit refusals_{5, std::chrono::seconds(60)};
  mutable Mutex mutex_;
  CondVar step_done_;
  std::string loading_ ABSL_GUARDED_BY(mutex_) = "loading";
  StageInfo info_ ABSL_GUARDED_BY(mutex_);
  StepRunner* runner_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool experts_missing_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;  // for good; steps go on
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool shutting_down_ ABSL_GUARDED_BY(mutex_) = false;  // draining for good
  bool drain_asked_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<ControlStream> control_ ABSL_GUARDED_BY(mutex_);
  Holder holder_ ABSL_GUARDED_BY(mutex_);
  uint64_t highest_epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // of that gateway
  std::unique_ptr<Live> live_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_STAGE_SESSION_H_
