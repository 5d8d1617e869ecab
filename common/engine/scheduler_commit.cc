// What a step's result does to its sequences.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "common/engine/scheduler.h"

namespace sluice {
namespace {

bool Contains(const std::vector<TokenId>& ids, TokenId token) {
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

// Before min_tokens an end token is a token like any other. (The sampler
// gives stop_token_ids no probability then, so this is about eos alone.)
bool Ends(const JournalEntry& history, TokenId token) {
  const GenerateRequest& request = history.request;
  if (history.num_emitted() < request.sampling.min_tokens) return false;
  return Contains(request.eos_token_ids, token) ||
         Contains(request.sampling.stop_token_ids, token);
}

}  // namespace

StatusOr<SequenceEvents> Scheduler::Commit(StepResult result, TimePoint now) {
  if (!attached_ || result.epoch != epoch_) {
    ++counters_->stale_results;
    return SequenceEvents();
  }
  if (result.replica != options_.replica || in_flight_.empty()) {
    ++counters_->refused_results;
    return Internal("result of replica ", result.replica, ", step ",
                    result.step_id, "; replica ", options_.replica, " has ",
                    in_flight_.size(), " plans in flight");
  }
  if (Status status = CheckAnswers(in_flight_.front(), result); !status.ok()) {
    ++counters_->refused_results;
    return status;
  }
  const PlanInFlight plan = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (plan.is_probe) {
    last_result_ = now;
    return SequenceEvents();
  }
  last_step_time_ = now - plan.submitted;
  ++counters_->steps;
  counters_->step_time += last_step_time_;
  // What it took beside the plans before it, if they overlapped.
  const Duration interval = now - std::max(plan.submitted, last_result_);
  last_result_ = now;
  counters_->step_interval += interval;
  pace_.OnResult({plan.num_decodes, plan.prompt_tokens, plan.had_company,
                  last_step_time_, interval});
  if (plan.chunks.size() > 1) ++counters_->steps_with_several_sequences;

  std::unordered_map<SequenceId, SequenceResult*> results;
  for (SequenceResult& entry : result.sequences) {
    results.emplace(entry.sequence, &entry);
  }
  SequenceEvents events;
  for (const PlannedChunk& chunk : plan.chunks) {
    counters_->computed_tokens += static_cast<uint64_t>(chunk.count);
    const auto it = results.find(chunk.sequence);
    CommitChunk(chunk, it == results.end() ? nullptr : it->second, now, events);
  }
  return events;
}

void Scheduler::CommitChunk(const PlannedChunk& chunk, SequenceResult* result,
                            TimePoint now, SequenceEvents& events) {
  Sequence* const sequence = Find(chunk.sequence);
  if (sequence == nullptr) return;  // ended while the plan was in flight
  --sequence->plans_in_flight;
  if (chunk.samples) sequence->sampling_in_flight = false;

  SequenceResult nothing;
  nothing.sequence = chunk.sequence;
  Status status = result != nullptr ? result->status : OkStatus();
  if (status.ok()) {
    if (result == nullptr) result = &nothing;
    status =
        CheckAnswers(chunk, *sequence->history, *result, limits_.vocab_size);
    if (!status.ok()) ++counters_->refused_results;
  }
  if (!status.ok()) {
    EndSequence(*sequence, {.reason = FinishReason::kError, .status = status},
                events);
    return;
  }
  // Preempted meanwhile: its blocks are gone, its tokens are as good as ever.
  if (sequence->state == SequenceState::kRunning) {
    sequence->num_computed = std::max(sequence->num_computed, chunk.end());
    blocks_.Publish(sequence->tables, sequence->history->first(chunk.end()));
    blocks_.ReleaseBehind(sequence->tables, sequence->num_computed);
  }
  Deliver(chunk, *sequence, *result, now, events);
}

void Scheduler::Deliver(const PlannedChunk& chunk, Sequence& sequence,
                        SequenceResult& result, TimePoint now,
                        SequenceEvents& events) {
  const JournalEntry& history = *sequence.history;
  const SamplingParams& sampling = history.request.sampling;
  TokenEvent event;
  if (chunk.logits != LogitsWanted::kNone) {
    if (sampling.prompt_logprobs >= 0 && chunk.logits == LogitsWanted::kAll) {
      event.prompt = std::move(result.prompt);
    }
    if (sampling.return_logits) {
      event.logits = std::move(result.logits);
      event.logits_position =
          chunk.logits == LogitsWanted::kAll ? chunk.start : chunk.end() - 1;
      sequence.logits_done = chunk.end();
    } else {
      sequence.logits_done = std::min(chunk.end(), history.num_prompt_tokens);
    }
  }
  std::optional<FinalEvent> end;
  for (TokenResult& token : result.sampled) {
    if (sequence.stats.completion_tokens == 0) {
      sequence.first_token = now;
      sequence.stats.prefill_time = now - sequence.first_schedule;
    }
    sequence.last_token = now;
    if (Ends(history, token.token)) {
      end = FinalEvent{.reason = FinishReason::kStop,
                       .stop_token = token.token,
                       .stop_result = std::move(token)};
      break;
    }
    journal_.Append(sequence.id, token.token);
    event.tokens.push_back(std::move(token));
    ++sequence.stats.completion_tokens;
    ++counters_->generation_tokens;
    if (history.num_emitted() >= history.request.max_tokens ||
        history.num_tokens() >= limits_.max_context) {
      end = FinalEvent{.reason = FinishReason::kLength};
      break;
    }
  }
  const bool prompt_only = history.request.max_tokens == 0;
  if (prompt_only && chunk.end() == history.num_prompt_tokens) {
    end = FinalEvent{.reason = FinishReason::kLength};
  }
  line_.Charge(*sequence.client, static_cast<int64_t>(event.tokens.size()));
  if (!event.tokens.empty() || !event.prompt.empty() || !event.logits.empty()) {
    events.emplace_back(sequence.id, std::move(event));
  }
  if (end) EndSequence(sequence, *std::move(end), events);
}

}  // namespace sluice
