#include "common/pipeline/stage/epoch_links.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/pipeline/stage/results_stream.h"
#include "common/pipeline/stage/stage_checks.h"
#include "common/pipeline/stage/stage_metrics.h"
#include "common/pipeline/stage/steps_stream.h"
#include "common/rpc/credited_sender.h"
#include "common/rpc/payload_frame.h"
#include "common/rpc/transport.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

constexpr char kStepsMethod[] = "/sluice.v1.Stage/Steps";
constexpr size_t kMaxAckBytes = 4096;

// Ends this stage's part of a trace: the wire follows.
void EndSerialise(StepTrace& trace, int64_t begin_ns) {
  if (trace.stages.empty()) return;
  trace.stages.back().serialise = {begin_ns, MonotonicNanos()};
}

// Returns the step's frame for the successor, with `plan` as received.
grpc::ByteBuffer NextFrame(StepOutput& output, v1::StepPlan plan,
                           int64_t begin_ns, StageMetrics* metrics) {
  grpc::ByteBuffer frame =
      rpc::JoinPayload(wire::StepFrameHead(output.plan, std::move(plan),
                                           begin_ns, output.failed),
                       wire::kHiddenStatesField, std::move(output.hidden.data));
  if (output.plan.trace.has_value()) {
    EndSerialise(*output.plan.trace, begin_ns);
    rpc::AppendMessage(wire::StepFrameTrace(*output.plan.trace), &frame);
  }
  if (metrics != nullptr) {
    metrics->OnSerialized(MonotonicNanos() - begin_ns);
    metrics->OnWire(StageMetrics::Peer::kNext,
                    static_cast<int64_t>(frame.Length()));
  }
  return frame;
}

v1::StepResult ResultMessage(StepOutput& output, int64_t begin_ns,
                             StageMetrics* metrics) {
  v1::StepResult result = wire::ToProto(*output.result);
  if (output.plan.trace.has_value()) {
    EndSerialise(*output.plan.trace, begin_ns);
    *result.mutable_trace() = wire::ToProto(*output.plan.trace);
  }
  if (metrics != nullptr) {
    metrics->OnWire(StageMetrics::Peer::kGateway,
                    static_cast<int64_t>(result.ByteSizeLong()));
  }
  return result;
}

}  // namespace

EpochLinks::EpochLinks(StageSessionOptions options, Events events)
    : options_(std::move(options)), events_(std::move(events)) {}

void EpochLinks::SetLoaded(const StageInfo& info, StepRunner* runner) {
  MutexLock pushing(push_mutex_);
  MutexLock lock(mutex_);
  info_ = info;
  runner_ = runner;
}

// Epochs ---------------------------------------------------------------------

std::shared_ptr<EpochStreams> EpochLinks::Begin(const Assignment& assignment) {
  MutexLock lock(mutex_);
  auto ended = std::exchange(live_, std::make_shared<EpochStreams>());
  live_->assignment = assignment;
  runner_->Reset(assignment.epoch);
  return ended;
}

std::shared_ptr<EpochStreams> EpochLinks::Release(bool draining) {
  MutexLock lock(mutex_);
  draining_ = draining;
  drain_asked_ = false;
  if (runner_ != nullptr) runner_->Reset(Epoch(0));
  return std::move(live_);
}

void EpochLinks::EndStreams(std::shared_ptr<EpochStreams> ended,
                            const Status& why) {
  idle_changed_.NotifyAll();
  if (ended != nullptr) ended->End(why);
}

