#include "common/engine/engine_thread.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/catch_exceptions.h"
#include "common/base/exception_counts.h"
#include "common/base/log.h"
#include "common/concurrency/short_slices.h"

namespace sluice {
namespace {

// How often a probe checks an idle pipeline.
constexpr Duration kProbeEvery = std::chrono::seconds(1);

// Runs `call`, in `where`. Counts, logs and returns an exception.
template <typename Call>
Status Guarded(const char* where, EngineCounters& counters, const Call& call) {
  Status status = CatchExceptions(where, call);
  if (!status.ok()) {
    ++counters.exceptions;
    CountException("engine");
    LogError("caught: ", Message(status));
  }
  return status;
}

void TellEnd(TokenSink& sink, EngineCounters& counters, FinalEvent event) {
  const Status told =
      Guarded("sink", counters, [&] { sink.OnEnd(std::move(event)); });
  if (told.ok()) return;
  // Once more, with less: without its end a request hangs.
  (void)Guarded("sink", counters, [&] {
    sink.OnEnd({.reason = FinishReason::kError, .status = told});
  });
}

// The traced sequences of a step, with their sinks.
using TracedSinks =
    std::vector<std::pair<TracedChunk, std::shared_ptr<TokenSink>>>;

TracedSinks SinksOf(const StepTrace* trace, Scheduler& scheduler) {
  TracedSinks sinks;
  if (trace == nullptr) return sinks;
  for (const TracedChunk& chunk : trace->chunks) {
    const Sequence* const sequence = scheduler.Find(chunk.sequence);
    if (sequence != nullptr) sinks.emplace_back(chunk, sequence->sink);
  }
  return sinks;
}

// Completes a step's trace, whose commit began at `begin_ns`, for `sinks`.
void TellStep(const TracedSinks& sinks, const std::shared_ptr<StepTrace>& trace,
              int64_t begin_ns, EngineCounters& counters) {
  if (sinks.empty()) return;
  trace->inbox.stop_ns = begin_ns;
  trace->commit = {begin_ns, MonotonicNanos()};
  for (const auto& one : sinks) {
    (void)Guarded("sink", counters,
                  [&] { one.second->OnStep(trace, one.first); });
  }
}

}  // namespace

// An exception ends the sequence that it is about, or all sequences if the
// scheduler may have been in the middle of something.
void EngineThread::Run() {
  AskForShortSlices();
  bool go_on = true;
  while (go_on) {
    std::vector<EngineCommand> commands;
    TimePoint deadline = std::min(scheduler_.next_deadline(), give_up_at_);
    if (scheduler_.quiet()) {
      deadline = std::min(deadline, last_progress_ + kProbeEvery);
    }
    go_on = loop_.TakeCommands(deadline, commands);
    for (EngineCommand& command : commands) HandleSafely(command);
    const Status planned = Guarded("engine", counters_, [&] {
      const TimePoint now = Clock::now();
      Emit(scheduler_.Expire(now));
      GiveUpIfLate(now);
      if (go_on) {
        SubmitPlans();
      } else {
        Emit(scheduler_.Detach(Unavailable("shutting down")));
      }
      Publish();
    });
    if (planned.ok()) continue;
    EngineCommand broken = PipelineBroken{.why = planned, .is_own_fault = true};
    HandleSafely(broken);
  }
}

void EngineThread::HandleSafely(EngineCommand& command) {
  const Status handled = Guarded("engine", counters_, [&] {
    std::visit([this](auto& c) { Handle(c); }, command);
  });
  if (handled.ok() || std::holds_alternative<PipelineBroken>(command)) return;
  if (auto* const submission = std::get_if<Submission>(&command)) {
    ++counters_.finished_error;
    EndOne(*submission->sink, submission->request_id,
           {.reason = FinishReason::kError, .status = handled});
    return;
  }
  EngineCommand broken = PipelineBroken{.why = handled, .is_own_fault = true};
  HandleSafely(broken);
}

void EngineThread::Handle(Submission& submission) {
  GenerateRequest& request = submission.request;
  if (request.trace) {
    submission.sink->OnInbox({submission.pushed_ns, MonotonicNanos()});
  }
  if (scheduler_.attached() || scheduler_.suspended()) {
    scheduler_.Add(submission.id, std::move(request), submission.sink);
    return;
  }
  // Accepted just before the engine gave the pipeline up.
  ++counters_.finished_error;
  FinalEvent event{.reason = FinishReason::kError, .status = why_down_};
  event.stats.prompt_tokens =
      static_cast<int32_t>(request.prompt_tokens.size());
  EndOne(*submission.sink, submission.request_id, std::move(event));
}

void EngineThread::Handle(CancelCommand& cancel) {
  Emit(scheduler_.End(cancel.id, FinishReason::kCancelled, OkStatus()));
}

void EngineThread::Handle(ConstraintReady& ready) {
  Emit(scheduler_.OnConstraintReady(ready.id, Clock::now()));
}

void EngineThread::Handle(StepResult& result) {
  const bool stale = !scheduler_.attached() || result.epoch != epoch_;
  const int64_t begin_ns = MonotonicNanos();
  const TimePoint now = Clock::now();
  std::shared_ptr<StepTrace> trace;
  if (result.trace) {
    trace = std::make_shared<StepTrace>(*std::move(result.trace));
  }
  // Before the result ends some of the sequences.
  const TracedSinks traced =
      stale ? TracedSinks() : SinksOf(trace.get(), scheduler_);
  StatusOr<SequenceEvents> events = scheduler_.Commit(std::move(result), now);
  if (!events.ok()) {
    PipelineBroken broken{events.status()};
    return Handle(broken);
  }
  if (!stale) last_progress_ = now;
  TellStep(traced, trace, begin_ns, counters_);
  Emit(*std::move(events));
}

void EngineThread::Handle(PipelineUp& up) {
  if (scheduler_.attached()) {
    LosePipeline(Unavailable("the pipeline was rebuilt"));
  }
  epoch_ = up.epoch;
  give_up_at_ = TimePoint::max();
  last_progress_ = Clock::now();
  Emit(scheduler_.Attach(up.epoch, up.limits, up.num_stages, up.lost));
}

void EngineThread::Handle(PipelineLeaving&) { scheduler_.HoldStarts(); }

void EngineThread::Handle(PipelineLost& lost) {
  if (lost.is_final) {
    why_down_ = std::move(lost.why);
    give_up_at_ = TimePoint::max();
    return Emit(scheduler_.Detach(why_down_));
  }
  LosePipeline(std::move(lost.why), lost.is_planned);
}

void EngineThread::LosePipeline(Status why, bool is_planned) {
  why_down_ = std::move(why);
  if (options_.recovery_timeout == Duration::zero()) {
    Emit(scheduler_.Detach(why_down_));
  } else if (scheduler_.attached()) {
    Emit(scheduler_.Suspend(why_down_, is_planned));
    give_up_at_ = Clock::now() + options_.recovery_timeout;
    for (const auto& [id, sequence] : scheduler_.state().sequences.all()) {
      (void)Guarded("sink", counters_,
                    [&sink = *sequence.sink] { sink.OnSuspend(); });
    }
  }
}

void EngineThread::GiveUpIfLate(TimePoint now) {
  if (now < give_up_at_) return;
  give_up_at_ = TimePoint::max();
  if (!loop_.GiveUp()) return;
  why_down_ = Annotate(why_down_, "not recovered within ",
                       Seconds(options_.recovery_timeout), " s");
  Emit(scheduler_.Detach(why_down_));
}

void EngineThread::Handle(PipelineBroken& broken) {
  if (broken.if_attached && !scheduler_.attached()) return;
  loop_.OnBroken(epoch_, broken.is_own_fault);
  LogError("the pipeline is broken: ", Message(broken.why));
  Status why = Unavailable("the pipeline is broken: ", Message(broken.why));
  if (broken.is_own_fault) {
    // The scheduler may have been in the middle of something.
    why_down_ = std::move(why);
    Emit(scheduler_.Detach(why_down_));
  } else {
    LosePipeline(std::move(why));
  }
  executor_.OnPipelineBroken(broken.why);
}

// A sink that throws has lost tokens: its sequence ends with that error, even
// if its own end was a good one.
void EngineThread::Emit(SequenceEvents events) {
  std::vector<std::pair<SequenceId, Status>> failed;
  for (SequenceEvent& event : events) {
    const auto error = std::find_if(
        failed.begin(), failed.end(),
        [&](const auto& one) { return one.first == event.sequence; });
    auto* const tokens = std::get_if<TokenEvent>(&event.what);
    if (std::holds_alternative<SuspendEvent>(event.what)) {
      (void)Guarded("sink", counters_, [&] { event.sink->OnSuspend(); });
    } else if (tokens == nullptr) {
      auto& end = std::get<FinalEvent>(event.what);
      if (error != failed.end()) {
        end.reason = FinishReason::kError;
        end.status = error->second;
        failed.erase(error);
      }
      EndOne(*event.sink, event.request_id, std::move(end));
    } else if (error == failed.end()) {
      const Status told = Guarded(
          "sink", counters_, [&] { event.sink->OnTokens(std::move(*tokens)); });
      if (!told.ok()) failed.emplace_back(event.sequence, told);
    }
  }
  for (const auto& [id, why] : failed) {
    Emit(scheduler_.End(id, FinishReason::kError, why));
  }
}

void EngineThread::EndOne(TokenSink& sink, const std::string& request_id,
                          FinalEvent event) {
  // First, because a client that sees the end may submit its next request.
  loop_.OnEnded(request_id);
  TellEnd(sink, counters_, std::move(event));
}

void EngineThread::SubmitPlans() {
  while (true) {
    const TimePoint begin = Clock::now();
    std::optional<StepPlan> plan = scheduler_.Plan(begin);
    const TimePoint end = Clock::now();
    counters_.plan_time += end - begin;
    if (!plan) break;
    if (plan->trace) plan->trace->plan = {ToNanos(begin), ToNanos(end)};
    for (const StartedSequence& started : plan->started) {
      TokenSink& sink = *scheduler_.Find(started.sequence)->sink;
      (void)Guarded("sink", counters_, [&] { sink.OnStart(); });
    }
    if (options_.on_step && !plan->chunks.empty()) {
      options_.on_step(plan->num_tokens());
    }
    executor_.Submit(*std::move(plan));
  }
  const TimePoint now = Clock::now();
  if (scheduler_.quiet() && now - last_progress_ >= kProbeEvery) {
    executor_.Submit(scheduler_.Probe(now));
  }
}

void EngineThread::Publish() {
  QueueState queue = scheduler_.FillStats(stats_);
  loop_.Publish(
      stats_, std::move(queue),
      {last_progress_, scheduler_.oldest_plan(), scheduler_.expected_step()});
}

}  // namespace sluice
