#include "common/stage/stage_loop.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/concurrency/await_change.h"
#include "common/concurrency/named_thread.h"
#include "common/stage/boundary_log.h"
#include "common/stage/sampled_tokens.h"
#include "common/stage/sequence_table.h"
#include "common/stage/stage_kv.h"

namespace sluice {
namespace {

// The longest wait of a loop that lives.
constexpr auto kBeat = std::chrono::milliseconds(500);

using Results = std::vector<SequenceResult>;

Results::iterator FindSequence(Results& results, SequenceId sequence) {
  return std::find_if(
      results.begin(), results.end(),
      [&](const SequenceResult& r) { return r.sequence == sequence; });
}

// A sequence keeps its first failure.
void AddFailures(const Results& more, Results& failed) {
  for (const SequenceResult& result : more) {
    if (FindSequence(failed, result.sequence) == failed.end()) {
      failed.push_back(result);
    }
  }
}

// Gives a failed sequence a result with its status alone.
void ReplaceFailed(Results failed, Results& results) {
  for (SequenceResult& result : failed) {
    const auto found = FindSequence(results, result.sequence);
    if (found == results.end()) {
      results.push_back(std::move(result));
    } else {
      *found = std::move(result);
    }
  }
}

// What wakes a thread that waits for a change under a mutex, or that looks for
// one first: a thread that sleeps wakes later than the change is read.
class Wake {
 public:
  // Behind the change, without the mutex: a thread that looks takes that next.
  void NotifyAll() {
    ++count_;
    wake_.NotifyAll();
  }
  uint32_t count() const { return count_; }
  // Returns whether the count changes from `seen` before `deadline`.
  bool SpinUntil(TimePoint deadline, uint32_t seen) const {
    return SpinForChange(count_, seen, deadline) != seen;
  }
  void WaitUntil(Mutex& mutex, TimePoint deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    wake_.WaitUntil(mutex, deadline);
  }

 private:
  alignas(64) std::atomic<uint32_t> count_{0};
  alignas(64) CondVar wake_;
};

}  // namespace

class StageLoop::Impl {
 public:
  Impl(Stage* stage, StepOutputSink* sink, int max_queued_steps)
      : stage_(*stage),
        sink_(*sink),
        max_queued_steps_(static_cast<uint64_t>(max_queued_steps)),
        knows_sampled_(stage->info().is_first() || stage->info().is_last()),
        sequences_(stage->info().limits, stage->info().is_last()),
        log_(stage->info()),
        kv_(stage) {
    SLUICE_CHECK(max_queued_steps >= 1);
  }

  void Start() {
    SLUICE_CHECK(!thread_.joinable());
    thread_ = NamedThread("stage-loop", [this] { Loop(); });
  }