void EpochLinks::Connect(const Assignment& assignment,
                         std::weak_ptr<const void> owner) {
  if (assignment.last_address.empty()) return ConnectNext(assignment, owner);
  SampledLink::Events events;
  events.on_ready = [this, owner, assignment] {
    if (auto alive = owner.lock()) ConnectNext(assignment, owner);
  };
  events.on_sampled = [this, owner](const StepResult& result) {
    if (auto alive = owner.lock()) OnSampled(result);
  };
  events.on_end = [this, owner, assignment](const Status& status) {
    if (auto alive = owner.lock()) {
      OnPeerEnd(assignment.epoch, v1::FAILURE_SIDE_LAST,
                Cat("last stage ", assignment.last_address), status);
    }
  };
  auto link = SampledLink::Open(assignment.last_address, assignment,
                                assignment.limits.plan, options_.transport,
                                std::move(events));
  if (!link.ok()) return Answer(assignment.epoch, link.status());
  MutexLock lock(mutex_);
  EpochStreams* live = LiveOf(assignment.epoch);
  if (live == nullptr) return (*link)->Cancel(Cancelled("the epoch is over"));
  live->tokens_from = *std::move(link);
}

void EpochLinks::ConnectNext(const Assignment& assignment,
                             const std::weak_ptr<const void>& owner) {
  const Epoch epoch = assignment.epoch;
  if (assignment.next_address.empty()) return Answer(epoch, OkStatus());
  rpc::CreditedSenderEvents events;
  events.on_ready = [this, owner, epoch] {
    if (auto alive = owner.lock()) Answer(epoch, OkStatus());
  };
  events.on_ack = [this, owner](const grpc::ByteBuffer& frame) {
    auto split = rpc::SplitPayload(frame, 0, kMaxAckBytes);
    if (!split.ok()) return;
    auto ack = rpc::ParseHead<v1::StepAck>(split->head);
    if (!ack.ok()) return;
    if (auto alive = owner.lock()) OnNextAck(*ack);
  };
  events.on_end = [this, owner, assignment](const Status& status) {
    if (auto alive = owner.lock()) {
      OnPeerEnd(assignment.epoch, v1::FAILURE_SIDE_SUCCESSOR,
                Cat("successor ", assignment.next_address), status);
    }
  };
  events.on_credit = [this, owner](int64_t waited_ns) {
    const auto alive = owner.lock();
    if (alive != nullptr && options_.metrics != nullptr) {
      options_.metrics->OnWindow(waited_ns);
    }
  };
  Status status;
  {
    // The callbacks come from other threads and wait for this lock.
    MutexLock lock(mutex_);
    EpochStreams* live = LiveOf(epoch);
    if (live == nullptr) return;
    rpc::TransportOptions transport = options_.transport;
    transport.max_message_bytes =
        wire::MaxFrameBytes(assignment.limits.plan, info_.hidden_size);
    auto channel =
        rpc::Connect(assignment.next_address, transport, rpc::kStageRole);
    status = channel.status();
    if (status.ok()) {
      const size_t credits =
          static_cast<size_t>(assignment.limits.max_steps_in_flight);
      live->next = rpc::CreditedSender::Open(
          {*channel, kStepsMethod,
           wire::StepsHello(assignment, info_, info_.last_layer), credits,
           2 * credits},
          std::move(events));
    }
  }
  if (!status.ok()) Answer(epoch, status);
}

void EpochLinks::Answer(Epoch epoch, const Status& status) {
  {
    MutexLock lock(mutex_);
    // A gateway that has released the stage waits for no answer.
    EpochStreams* live = LiveOf(epoch);
    if (live == nullptr) return;
    live->assigned = status.ok();
  }
  events_.on_assigned(epoch, status);
}

void EpochLinks::Fail(Epoch epoch, v1::FailureSide side, const Status& why) {
  bool drained = false;
  {
    MutexLock lock(mutex_);
    EpochStreams* live = LiveOf(epoch);
    if (live == nullptr || live->broken) return;
    live->broken = true;
    drained = std::exchange(drain_asked_, false);
  }
  idle_changed_.NotifyAll();
  LogWarning("epoch ", epoch, " failed: ", Message(why));
  events_.on_failure(epoch, side, why);
  if (drained) events_.on_drained();
}

bool EpochLinks::Drain(bool is_asked) {
  MutexLock lock(mutex_);
  draining_ = true;
  if (is_asked) drain_asked_ = !idle();
  return idle();
}

void EpochLinks::WaitIdle(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (!idle() && idle_changed_.WaitUntil(mutex_, deadline)) {
  }
}

