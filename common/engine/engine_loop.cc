#include "common/engine/engine_loop.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/engine/engine_impl.h"
#include "common/engine/request_check.h"

namespace sluice {

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
