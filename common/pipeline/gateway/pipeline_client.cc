// The client's surface: its thread, its queue, and the way of plans and
// results, which does not pass through the thread.
#include "common/pipeline/gateway/pipeline_client.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/catch_exceptions.h"
#include "common/base/log.h"
#include "common/pipeline/gateway/pipeline_impl.h"
#include "common/rpc/transport.h"

namespace sluice {
namespace {

constexpr size_t kMaxEvents = 8192;
constexpr size_t kMaxMessageEvents = kMaxEvents / 2;  // the rest: streams' ends
// A tick waits no longer than this for events that were there before.
constexpr Duration kLate = std::chrono::milliseconds(500);
constexpr int64_t kMaxControlMessage = int64_t{1} << 20;

PipelineOptions WithId(PipelineOptions options) {
  if (options.gateway_id.empty()) {
    options.gateway_id = Cat(RandomHex(16), "-", getpid());
  }
  return options;
}

}  // namespace

const char* ToString(StageState state) {
  switch (state) {
    case StageState::kConnecting:
      return "connecting";
    case StageState::kLoading:
      return "loading";
    case StageState::kHandshaking:
      return "handshaking";
    case StageState::kReady:
      return "ready";
    case StageState::kSuspect:
      return "suspect";
    case StageState::kDraining:
      return "draining";
    case StageState::kLost:
      return "lost";
    case StageState::kRefused:
      return "refused";
  }
  return "unknown";
}

PipelineCallbacks CallbacksTo(EngineLoop* engine) {
  return {
      [engine](Epoch epoch, const PlanLimits& limits, int num_stages) {
        engine->OnPipelineUp(epoch, limits, num_stages);
      },
      [engine](const Status& why) { engine->OnPipelineLost(why); },
      [engine](StepResult result) { engine->OnStepResult(std::move(result)); },
      [engine](const Status& why) { engine->OnPipelineLeaving(why); },
      [engine] { return engine->idle(); }};
}

PipelineClient::Impl::Impl(PipelineOptions options)
    : options_(WithId(std::move(options))), events_(kMaxEvents) {
  for (const std::string& address : options_.stages) {
    Stage& stage = stages_.emplace_back();
    stage.address = address;
  }
  clocks_.resize(stages_.size());
  Publish();
}

Status PipelineClient::Impl::OpenChannels() {
  rpc::TransportOptions transport = options_.transport;
  transport.max_message_bytes = kMaxControlMessage;
  for (Stage& stage : stages_) {
    SLUICE_ASSIGN_OR_RETURN(stage.channel,
                            rpc::Connect(stage.address, transport));
  }
  return OkStatus();
}

void PipelineClient::Impl::Start(PipelineCallbacks callbacks) {
  callbacks_ = std::move(callbacks);
  thread_ = NamedThread("pipeline", [this] { Run(); });
}

void PipelineClient::Impl::Drain(TimePoint deadline) {
  Post([this] { SendDrain(); });
  MutexLock lock(status_mutex_);
  while (!drained_ && drained_changed_.WaitUntil(status_mutex_, deadline)) {
  }
}

void PipelineClient::Impl::Stop() {
  // A flag beside the event, for a queue that is full.
  stopping_ = true;
  Post([] {});
  thread_.Join();
}

void PipelineClient::Impl::Run() {
  const Duration interval =
      std::min<Duration>(options_.heartbeat, std::chrono::milliseconds(100));
  TimePoint next_tick = Clock::now();
  while (!stopping_) {
    const Status done = CatchExceptions("pipeline", [&] {
      if (std::optional<Event> event = events_.Pop(next_tick)) (*event)();
      const TimePoint now = Clock::now();
      // After the events that came before: a message that nobody has read yet
      // is no silence.
      if (now >= next_tick &&
          (events_.size() == 0 || now >= next_tick + kLate)) {
        next_tick = now + interval;  // whatever the tick does
        if (event_lost_.exchange(false)) {
          Lose(0, Unavailable("memory was short for an event of a stream"));
        }
        Tick(now);
      }
      Publish();
    });
    if (done.ok()) continue;
    OnException(done);
    const Status lost = CatchExceptions("pipeline", [&] { Lose(0, done); });
    if (!lost.ok()) OnException(lost);
  }
  events_.Close();
  phase_ = Phase::kGathering;
  message_ = "stopped";
  CloseStreams(Cancelled("the gateway is shutting down"));
  for (Stage& stage : stages_) {
    if (stage.link != nullptr) stage.link->HalfClose();
    stage.link = nullptr;
    stage.welcome.reset();
  }
  Publish();
}

void PipelineClient::Impl::Post(Event event) {
  const Status status = events_.Push(std::move(event));
  if (status.code() == StatusCode::kResourceExhausted) {
    LogError("pipeline: an event is lost: ", Message(status));
  }
}

// Plans and results ----------------------------------------------------------

void PipelineClient::Impl::SetLive(
    Epoch epoch, std::shared_ptr<rpc::CreditedSender> sender) {
  {
    MutexLock lock(submit_mutex_);
    submit_epoch_ = epoch;
    sender_ = std::move(sender);
  }
  {
    MutexLock lock(trace_mutex_);
    traces_.Begin(epoch);
  }
  MutexLock lock(deliver_mutex_);
  deliver_epoch_ = epoch;
}

void PipelineClient::Impl::Submit(const StepPlan& plan) {
  std::shared_ptr<rpc::CreditedSender> sender;
  {
    MutexLock lock(submit_mutex_);
    if (sender_ == nullptr || plan.epoch != submit_epoch_) return;
    sender = sender_;
  }
  const int64_t begin = plan.trace.has_value() ? MonotonicNanos() : 0;
  grpc::ByteBuffer frame = PlanFrame(plan);
  if (plan.trace.has_value()) {
    StepTrace trace = *plan.trace;
    trace.serialise = {begin, MonotonicNanos()};
    MutexLock lock(trace_mutex_);
    traces_.OnPlan(plan.epoch, trace);
  }
  const Status status = sender->SendFrame(std::move(frame));
  // After the stream's end its own event tells more.
  if (status.code() == StatusCode::kResourceExhausted) Break(status);
}

void PipelineClient::Impl::Break(Status why) {
  Post([this, why] { Lose(0, why); });
}

void PipelineClient::Impl::OnException(const Status& what) {
  exceptions_log_.Write(LogLevel::kError, "caught: ", Message(what));
  if (callbacks_.on_exception) callbacks_.on_exception(what);
}

// On gRPC's thread: a message or an end that gets lost breaks the pipeline.
template <typename Work>
void PipelineClient::Impl::Guard(Work&& work) {
  const Status done = CatchExceptions("pipeline", std::forward<Work>(work));
  if (done.ok()) return;
  const Status told = CatchExceptions("pipeline", [&] {
    Break(done);
    OnException(done);
  });
  if (!told.ok()) event_lost_ = true;
}

void PipelineClient::Impl::Take(Epoch epoch, const v1::StepResult& proto,
                                const PlanLimits& limits) {
  const int64_t received_ns = MonotonicNanos();
  auto result = wire::FromProto(proto, limits);
  if (!result.ok()) {
    Post([this, epoch, status = result.status()] {
      OnStreamEnd(epoch, stages_.size() - 1, "a result is refused", status);
    });
    return;
  }
  MutexLock lock(deliver_mutex_);
  if (deliver_epoch_ != epoch || result->epoch != epoch ||
      result->replica != options_.replica) {
    return;
  }
  last_result_ns_ = MonotonicNanos();
  FinishTrace(*result, received_ns);
  callbacks_.on_result(*std::move(result));
}

void PipelineClient::Impl::FinishTrace(StepResult& result,
                                       int64_t received_ns) {
  std::vector<ClockEstimate> clocks;
  if (result.trace.has_value()) clocks = Clocks();
  MutexLock lock(trace_mutex_);
  traces_.Complete(clocks, received_ns, result);
  if (result.trace.has_value()) {
    result.trace->receive = {received_ns, MonotonicNanos()};
  }
}

std::vector<ClockEstimate> PipelineClient::Impl::Clocks() const {
  const int64_t now_ns = MonotonicNanos();
  MutexLock lock(trace_mutex_);
  std::vector<ClockEstimate> clocks;
  for (const StageClock& clock : clocks_) clocks.push_back(clock.At(now_ns));
  return traces_.Best(clocks, now_ns);
}

// Streams' events ------------------------------------------------------------

ControlLink::Events PipelineClient::Impl::ControlEvents(size_t index,
                                                        uint64_t link_id) {
  const auto weak = weak_from_this();
  ControlLink::Events events;
  events.on_message = [weak, index, link_id](v1::ControlResponse& response) {
    const auto self = weak.lock();
    // A stage that floods us loses messages, and then its heartbeats.
    if (self == nullptr || self->events_.size() >= kMaxMessageEvents) return;
    self->Guard([&] {
      self->Post([impl = self.get(), index, link_id,
                  message = std::move(response), now = MonotonicNanos()] {
        impl->OnControl(index, link_id, message, now);
      });
    });
  };
  events.on_end = [weak, index, link_id](const Status& status) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->Guard([&] {
      self->Post([impl = self.get(), index, link_id, status] {
        impl->OnControlEnd(index, link_id, status);
      });
    });
  };
  return events;
}

