#include "common/pipeline/gateway/plan_channel.h"

#include <utility>

#include "common/rpc/transport.h"

namespace sluice {

PlanChannel::PlanChannel(ReplicaId replica, StageConnections stages,
                         std::shared_ptr<PipelineEvents> events)
    : replica_(replica),
      last_(stages.size() - 1),
      events_(std::move(events)),
      stages_(std::move(stages)) {}

void PlanChannel::SetStages(StageConnections stages) {
  MutexLock lock(mutex_);
  last_ = stages.size() - 1;
  stages_ = std::move(stages);
}

void PlanChannel::Start(Events events,
                        std::function<void(StepResult)> on_result) {
  owner_ = std::move(events);
  on_result_ = std::move(on_result);
}

Status PlanChannel::Open(const wire::PipelineName& pipeline,
                         const StageFacts& joined, const StageFacts& first,
                         rpc::TransportOptions transport) {
  StageConnections stages;
  {
    MutexLock lock(mutex_);
    stages = stages_;
  }
  epoch_ = pipeline.epoch;
  limits_ = joined.limits.plan;
  transport.max_message_bytes = wire::MaxResultBytes(limits_);
  SLUICE_ASSIGN_OR_RETURN(
      auto from_last,
      rpc::Connect(stages.back()->address(), transport, rpc::kStageRole));
  transport.max_message_bytes = wire::MaxFrameBytes(limits_, 0);
  SLUICE_ASSIGN_OR_RETURN(
      auto to_first,
      rpc::Connect(stages.front()->address(), transport, rpc::kStageRole));
  // On gRPC's threads, while the channel lives.
  const auto guarded = [weak = weak_from_this()](auto work) {
    return [weak, work](auto&&... what) {
      const auto self = weak.lock();
      if (self != nullptr) self->events_->Guard([&] { work(*self, what...); });
    };
  };
  const Epoch epoch = epoch_;
  results_ = OpenResults(
      std::move(from_last), pipeline,
      {guarded([epoch, limits = limits_](PlanChannel& self,
                                         const v1::StepResult& result) {
         self.Take(epoch, result, limits);
       }),
       guarded([epoch](PlanChannel& self, const Status& status) {
         self.PostEnd(epoch, self.last_, "stream of results", status);
       })});
  rpc::CreditedSenderEvents events;
  events.on_ready = guarded([epoch](PlanChannel& self) {
    self.events_->Post([&self, epoch] { self.owner_.on_ready(epoch); });
  });
  events.on_ack = [](const grpc::ByteBuffer&) {};
  events.on_end = guarded([epoch](PlanChannel& self, const Status& status) {
    self.PostEnd(epoch, 0, "stream of steps", status);
  });
  // The engine keeps about one plan per stage in flight; plans beyond the
  // credits wait here.
  const auto credits = static_cast<size_t>(joined.limits.max_steps_in_flight);
  steps_ = rpc::CreditedSender::Open(
      {std::move(to_first), kStepsMethod,
       wire::StepsHello(pipeline, first, first.first_layer), credits,
       credits + 1024},
      std::move(events));
  return OkStatus();
}

void PlanChannel::GoLive() { SetLive(epoch_, steps_); }

void PlanChannel::Close(const Status& why) {
  SetLive(Epoch(0), nullptr);
  if (steps_ != nullptr) std::exchange(steps_, nullptr)->Cancel(why);
  if (results_ != nullptr) std::exchange(results_, nullptr)->Cancel(why);
}

void PlanChannel::SetLive(Epoch epoch,
                          std::shared_ptr<rpc::CreditedSender> sender) {
  {
    MutexLock lock(mutex_);
    submit_epoch_ = epoch;
    sender_ = std::move(sender);
    traces_.Begin(epoch);
  }
  MutexLock lock(deliver_mutex_);
  deliver_epoch_ = epoch;
}

void PlanChannel::Submit(StepPlan plan) {
  std::shared_ptr<rpc::CreditedSender> sender;
  {
    MutexLock lock(mutex_);
    if (sender_ == nullptr || plan.epoch != submit_epoch_) return;
    sender = sender_;
  }
  const int64_t begin = plan.trace.has_value() ? MonotonicNanos() : 0;
  grpc::ByteBuffer frame = PlanFrame(plan);
  if (plan.trace.has_value()) {
    plan.trace->serialise = {begin, MonotonicNanos()};
    MutexLock lock(mutex_);
    traces_.OnPlan(plan.epoch, *plan.trace);
  }
  Status status = sender->SendFrame(std::move(frame));
  // After the stream's end, the event of that end says more.
  if (status.code() == StatusCode::kResourceExhausted) {
    events_->BreakPipeline(std::move(status));
  }
}

void PlanChannel::OnPipelineBroken(Status why) {
  events_->BreakPipeline(
      Annotate(why, "the engine refuses the pipeline's answers"));
}

void PlanChannel::Take(Epoch epoch, const v1::StepResult& proto,
                       const PlanLimits& limits) {
  const int64_t received_ns = MonotonicNanos();
  auto result = wire::FromProto(proto, limits);
  if (!result.ok()) {
    PostEnd(epoch, last_, "a result is refused", result.status());
    return;
  }
  MutexLock deliver(deliver_mutex_);
  if (deliver_epoch_ != epoch || result->epoch != epoch ||
      result->replica != replica_) {
    return;
  }
  last_result_ = Clock::now();
  std::vector<ClockEstimate> clocks;
  if (result->trace.has_value()) clocks = Clocks();
  {
    MutexLock lock(mutex_);
    traces_.Complete(clocks, received_ns, *result);
  }
  if (result->trace.has_value()) {
    result->trace->receive = {received_ns, MonotonicNanos()};
  }
  on_result_(*std::move(result));
}

std::vector<ClockEstimate> PlanChannel::Clocks() const {
  const int64_t now_ns = MonotonicNanos();
  MutexLock lock(mutex_);
  std::vector<ClockEstimate> clocks;
  for (const auto& stage : stages_) clocks.push_back(stage->clock(now_ns));
  return traces_.Best(clocks, now_ns);
}

void PlanChannel::PostEnd(Epoch epoch, size_t index, const char* what,
                          const Status& status) {
  const Status why = status.ok() ? Unavailable(what, " was ended by the stage")
                                 : Annotate(status, what);
  events_->Post(
      [this, epoch, index, why] { owner_.on_end(epoch, index, why); });
}

}  // namespace sluice
