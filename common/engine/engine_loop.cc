#include "common/engine/engine_loop.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/engine/engine_thread.h"

namespace sluice {

EngineLoop::EngineLoop(const EngineOptions& options, StepExecutor* executor)
    : options_(options),
      gate_(options.recovery_timeout > Duration::zero()),
      admission_(options),
      board_(std::make_shared<ConstraintNoticeBoard>([this](SequenceId id) {
        MutexLock lock(mutex_);
        Push(ConstraintReady{id});
      })),
      engine_(std::make_unique<EngineThread>(
          this, options_, executor,
          [board = board_](SequenceId id) { board->Tell(id); })) {}

EngineLoop::~EngineLoop() { Stop(); }

Status EngineLoop::Start() {
  SLUICE_RETURN_IF_ERROR(Validate(options_));
  {
    MutexLock lock(mutex_);
    if (started_) return FailedPrecondition("the engine was started before");
    started_ = true;
  }
  thread_ = NamedThread("engine", [this] { engine_->Run(); });
  return OkStatus();
}

void EngineLoop::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    started_ = true;
    wake_.NotifyOne();
  }
  thread_.Join();
  board_->Close();
}

// Returns why all requests are refused, or OK.
Status EngineLoop::CheckOpen() const {
  if (stopping_ || !started_) return Unavailable("shutting down");
  if (draining_) return Unavailable("draining: no new requests are taken");
  return gate_.Check();
}

StatusOr<SequenceId> EngineLoop::Submit(GenerateRequest request,
                                        std::shared_ptr<TokenSink> sink) {
  SLUICE_CHECK(sink != nullptr);
  std::optional<PlanLimits> limits;
  {
    MutexLock lock(mutex_);
    limits = gate_.limits();
  }
  // Outside the lock: the prompt may be long. Checked again below if the
  // pipeline has changed.
  const auto check = [&] {
    return limits ? CheckRequest(request, *limits) : OkStatus();
  };
  Status fits = check();
  MutexLock lock(mutex_);
  if (gate_.limits() != limits) {
    limits = gate_.limits();
    fits = check();
  }
  SLUICE_RETURN_IF_ERROR(fits);
  SLUICE_RETURN_IF_ERROR(CheckOpen());
  if (Status status = admission_.Admit(request); !status.ok()) {
    ++refused_queue_full_;
    return status;
  }
  const int64_t pushed_ns = request.trace ? MonotonicNanos() : 0;
  const SequenceId id = next_id_;
  ++next_id_;
  ++submitted_;
  ++num_live_;
  std::string request_id = request.request_id;
  Push(Submission{id, std::move(request_id), std::move(request),
                  std::move(sink), pushed_ns});
  return id;
}

void EngineLoop::Cancel(SequenceId id) {
  MutexLock lock(mutex_);
  if (id < next_id_ && cancels_.insert(id).second) Push(CancelCommand{id});
}

void EngineLoop::OnStepResult(StepResult result) {
  if (result.trace) result.trace->inbox.start_ns = MonotonicNanos();
  MutexLock lock(mutex_);
  if (stopping_ || queued_results_ > kMaxQueuedResults) return;
  if (++queued_results_ <= kMaxQueuedResults) return Push(std::move(result));
  Push(PipelineBroken{
      Internal("more than ", kMaxQueuedResults, " unread step results"),
      /*if_attached=*/true});
}

void EngineLoop::OnPipelineUp(Epoch epoch, const PlanLimits& limits,
                              int num_stages, const LostStages& lost) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  if (Status status = Validate(limits); !status.ok()) {
    refused_ = true;
    return Push(PipelineBroken{Annotate(status, "the pipeline's limits")});
  }
  gate_.OnUp(epoch, limits);
  max_context_ = static_cast<int32_t>(
      std::min(int64_t{limits.max_context}, MaxPositions(limits)));
  // `lost` is told since the last pipeline, be it one that was refused.
  const bool is_known = !std::exchange(refused_, false);
  Push(PipelineUp{epoch, limits, num_stages, is_known ? lost : std::nullopt});
}

void EngineLoop::OnPipelineLost(const Status& why, bool is_planned) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  gate_.OnLost();
  Push(PipelineLost{Unavailable("the pipeline is lost: ", Message(why)),
                    is_planned});
}

void EngineLoop::OnSuperseded(const Status& why) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  gate_.OnLost();
  gate_.OnGivenUp();
  Push(PipelineLost{.why = why, .is_final = true});
}

void EngineLoop::OnPipelineLeaving(const Status& why) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  gate_.OnLeaving(why);
  if (options_.recovery_timeout > Duration::zero()) Push(PipelineLeaving());
}

bool EngineLoop::WaitIdle(TimePoint deadline) const {
  MutexLock lock(mutex_);
  while (!IsIdle()) {
    if (!became_idle_.WaitUntil(mutex_, deadline)) return IsIdle();
  }
  return true;
}

EngineStats EngineLoop::Stats() const {
  MutexLock lock(mutex_);
  EngineStats stats = stats_;
  stats.submitted = submitted_;
  stats.refused_queue_full = refused_queue_full_;
  return stats;
}

EngineProgress EngineLoop::Progress() const {
  const TimePoint now = Clock::now();
  MutexLock lock(mutex_);
  EngineProgress progress = progress_.At(now);
  progress.pipeline_up = gate_.is_up();
  progress.recovering = gate_.is_recovering();
  progress.plans_in_flight = stats_.plans_in_flight;
  return progress;
}

bool EngineLoop::TakeCommands(TimePoint deadline,
                              std::vector<EngineCommand>& commands) {
  MutexLock lock(mutex_);
  while (inbox_.empty() && !stopping_) {
    if (deadline == TimePoint::max()) {
      wake_.Wait(mutex_);
    } else if (!wake_.WaitUntil(mutex_, deadline)) {
      break;
    }
  }
  commands.swap(inbox_);
  admission_.OnTaken();
  queued_results_ = 0;
  cancels_.clear();
  // A result alone is no work: its plan still counts, unless it is a probe's.
  working_ =
      std::any_of(commands.begin(), commands.end(), [](const EngineCommand& c) {
        return !std::holds_alternative<StepResult>(c);
      });
  return !stopping_;
}

bool EngineLoop::GiveUp() {
  MutexLock lock(mutex_);
  if (gate_.is_up()) return false;
  gate_.OnGivenUp();
  return true;
}

void EngineLoop::Publish(const EngineStats& stats, QueueState queue,
                         const ProgressTimes& progress) {
  MutexLock lock(mutex_);
  stats_ = stats;
  admission_.Publish(std::move(queue));
  progress_ = progress;
  working_ = false;
  if (IsIdle()) became_idle_.NotifyAll();
}

}  // namespace sluice
