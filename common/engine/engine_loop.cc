#include "common/engine/engine_loop.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/concurrency/named_thread.h"
#include "common/engine/admission.h"
#include "common/engine/request_check.h"
#include "common/engine/scheduler.h"

namespace sluice {
namespace {

// More unread results than any pipeline has plans in flight.
constexpr size_t kMaxQueuedResults = 256;

// So often an idle pipeline is asked whether it still moves.
constexpr Duration kProbeEvery = std::chrono::seconds(1);

struct Submission {
  SequenceId id;
  GenerateRequest request;
  std::shared_ptr<TokenSink> sink;
  int64_t pushed_ns = 0;  // of a traced request
};
struct Live {
  std::string request_id;
  bool cancelled = false;
};
struct CancelCommand {
  SequenceId id;
};
struct PipelineUp {
  Epoch epoch;
  PlanLimits limits;
  int num_stages;
};
struct PipelineLost {
  Status why;
};
struct ResultFlood {};
struct BadLimits {
  Status why;
};
using Command = std::variant<Submission, CancelCommand, StepResult, PipelineUp,
                             PipelineLost, ResultFlood, BadLimits>;

}  // namespace

// The inbox is one list, so that commands take effect in the order they were
// given. Each kind has a bound of its own, so no caller can crowd out another:
// submissions by the number of live sequences, cancels by one for each of
// them, results by kMaxQueuedResults, the rest by how often pipelines change.
class EngineLoop::Impl {
 public:
  Impl(const EngineOptions& options, StepExecutor* executor)
      : options_(options),
        executor_(executor),
        admission_(options),
        scheduler_(options, &counters_) {}

  Status Start();
  void Stop();
  StatusOr<SequenceId> Submit(GenerateRequest request,
                              std::shared_ptr<TokenSink> sink);
  void Cancel(SequenceId id);
  void OnStepResult(StepResult result);
  void OnPipelineUp(Epoch epoch, const PlanLimits& limits, int num_stages);
  void OnPipelineLost(const Status& why);
  void OnPipelineLeaving(const Status& why);
  void BeginDrain();
  bool idle() const;
  bool WaitIdle(TimePoint deadline) const;
  EngineStats Stats() const;
  EngineProgress Progress() const;

 private:
  // The engine thread.
  void Run();
  // Waits for commands or the next deadline. False: stop after these.
  bool TakeCommands(std::vector<Command>& commands);
  void Handle(Submission& submission);
  void Handle(CancelCommand& cancel);
  void Handle(StepResult& result);
  void Handle(PipelineUp& up);
  void Handle(PipelineLost& lost);
  void Handle(ResultFlood& flood);
  void Handle(BadLimits& bad);
  void GiveUpPipeline(const Status& why);
  void Emit(SequenceEvents events);
  void EndOne(SequenceId id, FinalEvent event);
  void TellStep(StepTrace trace, int64_t handled_ns);
  void SubmitPlans();
  void Publish();

  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return live_.empty() && !working_ && stats_.plans_in_flight == 0;
  }
  Status Admit(const GenerateRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Push(Command command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const EngineOptions options_;
  StepExecutor* const executor_;
  NamedThread thread_;

  mutable Mutex mutex_;
  CondVar wake_;
  mutable CondVar became_idle_;
  std::vector<Command> inbox_ ABSL_GUARDED_BY(mutex_);
  size_t queued_results_ ABSL_GUARDED_BY(mutex_) = 0;
  // Accepted and not ended.
  std::unordered_map<SequenceId, Live> live_ ABSL_GUARDED_BY(mutex_);
  SequenceId next_id_ ABSL_GUARDED_BY(mutex_){1};
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool working_ ABSL_GUARDED_BY(mutex_) = false;  // on commands taken
  // Of the pipeline that is up; nothing: Submit refuses.
  std::optional<Epoch> up_ ABSL_GUARDED_BY(mutex_);
  Status leaving_ ABSL_GUARDED_BY(mutex_);  // why it will go; OK: it will not
  PlanLimits limits_ ABSL_GUARDED_BY(mutex_);
  uint64_t submitted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t refused_queue_full_ ABSL_GUARDED_BY(mutex_) = 0;
  // What the engine thread last published.
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);
  Admission admission_ ABSL_GUARDED_BY(mutex_);
  TimePoint published_progress_ ABSL_GUARDED_BY(mutex_);
  // Nothing: no plan is in flight.
  std::optional<TimePoint> published_oldest_plan_ ABSL_GUARDED_BY(mutex_);
  Duration published_expected_step_ ABSL_GUARDED_BY(mutex_){};

  // The engine thread's own.
  EngineCounters counters_;
  Scheduler scheduler_;
  Epoch epoch_;
  Status why_down_ = Unavailable("no pipeline is up");
  std::unordered_map<SequenceId, std::shared_ptr<TokenSink>> sinks_;
  TimePoint last_progress_ = Clock::now();
};

// Any thread ----------------------------------------------------------------

Status EngineLoop::Impl::Start() {
  SLUICE_RETURN_IF_ERROR(Validate(options_));
  {
    MutexLock lock(mutex_);
    if (started_) return FailedPrecondition("the engine was started before");
    started_ = true;
  }
  thread_ = NamedThread("engine", [this] { Run(); });
  return OkStatus();
}

void EngineLoop::Impl::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    started_ = true;
    wake_.NotifyOne();
  }
  thread_.Join();
}

