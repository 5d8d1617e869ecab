#include "tests/engine/fake_pipeline.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tests/engine/fake_constraint.h"

namespace sluice {

float LogitOf(uint64_t digest, int32_t token) {
  return static_cast<float>(Mix(digest + static_cast<uint64_t>(token)) >> 40) /
         (1 << 24);
}

TokenResult WithLogprob(TokenId token, int32_t num_logprobs, uint64_t digest) {
  TokenResult result;
  result.token = token;
  if (num_logprobs >= 0) {
    result.logprob = TokenLogprob{token, -LogitOf(digest, token), 0};
    for (int32_t i = 0; i < num_logprobs; ++i) {
      result.top_logprobs.push_back({i, -LogitOf(digest, i), i});
    }
  }
  return result;
}

TokenId NextToken(const std::vector<TokenId>& tokens,
                  const SamplingParams& sampling, int32_t vocab_size,
                  const TokenMask* mask) {
  const uint64_t digest =
      Mix(Digest(tokens.data(), tokens.size()) ^ sampling.seed);
  std::vector<TokenId> allowed;
  for (TokenId id = 0; id < vocab_size; ++id) {
    const bool in_runs =
        mask != nullptr && std::any_of(mask->runs.begin(), mask->runs.end(),
                                       [id](const TokenRun& run) {
                                         return run.begin <= id && id < run.end;
                                       });
    if (mask == nullptr || in_runs != mask->excludes) allowed.push_back(id);
  }
  return allowed.at(digest % allowed.size());
}

Expected Undisturbed(const GenerateRequest& request, int32_t vocab_size) {
  Expected expected;
  std::vector<TokenId> tokens = request.prompt_tokens;
  const auto in = [](const std::vector<TokenId>& ids, TokenId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  while (static_cast<int32_t>(expected.tokens.size()) < request.max_tokens) {
    std::optional<TokenMask> mask;
    if (request.constraint != nullptr) {
      const ConstraintStep step =
          static_cast<const FakeConstraint&>(*request.constraint)
              .grammar()
              .At(static_cast<int32_t>(expected.tokens.size()));
      if (!step.status.ok() || step.is_complete) {
        expected.reason =
            step.is_complete ? FinishReason::kStop : FinishReason::kError;
        return expected;
      }
      mask = step.mask;
      if (!step.forced.empty()) {
        mask = {.runs = {{step.forced[0], step.forced[0] + 1}}};
      }
    }
    const TokenId token = NextToken(tokens, request.sampling, vocab_size,
                                    mask ? &*mask : nullptr);
    const bool may_end = static_cast<int32_t>(expected.tokens.size()) >=
                         request.sampling.min_tokens;
    if (may_end && (in(request.eos_token_ids, token) ||
                    in(request.sampling.stop_token_ids, token))) {
      expected.reason = FinishReason::kStop;
      return expected;
    }
    expected.tokens.push_back(token);
    tokens.push_back(token);
  }
  return expected;
}

FakePipeline::FakePipeline(Epoch epoch, const PlanLimits& limits)
    : FakePipeline(epoch, limits,
                   std::make_shared<FakeStages>(1, limits, /*logs=*/false),
                   /*lags=*/false) {}

FakePipeline::FakePipeline(Epoch epoch, const PlanLimits& limits,
                           std::shared_ptr<FakeStages> stages, bool lags)
    : epoch_(epoch), limits_(limits), stages_(std::move(stages)), lags_(lags) {}

StatusOr<StepResult> FakePipeline::Run(const StepPlan& plan) {
  SLUICE_RETURN_IF_ERROR(Validate(plan, limits_));
  if (plan.epoch != epoch_ || plan.step_id != next_step_) {
    return Internal("step ", plan.step_id, " of epoch ", plan.epoch,
                    ", expected ", next_step_, " of ", epoch_);
  }
  ++next_step_;
  for (SequenceId id : plan.ended) {
    if (sequences_.erase(id) == 0) {
      return Internal("sequence ", id, " ended and was never started");
    }
  }
  stages_->Vacate(plan.vacant);
  for (const StartedSequence& started : plan.started) {
    SLUICE_RETURN_IF_ERROR(RunStarted(plan, started));
  }
  if (sequences_.size() > static_cast<size_t>(limits_.max_sequences)) {
    return Internal(sequences_.size(), " sequences, limit ",
                    limits_.max_sequences);
  }
  StepResult result;
  result.replica = plan.replica;
  result.epoch = plan.epoch;
  result.step_id = plan.step_id;
  for (Chunk chunk : plan.chunks) {
    const auto known = sequences_.find(chunk.sequence);
    if (chunk.sampled_by && known != sequences_.end()) {
      if (*chunk.sampled_by != known->second.sampled_in) {
        return Internal("names step ", *chunk.sampled_by, ", the token is of ",
                        known->second.sampled_in);
      }
      chunk.tokens = {known->second.tokens.back()};
      ++chunks_ahead_;
    }
    SLUICE_ASSIGN_OR_RETURN(SequenceResult entry, RunChunk(plan, chunk));
    if (chunk.samples) sequences_.at(chunk.sequence).sampled_in = plan.step_id;
    if (chunk.logits != LogitsWanted::kNone) {
      result.sequences.push_back(std::move(entry));
    }
  }
  if (!lags_) SLUICE_RETURN_IF_ERROR(stages_->Finish(plan.step_id));
  return result;
}

Status FakePipeline::RunStarted(const StepPlan& plan,
                                const StartedSequence& started) {
  Known known;
  known.sampling = started.sampling;
  known.num_prompt_tokens = started.num_prompt_tokens;
  known.tokens = started.tokens;
  known.blocks = started.blocks;
  if (known.blocks.size() != static_cast<size_t>(limits_.num_kv_groups)) {
    return Internal("sequence ", started.sequence, " has tables for ",
                    known.blocks.size(), " KV groups");
  }
  const size_t covered = known.blocks[0].size();
  for (auto& blocks : known.blocks) {
    if (blocks.size() > covered) return Internal("a group covers too much");
    blocks.insert(blocks.begin(), covered - blocks.size(), BlockId(-1));
  }
  const auto [it, inserted] =
      sequences_.emplace(started.sequence, std::move(known));
  if (!inserted) {
    return Internal("sequence ", started.sequence, " is known already");
  }
  it->second.kept_end = started.replay_from ? started.kept_end() : 0;
  it->second.hit_end = static_cast<int32_t>(covered) * kBlockTokens;
  const int32_t first = started.replay_from.value_or(started.kept_end());
  it->second.next_start = first;
  FakeStages::Part part = PartOf(plan, started.sequence, it->second);
  part.query = started.kept_end();
  part.known = it->second.hit_end;
  part.whole = first;
  if (!started.replay_from) part.replay_at.clear();
  stages_->Add(std::move(part));
  return OkStatus();
}

FakeStages::Part FakePipeline::PartOf(const StepPlan& plan, SequenceId sequence,
                                      const Known& known) const {
  FakeStages::Part part;
  part.step = plan.step_id;
  part.sequence = sequence;
  part.blocks = known.blocks;
  part.tokens = std::make_shared<std::vector<TokenId>>(known.tokens);
  part.replay_at = plan.replay_at;
  return part;
}

StatusOr<SequenceResult> FakePipeline::RunChunk(const StepPlan& plan,
                                                const Chunk& chunk) {
  const auto it = sequences_.find(chunk.sequence);
  if (it == sequences_.end()) {
    return Internal("chunk of unknown sequence ", chunk.sequence);
  }
  Known& known = it->second;
  for (size_t g = 0; g < chunk.new_blocks.size(); ++g) {
    known.blocks.at(g).insert(known.blocks[g].end(),
                              chunk.new_blocks[g].begin(),
                              chunk.new_blocks[g].end());
  }
  if (chunk.start != known.next_start) {
    return Internal("chunk starts at ", chunk.start, ", expected ",
                    known.next_start);
  }
  const int32_t end = chunk.start + static_cast<int32_t>(chunk.tokens.size());
  const int32_t known_end = end - chunk.num_draft_tokens;
  known.next_start = known_end;
  for (const auto& blocks : known.blocks) {
    if (static_cast<int32_t>(blocks.size()) * kBlockTokens < end) {
      return Internal("the table does not reach position ", end);
    }
  }
  for (int32_t p = chunk.start; p < known_end; ++p) {
    if (p >= static_cast<int32_t>(known.tokens.size()) ||
        known.tokens[static_cast<size_t>(p)] !=
            chunk.tokens[static_cast<size_t>(p - chunk.start)]) {
      return Internal("chunk token at ", p, " is not the history's");
    }
  }
  if (chunk.samples && known_end != static_cast<int32_t>(known.tokens.size())) {
    return Internal("samples before the end of the history");
  }
  if (chunk.replay != (chunk.start < known.kept_end) ||
      (chunk.replay && end > known.kept_end)) {
    return Internal("chunk from ", chunk.start, " to ", end,
                    chunk.replay ? " is a replay" : " is no replay",
                    ", the kept positions end at ", known.kept_end);
  }
  (chunk.replay ? tokens_replayed_ : tokens_computed_) += end - chunk.start;
  drafts_seen_ += chunk.num_draft_tokens;

  SequenceResult result;
  result.sequence = chunk.sequence;
  const bool all = chunk.logits == LogitsWanted::kAll;
  std::vector<TokenId> tokens(known.tokens);
  tokens.insert(tokens.end(), chunk.tokens.end() - chunk.num_draft_tokens,
                chunk.tokens.end());
  FakeStages::Part part = PartOf(plan, chunk.sequence, known);
  part.tokens = std::make_shared<std::vector<TokenId>>(tokens);
  part.query = part.known = part.start = chunk.start;
  part.end = end;
  part.replay = chunk.replay;
  stages_->Add(std::move(part));
  for (int32_t p = chunk.start; p < end; ++p) {
    const uint64_t digest = Digest(tokens.data(), static_cast<size_t>(p) + 1);
    if (all && known.sampling.prompt_logprobs >= 0 &&
        p + 1 < known.num_prompt_tokens) {
      result.prompt.push_back(WithLogprob(tokens[static_cast<size_t>(p) + 1],
                                          known.sampling.prompt_logprobs,
                                          digest));
    }
  }
  if (chunk.samples) Sample(chunk, known, result);
  if (!WantsRawRows(known.sampling) || chunk.logits == LogitsWanted::kNone) {
    return result;
  }
  // Hidden states are of as many values as logits here.
  const bool is_hidden = known.sampling.hidden != HiddenWanted::kNone;
  const int32_t first = all ? chunk.start : known_end - 1;
  const int32_t rows = all ? end - first
                       : is_hidden
                           ? 1
                           : static_cast<int32_t>(result.sampled.size());
  for (int32_t p = first; p < first + rows; ++p) {
    const uint64_t digest = Digest(tokens.data(), static_cast<size_t>(p) + 1);
    for (int32_t v = 0; v < limits_.vocab_size; ++v) {
      result.logits.push_back(LogitOf(digest, v));
    }
  }
  return result;
}

void FakePipeline::Sample(const Chunk& chunk, Known& known,
                          SequenceResult& result) {
  const TokenId* draft = chunk.tokens.data() + chunk.tokens.size() -
                         static_cast<size_t>(chunk.num_draft_tokens);
  const TokenId* const drafts_end = chunk.tokens.data() + chunk.tokens.size();
  for (size_t draw = 0;; ++draw) {
    const TokenMask* const mask =
        chunk.masks.empty() ? nullptr : &chunk.masks.at(draw);
    const TokenId token =
        NextToken(known.tokens, known.sampling, limits_.vocab_size, mask);
    const uint64_t digest = Digest(known.tokens.data(), known.tokens.size());
    result.sampled.push_back(
        WithLogprob(token, known.sampling.logprobs, digest));
    known.tokens.push_back(token);
    if (draft == drafts_end || *draft != token) return;
    ++draft;
    ++known.next_start;
    ++drafts_accepted_;
  }
}

}  // namespace sluice