bool EpochLinks::idle() const {
  return live_ == nullptr || live_->broken || live_->accepted == live_->done;
}

bool EpochLinks::draining() const {
  MutexLock lock(mutex_);
  return draining_;
}

EpochLinks::Progress EpochLinks::progress() const {
  MutexLock lock(mutex_);
  if (live_ == nullptr) return {};
  return {live_->assignment.epoch, live_->done, live_->hop_ns};
}

bool EpochLinks::Between(StepRunner::KvWork work) {
  MutexLock lock(mutex_);
  return runner_ != nullptr && runner_->Between(std::move(work));
}

EpochStreams* EpochLinks::LiveOf(Epoch epoch) {
  if (live_ == nullptr || live_->assignment.epoch != epoch) return nullptr;
  return live_.get();
}

// The predecessor ------------------------------------------------------------

StatusOr<EpochLinks::InputTerms> EpochLinks::OnStepsHello(
    const v1::StepsHello& hello, std::shared_ptr<StepsStream> steps) {
  MutexLock lock(mutex_);
  if (draining_) return Unavailable("this stage is shutting down");
  if (live_ == nullptr) {
    return FailedPrecondition("this stage has no epoch, the hello names ",
                              wire::EpochOf(hello));
  }
  const Assignment& place = live_->assignment;
  SLUICE_RETURN_IF_ERROR(CheckStepsHello(hello, place, info_));
  if (live_->input != nullptr) {
    return FailedPrecondition("this stage has a predecessor's stream already");
  }
  live_->input = std::move(steps);
  return InputTerms{place, info_.is_first() ? 0 : info_.hidden_size,
                    info_.first_layer};
}

Status EpochLinks::OnStepInput(StepInput input, v1::StepPlan plan,
                               int64_t wire_bytes) {
  if (options_.metrics != nullptr) {
    options_.metrics->OnWire(StageMetrics::Peer::kPrevious, wire_bytes);
  }
  MutexLock pushing(push_mutex_);
  StepRunner* runner = nullptr;
  {
    MutexLock lock(mutex_);
    if (draining_) return Unavailable("this stage is shutting down");
    EpochStreams* live = LiveOf(input.plan.epoch);
    if (live == nullptr) return OkStatus();  // stale
    ++live->accepted;
    if (live->next != nullptr) live->plans[input.plan.step_id].Swap(&plan);
    runner = runner_;
  }
  return runner->Push(std::move(input));
}

void EpochLinks::OnStepsEnd(const StepsStream* steps, const Status& status) {
  Epoch epoch;
  {
    MutexLock lock(mutex_);
    if (live_ == nullptr || live_->input.get() != steps) return;
    live_->input = nullptr;
    if (draining_) return;
    epoch = live_->assignment.epoch;
  }
  Fail(epoch, v1::FAILURE_SIDE_PREDECESSOR,
       status.ok() ? Cancelled("the predecessor ended its stream")
                   : Annotate(status, "stream of steps"));
}

// The successor --------------------------------------------------------------

void EpochLinks::OnNextAck(const v1::StepAck& ack) {
  int64_t hop = 0;
  std::shared_ptr<StepsStream> input;
  {
    MutexLock lock(mutex_);
    EpochStreams* live = LiveOf(wire::EpochOf(ack.header()));
    if (live == nullptr || live->sent_ns.empty()) return;
    const int64_t round_trip = MonotonicNanos() - live->sent_ns.front();
    live->sent_ns.pop_front();
    hop = HopNanos(ack, round_trip);
    // One slow step says little.
    const int64_t mean = live->hop_ns;
    live->hop_ns =
        std::max<int64_t>(mean == 0 ? hop : mean + (hop - mean) / 8, 1);
    live->QueueAcks();
    input = live->input;
  }
  if (input != nullptr) input->Pump();
  if (options_.metrics != nullptr) options_.metrics->OnHop(hop);
}

