// The engine's thread: commands in, plans and events out.
#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/catch_exceptions.h"
#include "common/base/check.h"
#include "common/base/exception_counts.h"
#include "common/base/log.h"
#include "common/concurrency/short_slices.h"
#include "common/engine/engine_impl.h"

namespace sluice {
namespace {

// So often an idle pipeline is asked whether it still moves.
constexpr Duration kProbeEvery = std::chrono::seconds(1);

}  // namespace

void EngineLoop::Impl::Run() {
  AskForShortSlices();
  bool go_on = true;
  while (go_on) {
    std::vector<Command> commands;
    go_on = TakeCommands(commands);
    for (Command& command : commands) HandleSafely(command);
    const Status planned = CatchExceptions("engine", [&] {
      Emit(scheduler_.Expire(Clock::now()));
      if (go_on) {
        SubmitPlans();
      } else {
        Emit(scheduler_.Detach(Unavailable("shutting down")));
      }
      Publish();
    });
    if (planned.ok()) continue;
    OnException(planned);
    GiveUpSafely(planned);
  }
}

void EngineLoop::Impl::GiveUpSafely(const Status& why) {
  const Status given_up =
      CatchExceptions("engine", [&] { GiveUpPipeline(why); });
  if (!given_up.ok()) OnException(given_up);
}

void EngineLoop::Impl::HandleSafely(Command& command) {
  const Status handled = CatchExceptions(
      "engine", [&] { std::visit([this](auto& c) { Handle(c); }, command); });
  if (handled.ok()) return;
  OnException(handled);
  auto* const submission = std::get_if<Submission>(&command);
  if (submission == nullptr) {
    GiveUpSafely(handled);
    return;
  }
  ++counters_.finished_error;
  if (submission->sink != nullptr) {
    sinks_.emplace(submission->id, std::move(submission->sink));
  }
  EndOne(submission->id, {.reason = FinishReason::kError, .status = handled});
}

void EngineLoop::Impl::OnException(const Status& what) {
  ++counters_.exceptions;
  CountException("engine");
  LogError("caught: ", Message(what));
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

// A sink that throws has lost tokens: its sequence ends with that error, also
// if it has just ended well.
void EngineLoop::Impl::Emit(SequenceEvents events) {
  std::vector<std::pair<SequenceId, Status>> failed;
  for (SequenceEvent& event : events) {
    const auto error = std::find_if(
        failed.begin(), failed.end(),
        [&](const auto& one) { return one.first == event.sequence; });
    auto* const tokens = std::get_if<TokenEvent>(&event.what);
    if (tokens == nullptr) {
      auto& end = std::get<FinalEvent>(event.what);
      if (error != failed.end()) {
        end.reason = FinishReason::kError;
        end.status = error->second;
        failed.erase(error);
      }
      EndOne(event.sequence, std::move(end));
    } else if (error == failed.end()) {
      const Status told = CatchExceptions("sink", [&] {
        sinks_.at(event.sequence)->OnTokens(std::move(*tokens));
      });
      if (told.ok()) continue;
      OnException(told);
      failed.emplace_back(event.sequence, told);
    }
  }
  for (const auto& [id, why] : failed) {
    Emit(scheduler_.End(id, FinishReason::kError, why));
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
  TellEnd(*node.mapped(), std::move(event));
}

// Once more, and less, if the sink throws: without its end a request hangs.
void EngineLoop::Impl::TellEnd(TokenSink& sink, FinalEvent event) {
  const Status told =
      CatchExceptions("sink", [&] { sink.OnEnd(std::move(event)); });
  if (told.ok()) return;
  OnException(told);
  const Status again = CatchExceptions("sink", [&] {
    sink.OnEnd({.reason = FinishReason::kError, .status = told});
  });
  if (!again.ok()) OnException(again);
}

void EngineLoop::Impl::Tell(const std::function<void()>& sink) {
  const Status told = CatchExceptions("sink", sink);
  if (!told.ok()) OnException(told);
}

// Those of the step's sequences that are traced hear of it.
void EngineLoop::Impl::TellStep(StepTrace trace, int64_t handled_ns) {
  trace.inbox.stop_ns = handled_ns;
  trace.commit = {handled_ns, MonotonicNanos()};
  const auto step = std::make_shared<const StepTrace>(std::move(trace));
  for (const TracedChunk& chunk : step->chunks) {
    const auto sink = sinks_.find(chunk.sequence);
    if (sink == sinks_.end()) continue;
    Tell([&] { sink->second->OnStep(step, chunk); });
  }
}

void EngineLoop::Impl::TellStarts(const StepPlan& plan) {
  for (const StartedSequence& started : plan.started) {
    const auto sink = sinks_.find(started.sequence);
    if (sink != sinks_.end()) Tell([&] { sink->second->OnStart(); });
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
    TellStarts(*plan);
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

}  // namespace sluice
