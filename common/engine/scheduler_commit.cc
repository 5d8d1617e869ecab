// The effects of a step's result on its sequences.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "common/engine/scheduler.h"

namespace sluice {
namespace {

bool Contains(const std::vector<TokenId>& ids, TokenId token) {
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

// Whether `token`, the next one, ends the sequence. Before min_tokens an end
// token is a token like any other. (The sampler excludes stop_token_ids then,
// so this is about eos alone.)
bool Ends(const Sequence& sequence, TokenId token) {
  const GenerateRequest& request = sequence.request;
  if (sequence.num_emitted() < request.sampling.min_tokens) return false;
  return Contains(request.eos_token_ids, token) ||
         Contains(request.sampling.stop_token_ids, token);
}

// Returns the end of a sequence that may have no more tokens.
FinalEvent LengthEnd(const Sequence& sequence) {
  if (sequence.cut_by.ok()) return {.reason = FinishReason::kLength};
  return {.reason = FinishReason::kError, .status = sequence.cut_by};
}

}  // namespace

StatusOr<SequenceEvents> Scheduler::Commit(StepResult result, TimePoint now) {
  EngineCounters& counters = *state_.counters;
  if (!attached_ || result.epoch != epoch_) {
    ++counters.stale_results;
    return SequenceEvents();
  }
  if (result.replica != state_.options.replica || state_.in_flight.empty()) {
    ++counters.refused_results;
    return Internal("result of replica ", result.replica, ", step ",
                    result.step_id, "; replica ", state_.options.replica,
                    " has ", state_.in_flight.size(), " plans in flight");
  }
  if (Status status = CheckAnswers(state_.in_flight.front(), result);
      !status.ok()) {
    ++counters.refused_results;
    return status;
  }
  const PlanInFlight plan = std::move(state_.in_flight.front());
  state_.in_flight.pop_front();
  if (plan.is_probe) {
    clock_.last_result = now;
    constraints_.OnResult(clock_.last_step, now);
    return SequenceEvents();
  }
  // A plan that went ahead of this one can run from now on.
  for (PlanInFlight& next : state_.in_flight) {
    if (next.follows == plan.step_id) next.submitted = now;
  }
  clock_.OnResult(plan, now, counters, state_.pace);
  constraints_.OnResult(clock_.last_step, now);

  std::unordered_map<SequenceId, SequenceResult*> results;
  for (SequenceResult& entry : result.sequences) {
    results.emplace(entry.sequence, &entry);
  }
  SequenceEvents events;
  for (const PlannedChunk& chunk : plan.chunks) {
    counters.computed_tokens +=
        static_cast<uint64_t>(chunk.count) + chunk.drafts.size();
    const auto it = results.find(chunk.sequence);
    CommitChunk(chunk, it == results.end() ? nullptr : it->second, now, events);
  }
  return events;
}

// `result`: null if the step's result has none for the chunk's sequence.
void Scheduler::CommitChunk(const PlannedChunk& chunk, SequenceResult* result,
                            TimePoint now, SequenceEvents& events) {
  Sequence* const sequence = state_.sequences.Find(chunk.sequence);
  if (sequence == nullptr) return;  // ended while the plan was in flight
  --sequence->plans_in_flight;
  if (chunk.samples) --sequence->sampling_in_flight;
  if (sequence->num_void > 0) {
    --sequence->num_void;
    return;
  }

  SequenceResult nothing;
  nothing.sequence = chunk.sequence;
  Status status = result != nullptr ? result->status : OkStatus();
  if (status.ok()) {
    if (result == nullptr) result = &nothing;
    status = CheckAnswers(chunk, *sequence, *result, state_.limits.vocab_size);
    if (!status.ok()) ++state_.counters->refused_results;
  }
  if (!status.ok()) {
    if (Retry(*sequence, chunk, status, now, events)) return;
    EndSequence(*sequence, {.reason = FinishReason::kError, .status = status},
                events);
    return;
  }
  state_.retries.OnComputed(*sequence, chunk.end());
  if (chunk.end() >= sequence->lost_end) sequence->losses = 0;
  // A preempted sequence has no blocks, but its tokens are valid.
  if (sequence->state == SequenceState::kRunning) {
    BlockManager& blocks = state_.sequences.blocks();
    sequence->OnComputed(chunk.end());
    blocks.CacheFullBlocks(sequence->tables, sequence->first(chunk.end()));
    blocks.EvictBehind(sequence->tables, chunk.end());
    // The accepted drafts are in the KV cache, and will be in the tokens.
    if (result->sampled.size() > 1) {
      sequence->num_computed = sequence->num_scheduled =
          chunk.end() + static_cast<int32_t>(result->sampled.size()) - 1;
    }
  }
  Deliver(chunk, *sequence, *result, now, events);
}

// Sets the sequence aside, to be computed again later, if its chunk failed for
// a reason that may pass.
bool Scheduler::Retry(Sequence& sequence, const PlannedChunk& chunk,
                      const Status& why, TimePoint now,
                      SequenceEvents& events) {
  const bool is_first = !sequence.fails_since;
  if (!state_.retries.Take(sequence, chunk.end(), why, now)) return false;
  state_.sequences.SetAside(sequence);
  if (is_first) events.emplace_back(sequence, SuspendEvent());
  return true;
}

// Appends the result's tokens, adds their event, and ends the sequence where an
// end rule holds.
void Scheduler::Deliver(const PlannedChunk& chunk, Sequence& sequence,
                        SequenceResult& result, TimePoint now,
                        SequenceEvents& events) {
  const GenerateRequest& request = sequence.request;
  TokenEvent event{.cached_tokens = sequence.stats.cached_tokens};
  if (chunk.logits != LogitsWanted::kNone) {
    if (request.sampling.prompt_logprobs >= 0 &&
        chunk.logits == LogitsWanted::kAll) {
      event.prompt = std::move(result.prompt);
    }
    if (WantsRawRows(request.sampling)) {
      event.logits = std::move(result.logits);
      event.logits_position =
          chunk.logits == LogitsWanted::kAll ? chunk.start : chunk.end() - 1;
      const auto rows = static_cast<int32_t>(result.sampled.size());
      sequence.logits_done = chunk.end() + std::max(rows - 1, 0);
    } else {
      sequence.logits_done = std::min(chunk.end(), sequence.num_prompt_tokens);
    }
  }
  std::optional<FinalEvent> end;
  for (TokenResult& token : result.sampled) {
    if (sequence.stats.completion_tokens == 0) {
      sequence.first_token = now;
      sequence.stats.prefill_time = now - sequence.first_schedule;
    }
    sequence.last_token = now;
    end = Append(sequence, std::move(token), event);
    if (end) break;
  }
  if (end && !chunk.drafts.empty() && !event.logits.empty()) {
    // Drafts accepted behind the end do not belong to the sequence.
    const size_t rows = event.tokens.size() + (end->stop_token ? 1 : 0);
    event.logits.resize(rows * static_cast<size_t>(state_.limits.vocab_size));
  }
  if (request.max_tokens == 0 && chunk.end() == sequence.num_prompt_tokens) {
    end = FinalEvent{.reason = FinishReason::kLength};
  }
  const size_t num_new = event.tokens.size();
  state_.sequences.queue().Charge(*sequence.client,
                                  static_cast<int64_t>(num_new));
  if (num_new > 0) sequence.runs_in_vain = 0;
  if (num_new > 0 && !end) constraints_.Advance(sequence, num_new);
  if (!event.tokens.empty() || !event.prompt.empty() || !event.logits.empty()) {
    events.emplace_back(sequence, std::move(event));
  }
  if (end) EndSequence(sequence, *std::move(end), events);
}

// Appends a sampled token to the sequence and the event. Returns the end, if
// the token is one or the last one allowed.
std::optional<FinalEvent> Scheduler::Append(Sequence& sequence,
                                            TokenResult token,
                                            TokenEvent& event) {
  if (Ends(sequence, token.token)) {
    return FinalEvent{.reason = FinishReason::kStop,
                      .stop_token = token.token,
                      .stop_result = std::move(token)};
  }
  sequence.tokens.push_back(token.token);
  event.tokens.push_back(std::move(token));
  ++sequence.stats.completion_tokens;
  ++state_.counters->generation_tokens;
  if (sequence.num_emitted() < sequence.request.max_tokens &&
      sequence.num_tokens() < state_.limits.max_context) {
    return std::nullopt;
  }
  return LengthEnd(sequence);
}

}  // namespace sluice
