#include "common/core/step_plan.h"

#include <algorithm>
#include <ostream>
#include <unordered_set>

#include "common/core/kv_groups.h"

namespace sluice {
namespace {

Status CheckTokens(const char* what, SequenceId sequence,
                   const std::vector<TokenId>& tokens, int vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size) {
      return InvalidArgument(what, " of sequence ", sequence, ": token ", i,
                             " is ", tokens[i], ", vocabulary size is ",
                             vocab_size);
    }
  }
  return OkStatus();
}

Status CheckBlocks(SequenceId sequence,
                   const std::vector<std::vector<BlockId>>& groups,
                   const PlanLimits& limits) {
  if (groups.size() > static_cast<size_t>(limits.num_kv_groups)) {
    return InvalidArgument("sequence ", sequence, " has blocks for ",
                           groups.size(), " KV groups, the model has ",
                           limits.num_kv_groups);
  }
  const size_t max_blocks =
      static_cast<size_t>(limits.max_context + kBlockTokens - 1) / kBlockTokens;
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto& blocks = groups[g];
    const int32_t num_blocks = limits.blocks_of(static_cast<int32_t>(g));
    if (blocks.size() > max_blocks) {
      return InvalidArgument("sequence ", sequence, " has ", blocks.size(),
                             " blocks in one step, limit ", max_blocks);
    }
    for (BlockId block : blocks) {
      if (block.value() < 0 || block.value() >= num_blocks) {
        return InvalidArgument("sequence ", sequence, " names block ", block,
                               ", blocks are [0, ", num_blocks, ")");
      }
    }
  }
  return OkStatus();
}

// Needs a chunk with tokens.
Status CheckSampling(const Chunk& chunk, int32_t vocab_size) {
  if (chunk.samples && chunk.logits == LogitsWanted::kNone) {
    return InvalidArgument("chunk of sequence ", chunk.sequence,
                           " samples without logits");
  }
  const int32_t drafts = chunk.num_draft_tokens;
  const auto most =
      std::min<int64_t>(kMaxDraftTokens, std::ssize(chunk.tokens) - 1);
  if (drafts < 0 || drafts > most) {
    return InvalidArgument("chunk of sequence ", chunk.sequence, " has ",
                           drafts, " draft tokens, limit ", most);
  }
  if (drafts > 0 && (!chunk.samples || chunk.logits != LogitsWanted::kLast)) {
    return InvalidArgument("chunk of sequence ", chunk.sequence, " has ",
                           drafts,
                           " draft tokens, and does not sample from "
                           "the last positions alone");
  }
  if (chunk.masks.empty()) return OkStatus();
  const int64_t sampled = chunk.samples ? drafts + 1 : 0;
  if (std::ssize(chunk.masks) != sampled) {
    return InvalidArgument("chunk of sequence ", chunk.sequence, " has ",
                           chunk.masks.size(), " masks for ", sampled,
                           " sampled tokens");
  }
  for (const TokenMask& mask : chunk.masks) {
    SLUICE_RETURN_IF_ERROR(Annotate(Validate(mask, vocab_size),
                                    "chunk of sequence ", chunk.sequence));
  }
  return OkStatus();
}

// Checks the step that samples the token of `chunk`, which is in `step`.
Status CheckSampledBy(const Chunk& chunk, StepId step) {
  const uint64_t by = chunk.sampled_by->value();
  if (by >= step.value() || step.value() - by > kMaxStepsBack) {
    return InvalidArgument("chunk of sequence ", chunk.sequence, " in step ",
                           step, " has a token that step ", by,
                           " samples, which must be one of the ", kMaxStepsBack,
                           " steps before");
  }
  if (chunk.tokens.size() == 1 && chunk.start >= 1 && chunk.masks.empty()) {
    return OkStatus();
  }
  return InvalidArgument("chunk of sequence ", chunk.sequence,
                         " has a token that step ", by, " samples, ",
                         chunk.tokens.size(), " tokens, start ", chunk.start,
                         " and ", chunk.masks.size(),
                         " masks; it must have 1 token, start at 1 or above, "
                         "and have no mask");
}