void EpochLinks::OnPeerEnd(Epoch epoch, v1::FailureSide side,
                           const std::string& peer, const Status& status) {
  bool assigned = false;
  {
    MutexLock lock(mutex_);
    EpochStreams* live = LiveOf(epoch);
    if (live == nullptr) return;
    assigned = live->assigned;
  }
  const Status why = status.ok() ? Unavailable(peer, " ended the stream")
                                 : Annotate(status, peer);
  if (assigned) {
    Fail(epoch, side, why);
  } else {
    Answer(epoch, why);
  }
}

void EpochLinks::OnSampled(const StepResult& result) {
  MutexLock lock(mutex_);
  if (LiveOf(result.epoch) != nullptr) runner_->OnSampled(result);
}

// Steps and results ----------------------------------------------------------

void EpochLinks::OnStep(StepOutput output) {
  const int64_t begin = MonotonicNanos();
  if (options_.metrics != nullptr) options_.metrics->OnStep(output);
  const Epoch epoch = output.plan.epoch;
  const EpochStreams::Unacked done{output.plan.step_id, output.timing};
  v1::StepResult result;
  grpc::ByteBuffer frame;
  if (output.result.has_value()) {
    result = ResultMessage(output, begin, options_.metrics);
  } else {
    v1::StepPlan plan;
    {
      MutexLock lock(mutex_);
      EpochStreams* live = LiveOf(epoch);
      if (live == nullptr) return;
      if (auto kept = live->plans.extract(done.step)) kept.mapped().Swap(&plan);
    }
    frame = NextFrame(output, std::move(plan), begin, options_.metrics);
  }
  Status status;
  std::shared_ptr<StepsStream> input;
  std::shared_ptr<rpc::CreditedSender> next;
  std::shared_ptr<ResultsStream> results, tokens_to;
  bool drained = false;
  {
    MutexLock lock(mutex_);
    EpochStreams* live = LiveOf(epoch);
    if (live == nullptr) return;
    if (output.result.has_value()) {
      results = live->results;
      tokens_to = live->tokens_to;
      status = live->QueueSampled(*output.result);
      if (status.ok()) status = live->QueueResult(std::move(result));
    } else if (live->next != nullptr) {
      next = live->next;
      live->sent_ns.push_back(MonotonicNanos());
      status = Annotate(next->EnqueueFrame(std::move(frame)), "step ",
                        done.step, " to the successor");
    }
    // Only now, so that the frame counts among those that wait.
    live->unacked.push_back(done);
    live->QueueAcks();
    input = live->input;
    ++live->done;
    drained = idle() && std::exchange(drain_asked_, false);
  }
  if (next != nullptr) next->Pump();
  if (tokens_to != nullptr) tokens_to->Pump();
  if (results != nullptr) results->Pump();
  if (input != nullptr) input->Pump();
  idle_changed_.NotifyAll();
  if (!status.ok()) {
    Fail(epoch,
         next != nullptr ? v1::FAILURE_SIDE_SUCCESSOR : v1::FAILURE_SIDE_SELF,
         status);
  }
  if (drained) events_.on_drained();
}

void EpochLinks::OnStepError(Epoch epoch, StepId step, Status why) {
  std::shared_ptr<StepsStream> input;
  {
    MutexLock lock(mutex_);
    EpochStreams* live = LiveOf(epoch);
    if (live == nullptr) return;
    input = live->input;
  }
  const Status status = Annotate(why, "step ", step);
  Fail(epoch, v1::FAILURE_SIDE_SELF, status);
  if (input != nullptr) input->End(status);
}

Status EpochLinks::OnResults(const v1::ResultsRequest& request,
                             std::shared_ptr<ResultsStream> results) {
  {
    MutexLock lock(mutex_);
    SLUICE_RETURN_IF_ERROR(CheckResultsRequest(
        request, live_ == nullptr ? nullptr : &live_->assignment, info_));
    SLUICE_RETURN_IF_ERROR(live_->AddReader(request.tokens_only(), results));
  }
  results->Pump();
  return OkStatus();
}

void EpochLinks::OnResultsEnd(const ResultsStream* results) {
  MutexLock lock(mutex_);
  if (live_ != nullptr) live_->RemoveReader(results);
}

}  // namespace sluice