void EngineLoop::Impl::Push(Command command) {
  inbox_.push_back(std::move(command));
  wake_.NotifyOne();
}

Status EngineLoop::Impl::Admit(const GenerateRequest& request) {
  if (stopping_ || !started_) return Unavailable("shutting down");
  if (draining_) return Unavailable("draining: no new requests are taken");
  if (!up_) return Unavailable("no pipeline is up");
  SLUICE_RETURN_IF_ERROR(leaving_);
  Status status = admission_.Admit(request);
  if (!status.ok()) ++refused_queue_full_;
  return status;
}

StatusOr<SequenceId> EngineLoop::Impl::Submit(GenerateRequest request,
                                              std::shared_ptr<TokenSink> sink) {
  SLUICE_CHECK(sink != nullptr);
  PlanLimits limits;
  {
    MutexLock lock(mutex_);
    if (up_) limits = limits_;
  }
  // Outside the lock: the prompt may be long. Checked again below if the
  // pipeline changed meanwhile.
  const auto check = [&] { return CheckRequest(request, limits); };
  Status fits = limits.vocab_size > 0 ? check() : OkStatus();
  MutexLock lock(mutex_);
  if (up_ && !(limits == limits_)) {
    limits = limits_;
    fits = check();
  }
  SLUICE_RETURN_IF_ERROR(fits);
  SLUICE_RETURN_IF_ERROR(Admit(request));
  const int64_t pushed_ns = request.trace ? MonotonicNanos() : 0;
  const SequenceId id = next_id_;
  ++next_id_;
  ++submitted_;
  live_.emplace(id, Live{request.request_id});
  Push(Submission{id, std::move(request), std::move(sink), pushed_ns});
  return id;
}

void EngineLoop::Impl::Cancel(SequenceId id) {
  MutexLock lock(mutex_);
  const auto it = live_.find(id);
  if (it == live_.end() || it->second.cancelled) return;
  it->second.cancelled = true;
  Push(CancelCommand{id});
}

void EngineLoop::Impl::OnStepResult(StepResult result) {
  if (result.trace) result.trace->inbox.start_ns = MonotonicNanos();
  MutexLock lock(mutex_);
  if (stopping_ || queued_results_ > kMaxQueuedResults) return;
  if (++queued_results_ > kMaxQueuedResults) {
    Push(ResultFlood());
    return;
  }
  Push(std::move(result));
}

void EngineLoop::Impl::OnPipelineUp(Epoch epoch, const PlanLimits& limits,
                                    int num_stages) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  if (Status status = Validate(limits); !status.ok()) {
    Push(BadLimits{Annotate(status, "the pipeline's limits")});
    return;
  }
  up_ = epoch;
  leaving_ = OkStatus();
  limits_ = limits;
  Push(PipelineUp{epoch, limits, num_stages});
}

void EngineLoop::Impl::OnPipelineLost(const Status& why) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  up_.reset();
  Push(PipelineLost{Unavailable("the pipeline is lost: ", Message(why))});
}

void EngineLoop::Impl::OnPipelineLeaving(const Status& why) {
  MutexLock lock(mutex_);
  leaving_ = why;
}

void EngineLoop::Impl::BeginDrain() {
  MutexLock lock(mutex_);
  draining_ = true;
}

bool EngineLoop::Impl::idle() const {
  MutexLock lock(mutex_);
  return IsIdle();
}

bool EngineLoop::Impl::WaitIdle(TimePoint deadline) const {
  MutexLock lock(mutex_);
  while (!IsIdle()) {
    if (!became_idle_.WaitUntil(mutex_, deadline)) return IsIdle();
  }
  return true;
}

EngineStats EngineLoop::Impl::Stats() const {
  MutexLock lock(mutex_);
  EngineStats stats = stats_;
  stats.submitted = submitted_;
  stats.refused_queue_full = refused_queue_full_;
  return stats;
}

