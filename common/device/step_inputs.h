#ifndef SLUICE_COMMON_DEVICE_STEP_INPUTS_H_
#define SLUICE_COMMON_DEVICE_STEP_INPUTS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/core/ids.h"

namespace sluice {

// The largest step of a stage, from which every buffer of a step has its size.
struct StepLimits {
  int32_t max_step_tokens = 0;
  int32_t max_sequences = 0;
  int32_t max_context = 0;
  int32_t num_kv_groups = 1;
  int32_t max_blocks_per_sequence() const {
    return (max_context + kBlockTokens - 1) / kBlockTokens;
  }
};

// The pipeline, epoch and id of a step. Expert hosts get it with each batch.
struct StepHeader {
  ReplicaId replica;
  Epoch epoch;
  StepId step_id;
};

// The slots that a step's tokens read and write, for one KV group.
struct KvGroupInputs {
  std::vector<int64_t> slots;          // [T] block * kBlockTokens + place
  std::vector<int64_t> table_offsets;  // [T] into block_tables
  std::vector<int32_t> block_tables;   // the step's tables, one after another
};

// The inputs of one step, in buffers of fixed address and size: a backend
// copies them at once, and a captured graph can run on them again. The stage's
// thread fills them; all its ranks read them.
struct StepInputs {
  explicit StepInputs(const StepLimits& limits)
      : token_ids(limits.max_step_tokens),
        positions(limits.max_step_tokens),
        logits_rows(limits.max_step_tokens),
        kv_groups(limits.num_kv_groups) {
    for (KvGroupInputs& group : kv_groups) {
      group.slots.resize(limits.max_step_tokens);
      group.table_offsets.resize(limits.max_step_tokens);
      group.block_tables.resize(static_cast<size_t>(limits.max_sequences) *
                                limits.max_blocks_per_sequence());
    }
  }
  StepInputs(const StepInputs&) = delete;
  StepInputs& operator=(const StepInputs&) = delete;

  StepHeader header;
  int32_t num_tokens = 0;       // T
  int32_t num_logits_rows = 0;  // how many of the rows want logits
  // Below 0: the token that the step before, which is not done yet, draws from
  // its logits row -1 - id.
  std::vector<int32_t> token_ids;
  std::vector<int32_t> positions;
  std::vector<int32_t> logits_rows;  // rising rows of the step
  std::vector<KvGroupInputs> kv_groups;
};

// How many entries of the group's block tables the step's tokens reach.
inline int64_t TableEnd(const StepInputs& step, const KvGroupInputs& group) {
  int64_t end = 0;
  for (int32_t t = 0; t < step.num_tokens; ++t) {
    end = std::max(
        end, group.table_offsets[t] + step.positions[t] / kBlockTokens + 1);
  }
  return std::min(end, static_cast<int64_t>(group.block_tables.size()));
}

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_STEP_INPUTS_H_