ResultsLink::Events PipelineClient::Impl::ResultsEvents(
    Epoch epoch, const PlanLimits& limits) {
  const auto weak = weak_from_this();
  ResultsLink::Events events;
  events.on_message = [weak, epoch, limits](v1::StepResult& result) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->Guard([&] { self->Take(epoch, result, limits); });
  };
  events.on_end = [weak, epoch](const Status& status) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->Guard([&] {
      self->Post([impl = self.get(), epoch, status] {
        impl->OnStreamEnd(epoch, impl->stages_.size() - 1, "stream of results",
                          status);
      });
    });
  };
  return events;
}

rpc::CreditedSenderEvents PipelineClient::Impl::StepsEvents(Epoch epoch) {
  const auto weak = weak_from_this();
  rpc::CreditedSenderEvents events;
  events.on_ready = [weak, epoch] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->Guard([&] {
      self->Post([impl = self.get(), epoch] { impl->OnStepsReady(epoch); });
    });
  };
  events.on_ack = [](const grpc::ByteBuffer&) {};
  events.on_end = [weak, epoch](const Status& status) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->Guard([&] {
      self->Post([impl = self.get(), epoch, status] {
        impl->OnStreamEnd(epoch, 0, "stream of steps", status);
      });
    });
  };
  return events;
}

