#include "common/stage/boundary_log.h"

#include <algorithm>
#include <utility>

namespace sluice {

uint64_t BoundaryLog::BytesOf(const StageInfo& info) {
  return sizeof(float) * static_cast<uint64_t>(info.limits.num_blocks) *
         kBlockTokens * static_cast<uint64_t>(info.hidden_size);
}

BoundaryLog::BoundaryLog(const StageInfo& info)
    : first_layer_(info.first_layer),
      next_layer_(info.last_layer),
      hidden_size_(static_cast<size_t>(info.hidden_size)),
      rows_(info.replay_log ? BytesOf(info) : 0) {}

Status BoundaryLog::Check(const StepPlan& plan) const {
  if (!rows_.empty()) return OkStatus();
  for (const Chunk& chunk : plan.chunks) {
    if (plan.Computes(chunk, first_layer_) ||
        !plan.Computes(chunk, next_layer_)) {
      continue;
    }
    return FailedPrecondition("the chunk of sequence ", chunk.sequence,
                              " is a replay from layer ", next_layer_,
                              " on, and this stage, from layer ", first_layer_,
                              " on, has no log of it");
  }
  return OkStatus();
}

std::vector<size_t> BoundaryLog::SlotsOf(
    const std::vector<Stage::ChunkInput>& chunks) const {
  std::vector<size_t> slots;
  if (rows_.empty()) return slots;
  for (const Stage::ChunkInput& input : chunks) {
    const Stage::SequenceState& state = *input.state;
    for (size_t i = 0; i < input.chunk->tokens.size(); ++i) {
      const int32_t position = input.chunk->start + static_cast<int32_t>(i);
      const BlockId block = state.blocks[0][position / kBlockTokens];
      slots.push_back(static_cast<size_t>(block.value()) * kBlockTokens +
                      static_cast<size_t>(position % kBlockTokens));
    }
  }
  return slots;
}

HiddenStates BoundaryLog::HandOn(const StepPlan& plan,
                                 const std::vector<size_t>& slots,
                                 HiddenStates computed) {
  const bool is_all = plan.replay_at.empty();
  HiddenStates taken;
  if (!is_all) {
    taken = HiddenStates(plan.num_rows(next_layer_),
                         static_cast<int32_t>(hidden_size_));
  }
  const float* from = computed.values();
  float* to = taken.values();
  auto slot = slots.begin();
  for (const Chunk& chunk : plan.chunks) {
    const bool computes = plan.Computes(chunk, first_layer_);
    const bool gives = !is_all && plan.Computes(chunk, next_layer_);
    for (size_t i = 0; i < chunk.tokens.size(); ++i) {
      float* const kept = rows_.empty() ? nullptr : At(*slot++);
      const float* row = kept;
      if (computes) {
        row = std::exchange(from, from + hidden_size_);
        if (!rows_.empty()) {
          std::copy_n(row, hidden_size_, kept);
        }
      }
      if (gives) to = std::copy_n(row, hidden_size_, to);
    }
  }
  return is_all ? std::move(computed) : std::move(taken);
}

}  // namespace sluice