EngineProgress EngineLoop::Impl::Progress() const {
  const TimePoint now = Clock::now();
  MutexLock lock(mutex_);
  EngineProgress progress;
  progress.pipeline_up = up_.has_value();
  progress.plans_in_flight = stats_.plans_in_flight;
  progress.since_last_result = now - published_progress_;
  progress.expected_step = published_expected_step_;
  if (published_oldest_plan_) {
    progress.oldest_plan_age =
        std::max(now - *published_oldest_plan_, Duration::zero());
  }
  return progress;
}

// The engine thread ---------------------------------------------------------

void EngineLoop::Impl::Run() {
  bool go_on = true;
  while (go_on) {
    std::vector<Command> commands;
    go_on = TakeCommands(commands);
    for (Command& command : commands) {
      std::visit([this](auto& c) { Handle(c); }, command);
    }
    Emit(scheduler_.Expire(Clock::now()));
    if (go_on) {
      SubmitPlans();
    } else {
      Emit(scheduler_.Detach(Unavailable("shutting down")));
    }
    Publish();
  }
}

bool EngineLoop::Impl::TakeCommands(std::vector<Command>& commands) {
  std::optional<TimePoint> deadline = scheduler_.next_deadline();
  if (scheduler_.quiet()) {
    const TimePoint probe = last_progress_ + kProbeEvery;
    deadline = std::min(deadline.value_or(probe), probe);
  }
  MutexLock lock(mutex_);
  while (inbox_.empty() && !stopping_) {
    if (!deadline) {
      wake_.Wait(mutex_);
    } else if (!wake_.WaitUntil(mutex_, *deadline)) {
      break;
    }
  }
  commands.swap(inbox_);
  admission_.OnTaken();
  queued_results_ = 0;
  // A result alone is no work: unless it is a probe's its plan still counts.
  working_ = std::any_of(
      commands.begin(), commands.end(),
      [](const Command& c) { return !std::holds_alternative<StepResult>(c); });
  return !stopping_;
}

void EngineLoop::Impl::Handle(Submission& submission) {
  if (submission.request.trace) {
    submission.sink->OnInbox({submission.pushed_ns, MonotonicNanos()});
  }
  sinks_.emplace(submission.id, std::move(submission.sink));
  if (scheduler_.attached()) {
    scheduler_.Add(submission.id, std::move(submission.request));
    return;
  }
  // Accepted just before the engine found the pipeline broken.
  ++counters_.finished_error;
  FinalEvent event{.reason = FinishReason::kError, .status = why_down_};
  event.stats.prompt_tokens =
      static_cast<int32_t>(submission.request.prompt_tokens.size());
  EndOne(submission.id, std::move(event));
}

void EngineLoop::Impl::Handle(CancelCommand& cancel) {
  Emit(scheduler_.End(cancel.id, FinishReason::kCancelled, OkStatus()));
}

void EngineLoop::Impl::Handle(StepResult& result) {
  const bool stale = !scheduler_.attached() || result.epoch != epoch_;
  const int64_t handled_ns = MonotonicNanos();
  const TimePoint now = Clock::now();
  std::optional<StepTrace> trace = std::move(result.trace);
  StatusOr<SequenceEvents> events = scheduler_.Commit(std::move(result), now);
  if (!events.ok()) {
    GiveUpPipeline(events.status());
    return;
  }
  if (!stale) last_progress_ = now;
  if (trace && !stale) TellStep(*std::move(trace), handled_ns);
  Emit(*std::move(events));
}

void EngineLoop::Impl::Handle(PipelineUp& up) {
  if (scheduler_.attached()) {
    Emit(scheduler_.Detach(Unavailable("the pipeline was rebuilt")));
  }
  epoch_ = up.epoch;
  last_progress_ = Clock::now();
  Emit(scheduler_.Attach(up.epoch, up.limits, up.num_stages));
}

void EngineLoop::Impl::Handle(PipelineLost& lost) {
  why_down_ = lost.why;
  Emit(scheduler_.Detach(why_down_));
}

void EngineLoop::Impl::Handle(ResultFlood&) {
  if (!scheduler_.attached()) return;  // what was dropped was stale
  GiveUpPipeline(
      Internal("more than ", kMaxQueuedResults, " unread step results"));
}

void EngineLoop::Impl::Handle(BadLimits& bad) { GiveUpPipeline(bad.why); }