// Needs a chunk with `replay`.
Status CheckReplay(const Chunk& chunk) {
  if (!chunk.samples && chunk.logits == LogitsWanted::kNone &&
      !chunk.sampled_by) {
    return OkStatus();
  }
  return InvalidArgument("chunk of sequence ", chunk.sequence,
                         " is a replay, and samples or wants logits");
}

Status CheckReplayAt(const StepPlan& plan) {
  const std::vector<int32_t>& at = plan.replay_at;
  if (at.size() > kMaxReplayStages) {
    return InvalidArgument("step ", plan.step_id, " is replayed at ", at.size(),
                           " stages, limit ", kMaxReplayStages);
  }
  for (size_t i = 0; i < at.size(); ++i) {
    const int32_t least = i == 0 ? 0 : at[i - 1] + 1;
    if (at[i] >= least) continue;
    return InvalidArgument("step ", plan.step_id, " is replayed at layer ",
                           at[i], ", which must be at least ", least);
  }
  const bool any = std::any_of(plan.chunks.begin(), plan.chunks.end(),
                               [](const Chunk& chunk) { return chunk.replay; });
  if (any != at.empty()) return OkStatus();
  return InvalidArgument(
      "step ", plan.step_id, " has ",
      any ? "replays without a stage" : "stages of replays without a replay");
}

Status CheckChunk(const Chunk& chunk, StepId step, const PlanLimits& limits) {
  if (chunk.tokens.empty()) {
    return InvalidArgument("chunk of sequence ", chunk.sequence,
                           " has no tokens");
  }
  if (chunk.start < 0 ||
      chunk.start >
          limits.max_context - static_cast<int64_t>(chunk.tokens.size())) {
    return InvalidArgument("chunk of sequence ", chunk.sequence,
                           " covers positions ", chunk.start, " to ",
                           chunk.start + int64_t(chunk.tokens.size()),
                           ", context limit ", limits.max_context);
  }
  if (chunk.sampled_by.has_value()) {
    SLUICE_RETURN_IF_ERROR(CheckSampledBy(chunk, step));
  }
  SLUICE_RETURN_IF_ERROR(CheckSampling(chunk, limits.vocab_size));
  if (chunk.replay) SLUICE_RETURN_IF_ERROR(CheckReplay(chunk));
  SLUICE_RETURN_IF_ERROR(
      CheckTokens("chunk", chunk.sequence, chunk.tokens, limits.vocab_size));
  return CheckBlocks(chunk.sequence, chunk.new_blocks, limits);
}

Status CheckVacant(const StepPlan& plan, const PlanLimits& limits) {
  if (plan.vacant.empty()) return OkStatus();
  if (!plan.chunks.empty() || plan.vacant.size() > kMaxVacantRanges) {
    return InvalidArgument("step ", plan.step_id, " has ", plan.vacant.size(),
                           " vacant ranges and ", plan.chunks.size(),
                           " chunks, limits ", kMaxVacantRanges, " and 0");
  }
  int32_t before = 0;
  for (const BlockRange& range : plan.vacant) {
    if (range.begin < before || range.end <= range.begin ||
        range.end > limits.num_blocks) {
      return InvalidArgument("step ", plan.step_id, " has vacant blocks [",
                             range.begin, ", ", range.end,
                             "), which must be within [", before, ", ",
                             limits.num_blocks, ")");
    }
    before = range.end;
  }
  return OkStatus();
}

Status CheckStarted(const StartedSequence& started, const PlanLimits& limits) {
  if (started.tokens.empty() ||
      started.tokens.size() > static_cast<size_t>(limits.max_context)) {
    return InvalidArgument("started sequence ", started.sequence, " has ",
                           started.tokens.size(), " tokens, limit [1, ",
                           limits.max_context, "]");
  }
  if (started.num_prompt_tokens < 1 ||
      started.num_prompt_tokens > static_cast<int64_t>(started.tokens.size())) {
    return InvalidArgument("started sequence ", started.sequence, " has ",
                           started.num_prompt_tokens, " prompt tokens of ",
                           started.tokens.size());
  }
  SLUICE_RETURN_IF_ERROR(Annotate(Validate(started.sampling, limits.vocab_size),
                                  "started sequence ", started.sequence));
  SLUICE_RETURN_IF_ERROR(CheckTokens("start", started.sequence, started.tokens,
                                     limits.vocab_size));
  SLUICE_RETURN_IF_ERROR(CheckBlocks(started.sequence, started.blocks, limits));
  if (!started.replay_from || (*started.replay_from >= 0 &&
                               *started.replay_from < started.kept_end())) {
    return OkStatus();
  }
  return InvalidArgument("started sequence ", started.sequence,
                         " is replayed from position ", *started.replay_from,
                         ", its hits are positions 0 to ",
                         started.kept_end() - 1);
}

}  // namespace

