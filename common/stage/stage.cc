#include "common/stage/stage.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <span>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/device/cpu/available_memory.h"
#include "common/device/step_inputs.h"
#include "common/stage/rank_group.h"
#include "common/stage/rank_link.h"
#include "common/stage/step_sampler.h"

namespace sluice {

struct Stage::Flight {
  explicit Flight(const StepLimits& limits) : inputs(limits) {}
  StepInputs inputs;
  HiddenStates hidden;
  std::vector<ChunkInput> chunks;
  std::optional<StepSampler> sampler;
  bool ran = false;  // has tokens
};

Duration UsualSpin(bool on_gpus, int32_t ranks, int cpus) {
  return on_gpus && cpus >= 2 * ranks ? Duration(std::chrono::milliseconds(5))
                                      : Duration::zero();
}

Stage::Stage() = default;
Stage::~Stage() {
  // Before this process's ranks go: they may wait for the others' end.
  if (link_ != nullptr) link_->Drop();
}

const std::vector<CollectiveTimes>& Stage::collective_times() const {
  return ranks_->collective_times();
}

TraceSpan Stage::sampling() const {
  return ran_ ? ranks_->sampling() : TraceSpan();
}

void Stage::FillInputs(const std::vector<ChunkInput>& chunks,
                       StepInputs& step) {
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
    if (input.takes_drawn) {
      step.token_ids[first] = -1 - Oldest().sampler->DrawnRow(chunk.sequence);
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

void Stage::MakeFlights(const StepLimits& limits) {
  for (int i = 0; i < (overlaps_steps() ? 2 : 1); ++i) {
    flights_.push_back(std::make_unique<Flight>(limits));
  }
}

bool Stage::overlaps_steps() const { return ranks_->overlaps_steps(); }

bool Stage::Draws(SequenceId sequence) const {
  return info_.is_first() && info_.is_last() &&
         Oldest().sampler->DrawnRow(sequence) >= 0;
}

bool Stage::IsDone() const { return !Oldest().ran || ranks_->IsDone(); }

void Stage::GiveBack(const std::vector<BlockRange>& vacant) {
  for (const BlockRange& range : vacant) ranks_->GiveBack(range);
}

bool Stage::can_copy_kv() const {
  return link_ == nullptr && ranks_->can_copy_kv();
}

size_t Stage::KvBytes(int32_t layer, int32_t group) const {
  return ranks_->KvBytes(layer - info_.first_layer, group);
}

uint64_t Stage::shelf_room() const { return AvailableMemory() / 2; }

void Stage::ReadKv(const KvName& name, void* out) {
  ranks_->ReadKv(name.layer - info_.first_layer, name.group, name.block,
                 static_cast<std::byte*>(out));
}

void Stage::WriteKv(const KvName& name, const void* in) {
  ranks_->WriteKv(name.layer - info_.first_layer, name.group, name.block,
                  static_cast<const std::byte*>(in));
}

void Stage::Begin(const std::vector<ChunkInput>& chunks, HiddenStates in,
                  const StepHeader& header) {
  SLUICE_CHECK(begun_ - finished_ < (overlaps_steps() ? 2u : 1u));
  if (step_delay_ > Duration::zero()) std::this_thread::sleep_for(step_delay_);
  Flight& flight = Next();
  StepInputs& step = flight.inputs;
  FillInputs(chunks, step);
  ++begun_;
  SLUICE_CHECK(info_.is_first() || in.rows == step.num_tokens);
  step.header = header;
  step.num_logits_rows = 0;
  if (info_.is_first() && !info_.is_last()) {
    in = HiddenStates(step.num_tokens, info_.hidden_size);
  }
  flight.chunks = chunks;
  flight.hidden = std::move(in);
  flight.sampler.emplace(chunks, info_.limits.vocab_size, info_.residual_size);
  flight.ran = step.num_tokens > 0;  // else a plan that only starts or ends
  StepIo io;
  io.hidden = flight.hidden.values();
  io.layers_done = &layers_done_;
  if (info_.is_last()) {
    const std::span<const int32_t> rows = flight.sampler->rows();
    step.num_logits_rows = static_cast<int32_t>(rows.size());
    std::copy(rows.begin(), rows.end(), step.logits_rows.begin());
    flight.sampler->Request(io);
  }
  if (!flight.ran) return;
  // At the first stage the rows are what goes out.
  if (link_ != nullptr) {
    const HiddenStates none;
    link_->Begin(step, info_.is_first() ? none : flight.hidden);
  }
  ranks_->Begin(step, io);
}

void Stage::Finish(HiddenStates& out, std::vector<SequenceResult>& results) {
  SLUICE_CHECK(finished_ < begun_);
  Flight& flight = Oldest();
  results.clear();
  failed_.clear();
  ran_ = flight.ran;
  if (ran_) ranks_->End();
  out = info_.is_last() ? HiddenStates() : std::move(flight.hidden);
  if (ran_ && info_.is_last()) results = flight.sampler->Finish();
  if (ran_) NoteFailures(flight.chunks);
  flight.hidden = HiddenStates();
  flight.chunks.clear();
  ++finished_;
}

}  // namespace sluice