void EngineLoop::Impl::GiveUpPipeline(const Status& why) {
  {
    MutexLock lock(mutex_);
    // Unless a newer pipeline has been announced already.
    if (up_ && *up_ == epoch_) up_.reset();
  }
  LogError("the pipeline is broken: ", Message(why));
  why_down_ = Unavailable("the pipeline is broken: ", Message(why));
  Emit(scheduler_.Detach(why_down_));
  executor_->OnPipelineBroken(why);
}

void EngineLoop::Impl::Emit(SequenceEvents events) {
  for (SequenceEvent& event : events) {
    if (auto* tokens = std::get_if<TokenEvent>(&event.what)) {
      sinks_.at(event.sequence)->OnTokens(std::move(*tokens));
    } else {
      EndOne(event.sequence, std::get<FinalEvent>(std::move(event.what)));
    }
  }
}

void EngineLoop::Impl::EndOne(SequenceId id, FinalEvent event) {
  auto node = sinks_.extract(id);
  SLUICE_CHECK(!node.empty());
  {
    // First: whoever sees the end may submit the next request.
    MutexLock lock(mutex_);
    const auto live = live_.extract(id);
    SLUICE_CHECK(!live.empty());
    admission_.OnEnd(live.mapped().request_id);
  }
  node.mapped()->OnEnd(std::move(event));
}

// Those of the step's sequences that are traced hear of it.
void EngineLoop::Impl::TellStep(StepTrace trace, int64_t handled_ns) {
  trace.inbox.stop_ns = handled_ns;
  trace.commit = {handled_ns, MonotonicNanos()};
  const auto step = std::make_shared<const StepTrace>(std::move(trace));
  for (const TracedChunk& chunk : step->chunks) {
    const auto sink = sinks_.find(chunk.sequence);
    if (sink != sinks_.end()) sink->second->OnStep(step, chunk);
  }
}

void EngineLoop::Impl::SubmitPlans() {
  while (true) {
    const TimePoint begin = Clock::now();
    std::optional<StepPlan> plan = scheduler_.Plan(begin);
    const TimePoint end = Clock::now();
    counters_.plan_time += end - begin;
    if (!plan) break;
    if (plan->trace) plan->trace->plan = {ToNanos(begin), ToNanos(end)};
    executor_->Submit(*std::move(plan));
  }
  const TimePoint now = Clock::now();
  if (scheduler_.quiet() && now - last_progress_ >= kProbeEvery) {
    executor_->Submit(scheduler_.Probe(now));
  }
}

void EngineLoop::Impl::Publish() {
  MutexLock lock(mutex_);
  scheduler_.FillStats(stats_);
  admission_.Publish(scheduler_.Queue());
  published_progress_ = last_progress_;
  published_oldest_plan_.reset();
  published_expected_step_ = Duration::zero();
  if (scheduler_.plans_in_flight() > 0) {
    published_oldest_plan_ = scheduler_.oldest_plan();
    published_expected_step_ = scheduler_.expected_step();
  }
  working_ = false;
  if (IsIdle()) became_idle_.NotifyAll();
}

// The outside ---------------------------------------------------------------

EngineLoop::EngineLoop(const EngineOptions& options, StepExecutor* executor)
    : impl_(std::make_unique<Impl>(options, executor)) {}
EngineLoop::~EngineLoop() { Stop(); }
Status EngineLoop::Start() { return impl_->Start(); }
void EngineLoop::Stop() { impl_->Stop(); }
StatusOr<SequenceId> EngineLoop::Submit(GenerateRequest request,
                                        std::shared_ptr<TokenSink> sink) {
  return impl_->Submit(std::move(request), std::move(sink));
}
void EngineLoop::Cancel(SequenceId sequence) { impl_->Cancel(sequence); }
void EngineLoop::OnStepResult(StepResult result) {
  impl_->OnStepResult(std::move(result));
}
void EngineLoop::OnPipelineUp(Epoch epoch, const PlanLimits& limits,
                              int num_stages) {
  impl_->OnPipelineUp(epoch, limits, num_stages);
}
void EngineLoop::OnPipelineLost(const Status& why) {
  impl_->OnPipelineLost(why);
}
void EngineLoop::OnPipelineLeaving(const Status& why) {
  impl_->OnPipelineLeaving(why);
}
void EngineLoop::BeginDrain() { impl_->BeginDrain(); }
bool EngineLoop::idle() const { return impl_->idle(); }
bool EngineLoop::WaitIdle(TimePoint deadline) const {
  return impl_->WaitIdle(deadline);
}
EngineStats EngineLoop::Stats() const { return impl_->Stats(); }
EngineProgress EngineLoop::Progress() const { return impl_->Progress(); }

}  // namespace sluice
