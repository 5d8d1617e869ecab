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

float* BoundaryLog::At(const Stage::SequenceState& state, int32_t position) {
  const BlockId block = state.blocks[0][position / kBlockTokens];
  const auto slot = static_cast<size_t>(block.value()) * kBlockTokens +
                    static_cast<size_t>(position % kBlockTokens);
  return rows_.as<float>() + slot * hidden_size_;
}

HiddenStates BoundaryLog::HandOn(const StepPlan& plan,
                                 const std::vector<Stage::ChunkInput>& chunks,
                                 HiddenStates computed) {
  const bool is_all = plan.replay_at.empty();
  HiddenStates taken;
  if (!is_all) {
    taken = HiddenStates(plan.num_rows(next_layer_),
                         static_cast<int32_t>(hidden_size_));
  }
  const float* from = computed.values();
  float* to = taken.values();
  for (const Stage::ChunkInput& input : chunks) {
    const Chunk& chunk = *input.chunk;
    const bool computes = plan.Computes(chunk, first_layer_);
    const bool gives = !is_all && plan.Computes(chunk, next_layer_);
    for (size_t i = 0; i < chunk.tokens.size(); ++i) {
      const int32_t position = chunk.start + static_cast<int32_t>(i);
      const float* row = nullptr;
      if (computes) {
        row = std::exchange(from, from + hidden_size_);
        if (!rows_.empty()) {
          std::copy_n(row, hidden_size_, At(*input.state, position));
        }
      } else if (gives) {
        row = At(*input.state, position);
      }
      if (gives) to = std::copy_n(row, hidden_size_, to);
    }
  }
  return is_all ? std::move(computed) : std::move(taken);
}

}  // namespace sluice