int32_t PlanLimits::blocks_of(int32_t group) const {
  return IsState(kv_window(group)) ? num_state_blocks : num_blocks;
}

int32_t StartedSequence::kept_end() const {
  const size_t covered =
      blocks.empty() ? 0 : blocks[0].size() * size_t{kBlockTokens};
  return static_cast<int32_t>(std::min(covered, tokens.size() - 1));
}

bool StepPlan::Computes(const Chunk& chunk, int32_t first_layer) const {
  return !chunk.replay ||
         std::binary_search(replay_at.begin(), replay_at.end(), first_layer);
}

int32_t StepPlan::num_rows(int32_t first_layer) const {
  size_t rows = 0;
  for (const Chunk& chunk : chunks) {
    if (Computes(chunk, first_layer)) rows += chunk.tokens.size();
  }
  return static_cast<int32_t>(rows);
}

int32_t StepPlan::num_tokens() const {
  size_t total = 0;
  for (const Chunk& chunk : chunks) total += chunk.tokens.size();
  return static_cast<int32_t>(total);
}

Status Validate(const StepPlan& plan, const PlanLimits& limits) {
  const size_t max_sequences = static_cast<size_t>(limits.max_sequences);
  if (plan.chunks.size() > max_sequences ||
      plan.started.size() > max_sequences) {
    return InvalidArgument("step ", plan.step_id, " has ", plan.chunks.size(),
                           " chunks and ", plan.started.size(),
                           " started sequences, limit ", max_sequences);
  }
  std::unordered_set<SequenceId> seen;
  for (const StartedSequence& started : plan.started) {
    if (!seen.insert(started.sequence).second) {
      return InvalidArgument("step ", plan.step_id, " starts sequence ",
                             started.sequence, " twice");
    }
    SLUICE_RETURN_IF_ERROR(CheckStarted(started, limits));
  }
  SLUICE_RETURN_IF_ERROR(CheckReplayAt(plan));
  SLUICE_RETURN_IF_ERROR(CheckVacant(plan, limits));
  seen.clear();
  int64_t tokens = 0;
  size_t mask_runs = 0;
  for (const Chunk& chunk : plan.chunks) {
    if (!seen.insert(chunk.sequence).second) {
      return InvalidArgument("step ", plan.step_id, " has two chunks of ",
                             "sequence ", chunk.sequence);
    }
    SLUICE_RETURN_IF_ERROR(CheckChunk(chunk, plan.step_id, limits));
    tokens += static_cast<int64_t>(chunk.tokens.size());
    for (const TokenMask& mask : chunk.masks) mask_runs += mask.runs.size();
  }
  if (mask_runs > kMaxMaskRuns) {
    return InvalidArgument("step ", plan.step_id, " has ", mask_runs,
                           " runs of allowed tokens, limit ", kMaxMaskRuns);
  }
  if (tokens > limits.max_step_tokens) {
    return InvalidArgument("step ", plan.step_id, " has ", tokens,
                           " tokens, limit ", limits.max_step_tokens);
  }
  return OkStatus();
}

std::ostream& operator<<(std::ostream& out, const StepPlan& plan) {
  out << "step " << plan.step_id << " epoch " << plan.epoch << " ended [";
  for (SequenceId id : plan.ended) out << ' ' << id;
  out << " ] started [";
  for (const auto& s : plan.started) {
    out << ' ' << s.sequence << ":" << s.tokens.size();
  }
  out << " ] chunks [";
  for (const auto& c : plan.chunks) {
    out << ' ' << c.sequence << "@" << c.start << "+" << c.tokens.size()
        << (c.samples ? "s" : "") << (c.replay ? "r" : "");
    if (c.num_draft_tokens > 0) out << "d" << c.num_draft_tokens;
    if (c.sampled_by.has_value()) out << "<" << *c.sampled_by;
  }
  return out << " ]";
}

}  // namespace sluice