  void Stop() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      queue_.clear();
    }
    wake_.NotifyAll();
    thread_.Join();
    DoWork();
  }

  Status Push(StepInput input) {
    SLUICE_RETURN_IF_ERROR(Check(input));
    {
      MutexLock lock(mutex_);
      SLUICE_RETURN_IF_ERROR(Queue(std::move(input)));
    }
    wake_.NotifyAll();
    return OkStatus();
  }

  void Reset(Epoch epoch) {
    MutexLock lock(mutex_);
    epoch_ = epoch;
    next_step_ = 0;
    queue_.clear();
    sampled_.Clear();
    faulted_ = false;
    forget_ = true;
    stats_.sequences = stats_.kv_blocks_used = stats_.kv_blocks_peak = 0;
  }

  void OnSampled(const StepResult& result) {
    {
      MutexLock lock(mutex_);
      if (result.epoch != epoch_) return;
      sampled_.Add(result.step_id, result.sequences);
    }
    wake_.NotifyAll();
  }

  bool Between(KvWork work) {
    {
      MutexLock lock(mutex_);
      if (stopping_) return false;
      work_.push_back(std::move(work));
    }
    wake_.NotifyAll();
    return true;
  }

  StageLoopStats Stats() const {
    MutexLock lock(mutex_);
    StageLoopStats stats = stats_;
    stats.queue_depth = static_cast<int32_t>(queue_.size());
    stats.epoch = epoch_;
    stats.progress = beats_ + stage_.layers_done() + kv_.copied();
    return stats;
  }

 private:
  struct Queued {
    StepInput input;
    int64_t arrival_ns = 0;
    Status resolved = OkStatus();  // see SampledTokens::Resolve
  };

  // Drops a step of another epoch.
  Status Queue(StepInput input) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const StepPlan& plan = input.plan;
    const uint64_t id = plan.step_id.value();
    if (stopping_ || faulted_ || plan.epoch != epoch_) return OkStatus();
    if (id < next_step_ || queue_.count(id) != 0) {
      return InvalidArgument("step ", id, " of epoch ", epoch_,
                             " came before; the next one is ", next_step_);
    }
    // Only ids of this window are queued, so the next step always finds room.
    if (id - next_step_ >= max_queued_steps_) {
      return ResourceExhausted("step ", id, " is ", id - next_step_,
                               " ahead of step ", next_step_, ", limit ",
                               max_queued_steps_ - 1);
    }
    queue_.emplace(id, Queued{std::move(input), MonotonicNanos()});
    return OkStatus();
  }

  // Checks the step without the sequences.
  Status Check(const StepInput& input) const {
    const StageInfo& info = stage_.info();
    const StepPlan& plan = input.plan;
    if (!input.validated) {
      SLUICE_RETURN_IF_ERROR(Validate(plan, info.limits));
    }
    const int32_t rows = info.is_first() ? 0 : plan.num_rows(info.first_layer);
    const int32_t cols = info.hidden_size;
    const HiddenStates& hidden = input.hidden;
    if (hidden.rows != rows || (rows > 0 && hidden.cols != cols)) {
      return InvalidArgument("hidden states of step ", plan.step_id, " are [",
                             hidden.rows, ", ", hidden.cols, "], expected [",
                             rows, ", ", cols, "]");
    }
    if (rows > 0 && hidden.data.size() != sizeof(float) * rows * cols) {
      return InvalidArgument("hidden states of step ", plan.step_id, " have ",
                             hidden.data.size(), " bytes, expected ",
                             sizeof(float) * rows * cols);
    }
    for (const SequenceResult& failed : input.failed) {
      const bool known = std::any_of(
          plan.chunks.begin(), plan.chunks.end(),
          [&](const Chunk& c) { return c.sequence == failed.sequence; });
      if (known && !failed.status.ok()) continue;
      return InvalidArgument("step ", plan.step_id, " says that sequence ",
                             failed.sequence,
                             known ? " failed with status OK"
                                   : " failed, which is not among its chunks");
    }
    return OkStatus();
  }

  // A step between Stage::Begin and Stage::Finish.
  struct Running {
    Queued step;
    int64_t start = 0;
    bool takes_drawn = false;   // of the step before, when this one began
    std::vector<size_t> slots;  // BoundaryLog's
    const StepPlan& plan() const { return step.input.plan; }
  };

  void Loop() {
    Queued step;
    while (true) {
      if (running_.empty()) {
        DoWork();
        if (!Await()) return;
        if (TakeDue(step)) Begin(step);
      } else if (running_.size() == 1 && stage_.overlaps_steps() &&
                 TakeAhead(step)) {
        Begin(step);
      } else {
        Finish();
      }
    }
  }

  // Does what is to be done between steps.
  void DoWork() {
    std::deque<KvWork> work;
    bool ends = false;
    {
      MutexLock lock(mutex_);
      work.swap(work_);
      ends = stopping_;
    }
    KvStore* const store = ends || !stage_.can_copy_kv() ? nullptr : &kv_;
    for (const KvWork& one : work) one(store);
  }

  // Waits for the next step of the epoch, or work. Returns false when stopping.
  bool Await() {
    const int64_t idle_since = MonotonicNanos();
    const TimePoint sleep_at = Clock::now() + stage_.spin();
    bool looks = stage_.spin() > Duration::zero();
    while (looks) {
      const uint32_t seen = wake_.count();
      {
        MutexLock lock(mutex_);
        if (stopping_ || HasToDo()) break;
      }
      looks = wake_.SpinUntil(sleep_at, seen);
    }
    MutexLock lock(mutex_);
    while (!stopping_ && !HasToDo()) {
      wake_.WaitUntil(mutex_, Clock::now() + kBeat);
      ++beats_;
    }
    ++beats_;
    stats_.wait_seconds +=
        1e-9 * static_cast<double>(MonotonicNanos() - idle_since);
    return !stopping_;
  }

  bool HasToDo() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !work_.empty() || NextIsHere();
  }

  // Takes the next step, if it is here and no work is to be done before it.
  bool TakeDue(Queued& step) {
    MutexLock lock(mutex_);
    if (stopping_ || !work_.empty() || !NextIsHere()) return false;
    if (forget_) sequences_.Clear();
    forget_ = false;
    TakeNext(step);
    return true;
  }

  // Takes the next step if it can begin before the one in flight is done. Waits
  // until there is one, or nothing to begin before.
  bool TakeAhead(Queued& step) {
    // A device's end wakes no thread: this one looks for it, as it does in
    // Stage::Finish.
    while (true) {
      {
        MutexLock lock(mutex_);
        if (stopping_ || forget_ || !work_.empty()) return false;
        if (NextIsHere()) {
          const StepPlan& plan = queue_.begin()->second.input.plan;
          // To enqueue a prompt takes long, and where its rows come in, they
          // are copied: a result goes first, there also one that is near.
          if (HasPrompt(plan) &&
              (stage_.IsDone() || (!stage_.info().is_first() &&
                                   !HasPrompt(running_.front().plan())))) {
            return false;
          }
          if (!CanGoAhead(plan)) return false;
          TakeNext(step);
          ++stats_.steps_ahead;
          return true;
        }
      }
      if (stage_.IsDone()) return false;
      std::this_thread::yield();
    }
  }

  void TakeNext(Queued& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    step = std::move(queue_.extract(queue_.begin()).mapped());
    ++next_step_;
    if (knows_sampled_) {
      step.resolved =
          sampled_.Resolve(step.input.plan, step.input.failed, InFlight());
    }
  }

  std::optional<StepId> InFlight() const {
    if (running_.empty()) return std::nullopt;
    return running_.front().plan().step_id;
  }

  static bool HasPrompt(const StepPlan& plan) {
    return std::ranges::any_of(
        plan.chunks, [](const Chunk& c) { return c.tokens.size() > 1; });
  }

  // Whether nothing of the plan but single tokens depends on the result of the
  // step in flight, and the device need not wait for copies of logits. Before
  // the first of several stages takes a plan, the steps that the plan names are
  // past all stages (NextIsHere): a plan that names the step in flight at one
  // of them is a peer's fault, and waits. Replays depend on no result, and
  // BoundaryLog::HandOn has them in order.
  bool CanGoAhead(const StepPlan& plan) const {
    const bool samples = stage_.info().is_last();
    const auto has_drafts = [](const Chunk& c) {
      return c.num_draft_tokens > 0;
    };
    const auto can_go = [&](const Chunk& c) {
      return !(samples && sequences_.WantsLogits(c.sequence)) &&
             (c.sampled_by != InFlight() ||
              (stage_.Draws(c.sequence) &&
               !sequences_.CountsTokens(c.sequence)));
    };
    const auto wants_logits = [&](const StartedSequence& started) {
      return samples && WantsRawRows(started.sampling);
    };
    return std::ranges::none_of(running_.front().plan().chunks, has_drafts) &&
           std::ranges::none_of(plan.chunks, has_drafts) &&
           std::ranges::none_of(plan.started, wants_logits) &&
           std::ranges::all_of(plan.chunks, can_go);
  }

  // Whether the next step is here, and on the first stage also the tokens that
  // earlier steps sample for it. The last stage has these tokens by then; other
  // stages need none.
  bool NextIsHere() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (queue_.empty() || queue_.begin()->first != next_step_) return false;
    return !stage_.info().is_first() || stage_.info().is_last() ||
           sampled_.HasAll(queue_.begin()->second.input.plan);
  }

  void Begin(Queued& queued) {
    const int64_t start = MonotonicNanos();
    Status applied = std::move(queued.resolved);
    const StepPlan& planned = queued.input.plan;
    if (applied.ok()) applied = log_.Check(planned);
    if (applied.ok()) applied = sequences_.Apply(planned, InFlight());
    if (!applied.ok()) {
      if (!running_.empty()) Finish();
      return Fail(planned, applied);
    }
    Running& running =
        running_.emplace_back(Running{std::move(queued), start, false, {}});
    StepInput& input = running.step.input;
    // Only until the next plan may change the sequences.
    const std::vector<Stage::ChunkInput> chunks = sequences_.Inputs(input.plan);
    running.takes_drawn =
        std::ranges::any_of(chunks, &Stage::ChunkInput::takes_drawn);
    if (!stage_.info().is_last()) running.slots = log_.SlotsOf(chunks);
    stage_.GiveBack(input.plan.vacant);
    kv_.Vacate(input.plan.vacant);
    kv_.Note(chunks);
    stage_.Begin(Computed(chunks, input.plan), std::move(input.hidden),
                 {input.plan.replica, input.plan.epoch, input.plan.step_id});
  }

  // Finishes the oldest step.
  void Finish() {
    Running running = std::move(running_.front());
    StepInput& input = running.step.input;
    StepPlan& plan = input.plan;
    StepOutput output;
    std::vector<SequenceResult> results;
    stage_.Finish(output.hidden, results);
    running_.pop_front();
    if (!stage_.info().is_last()) {
      output.hidden =
          log_.HandOn(plan, running.slots, std::move(output.hidden));
    }
    if (running.takes_drawn) ResolveLate(plan, input.failed);
    output.failed = std::move(input.failed);
    AddFailures(stage_.failed(), output.failed);
    if (stage_.info().is_last() && !output.failed.empty()) {
      ReplaceFailed(std::exchange(output.failed, {}), results);
    }
    // What a step waits for while another one computes is no time of its own.
    const int64_t start = std::max(running.start, last_stop_ns_);
    const int64_t stop = MonotonicNanos();
    last_stop_ns_ = stop;
    sequences_.Append(results);
    if (stage_.info().is_last()) {
      output.result = StepResult{plan.replica, plan.epoch, plan.step_id,
                                 std::move(results)};
    }
    const int64_t arrival = running.step.arrival_ns;
    output.timing = {start - arrival, stop - start};
    if (Rows(plan) > 0) output.ranks = stage_.collective_times();
    if (plan.trace) Stamp({arrival, start}, stop, *plan.trace);
    output.plan = std::move(plan);
    if (Count(output)) sink_.OnStep(std::move(output));
  }

  // Sets the tokens that were not drawn yet when the step began.
  void ResolveLate(StepPlan& plan, Results& failed) {
    MutexLock lock(mutex_);
    // What an older epoch drew is forgotten, and its steps with it.
    if (plan.epoch != epoch_ || forget_ || stopping_) return;
    SLUICE_CHECK(sampled_.Resolve(plan, failed).ok());
  }

  // Returns the chunks that this stage computes: all but other stages' replays.
  std::vector<Stage::ChunkInput> Computed(
      const std::vector<Stage::ChunkInput>& chunks,
      const StepPlan& plan) const {
    std::vector<Stage::ChunkInput> own;
    own.reserve(chunks.size());
    for (const Stage::ChunkInput& input : chunks) {
      if (plan.Computes(*input.chunk, stage_.info().first_layer)) {
        own.push_back(input);
      }
    }
    return own;
  }
  int32_t Rows(const StepPlan& plan) const {
    return plan.num_rows(stage_.info().first_layer);
  }

  // Fills in this stage's part of the trace, which its receiver has begun.
  void Stamp(const TraceSpan& wait, int64_t stop, StepTrace& trace) const {
    if (trace.stages.empty()) trace.stages.emplace_back();
    StageTrace& part = trace.stages.back();
    TraceSpan sampling = stage_.sampling();
    // A step that began ahead had its sampling enqueued before its turn.
    if (sampling.happened()) {
      sampling.start_ns = std::max(sampling.start_ns, wait.stop_ns);
    }
    part.wait = wait;
    // A received step waits from that moment on, also to be queued.
    if (part.receive.happened()) part.wait.start_ns = part.receive.stop_ns;
    part.compute = {wait.stop_ns,
                    sampling.happened() ? sampling.start_ns : stop};
    part.sample = sampling;
  }

  // Adds to the statistics. Returns false if the step's epoch is over.
  bool Count(const StepOutput& output) {
    MutexLock lock(mutex_);
    ++stats_.steps;
    stats_.tokens += static_cast<uint64_t>(Rows(output.plan));
    for (const Chunk& chunk : output.plan.chunks) {
      if (std::ssize(chunk.tokens) - chunk.num_draft_tokens > 1) {
        ++stats_.prefill_steps;
        break;
      }
    }
    stats_.compute_seconds +=
        1e-9 * static_cast<double>(output.timing.compute_ns);
    if (output.plan.epoch != epoch_ || stopping_) return false;
    if (output.result.has_value()) {
      sampled_.Add(output.plan.step_id, output.result->sequences);
    }
    stats_.sequences = sequences_.size();
    stats_.kv_blocks_used = sequences_.blocks();
    stats_.kv_blocks_peak = sequences_.peak_blocks();
    return true;
  }

  void Fail(const StepPlan& plan, const Status& why) {
    sequences_.Clear();
    {
      MutexLock lock(mutex_);
      if (plan.epoch != epoch_ || stopping_) return;
      faulted_ = true;
      stats_.sequences = stats_.kv_blocks_used = 0;
      queue_.clear();
    }
    sink_.OnStepError(plan.epoch, plan.step_id, why);
  }

  Stage& stage_;
  StepOutputSink& sink_;
  const uint64_t max_queued_steps_;
  const bool knows_sampled_;     // the stages between first and last do not
  SequenceTable sequences_;      // the loop's thread's own
  BoundaryLog log_;              // likewise
  StageKv kv_;                   // likewise
  std::deque<Running> running_;  // likewise: at most two
  int64_t last_stop_ns_ = 0;     // likewise

  mutable Mutex mutex_;
  Wake wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool faulted_ ABSL_GUARDED_BY(mutex_) = false;
  bool forget_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t beats_ ABSL_GUARDED_BY(mutex_) = 0;
  Epoch epoch_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_step_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Queued> queue_ ABSL_GUARDED_BY(mutex_);
  std::deque<KvWork> work_ ABSL_GUARDED_BY(mutex_);
  SampledTokens sampled_ ABSL_GUARDED_BY(mutex_);
  StageLoopStats stats_ ABSL_GUARDED_BY(mutex_);

  NamedThread thread_;
};

StageLoop::StageLoop(Stage* stage, StepOutputSink* sink, int max_queued_steps)
    : impl_(std::make_unique<Impl>(stage, sink, max_queued_steps)) {}

StageLoop::~StageLoop() { Stop(); }

void StageLoop::Start() { impl_->Start(); }
void StageLoop::Stop() { impl_->Stop(); }
Status StageLoop::Push(StepInput input) {
  return impl_->Push(std::move(input));
}
void StageLoop::Reset(Epoch epoch) { impl_->Reset(epoch); }
void StageLoop::OnSampled(const StepResult& result) {
  impl_->OnSampled(result);
}
bool StageLoop::Between(KvWork work) { return impl_->Between(std::move(work)); }
StageLoopStats StageLoop::Stats() const { return impl_->Stats(); }

}  // namespace sluice
