#include "common/stage/stage.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/device/step_inputs.h"
#include "common/stage/rank_group.h"
#include "common/stage/step_sampler.h"

namespace sluice {

Stage::Stage() = default;
Stage::~Stage() = default;

const std::vector<CollectiveTimes>& Stage::collective_times() const {
  return ranks_->collective_times();
}

TraceSpan Stage::sampling() const {
  return ran_ ? ranks_->sampling() : TraceSpan();
}

void Stage::FillInputs(const std::vector<ChunkInput>& chunks) {
  StepInputs& step = *inputs_;
  step.num_tokens = 0;
  std::vector<int64_t> table_ends(step.kv_groups.size(), 0);
  for (const ChunkInput& input : chunks) {
    const Chunk& chunk = *input.chunk;
    const int32_t first = step.num_tokens;
    const auto count = static_cast<int32_t>(chunk.tokens.size());
    for (int32_t i = 0; i < count; ++i) {
      step.token_ids[first + i] = chunk.tokens[i];
      step.positions[first + i] = chunk.start + i;
    }
    for (size_t g = 0; g < step.kv_groups.size(); ++g) {
      KvGroupInputs& group = step.kv_groups[g];
      const std::vector<BlockId>& blocks = input.state->blocks[g];
      const int64_t table = table_ends[g];
      for (size_t b = 0; b < blocks.size(); ++b) {
        group.block_tables[table + b] = blocks[b].value();
      }
      table_ends[g] += static_cast<int64_t>(blocks.size());
      for (int32_t i = 0; i < count; ++i) {
        const int32_t position = chunk.start + i;
        const int64_t block = blocks[position / kBlockTokens].value();
        group.slots[first + i] = block * kBlockTokens + position % kBlockTokens;
        group.table_offsets[first + i] = table;
      }
    }
    step.num_tokens += count;
  }
}

// Notes, for every chunk with a failed row, the sequence and its first reason.
void Stage::NoteFailures(const std::vector<ChunkInput>& chunks) {
  if (ranks_->failed_rows().empty()) return;
  std::map<int32_t, const Status*> reasons;  // by row
  for (const RowFailure& failure : ranks_->failed_rows()) {
    reasons.emplace(failure.row, &failure.status);
  }
  int32_t first = 0;
  for (const ChunkInput& input : chunks) {
    const auto end = first + static_cast<int32_t>(input.chunk->tokens.size());
    const auto found = reasons.lower_bound(first);
    if (found != reasons.end() && found->first < end) {
      SequenceResult& failed = failed_.emplace_back();
      failed.sequence = input.chunk->sequence;
      failed.status = *found->second;
    }
    first = end;
  }
}

void Stage::Run(const std::vector<ChunkInput>& chunks, HiddenStates in,
                HiddenStates& out, std::vector<SequenceResult>& results,
                const StepHeader& header) {
  results.clear();
  failed_.clear();
  ran_ = false;
  if (step_delay_ > Duration::zero()) std::this_thread::sleep_for(step_delay_);
  out = HiddenStates();
  FillInputs(chunks);
  StepInputs& step = *inputs_;
  SLUICE_CHECK(info_.is_first() || in.rows == step.num_tokens);
  step.header = header;
  step.num_logits_rows = 0;
  if (info_.is_first() && !info_.is_last()) {
    in = HiddenStates(step.num_tokens, info_.hidden_size);
  }
  StepIo io;
  io.hidden = in.values();
  io.layers_done = &layers_done_;
  StepSampler sampler(chunks, info_.limits.vocab_size);
  if (info_.is_last()) {
    step.num_logits_rows = static_cast<int32_t>(sampler.rows().size());
    std::copy(sampler.rows().begin(), sampler.rows().end(),
              step.logits_rows.begin());
    sampler.Request(io);
  } else {
    out = std::move(in);
  }
  if (step.num_tokens == 0) return;  // a plan that only starts or ends
  ranks_->RunStep(step, io);
  ran_ = true;
  if (info_.is_last()) results = sampler.Finish();
  NoteFailures(chunks);
}

}  // namespace sluice