// Status ---------------------------------------------------------------------

PipelineStatus PipelineClient::Impl::status() const {
  const TimePoint now = Clock::now();
  std::vector<ClockEstimate> clocks = Clocks();
  MutexLock lock(status_mutex_);
  PipelineStatus copy = published_;
  for (size_t i = 0; i < copy.stages.size(); ++i) {
    copy.stages[i].clock = clocks[i];
    if (heard_[i] != TimePoint()) copy.stages[i].last_heard = now - heard_[i];
  }
  return copy;
}

bool PipelineClient::Impl::ready() const {
  MutexLock lock(status_mutex_);
  return published_.ready;
}

std::optional<PipelineModel> PipelineClient::Impl::model() const {
  MutexLock lock(status_mutex_);
  return model_;
}

// PipelineClient -------------------------------------------------------------

StatusOr<std::unique_ptr<PipelineClient>> PipelineClient::Create(
    PipelineOptions options) {
  if (options.stages.empty()) {
    return InvalidArgument("a pipeline needs at least one stage");
  }
  if (options.heartbeat <= Duration::zero() ||
      options.suspect_after < options.heartbeat ||
      options.transport.peer_timeout < options.suspect_after) {
    return InvalidArgument(
        "heartbeat, time to suspicion and peer timeout must rise, got ",
        Seconds(options.heartbeat), " s, ", Seconds(options.suspect_after),
        " s, ", Seconds(options.transport.peer_timeout), " s");
  }
  auto impl = std::make_shared<Impl>(std::move(options));
  SLUICE_RETURN_IF_ERROR(impl->OpenChannels());
  return std::unique_ptr<PipelineClient>(new PipelineClient(std::move(impl)));
}

PipelineClient::PipelineClient(std::shared_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
PipelineClient::~PipelineClient() { Stop(); }
void PipelineClient::Start(PipelineCallbacks callbacks) {
  impl_->Start(std::move(callbacks));
}
void PipelineClient::Drain(TimePoint deadline) { impl_->Drain(deadline); }
void PipelineClient::Stop() { impl_->Stop(); }
void PipelineClient::Submit(StepPlan plan) { impl_->Submit(plan); }
void PipelineClient::OnPipelineBroken(Status why) {
  impl_->Break(Annotate(why, "the engine refuses the pipeline's answers"));
}
PipelineStatus PipelineClient::status() const { return impl_->status(); }
bool PipelineClient::ready() const { return impl_->ready(); }
std::optional<PipelineModel> PipelineClient::model() const {
  return impl_->model();
}

}  // namespace sluice
