#ifndef SLUICE_TESTS_SIMULATION_HOST_COMMON_STAGE_STAGE_H_
#define SLUICE_TESTS_SIMULATION_HOST_COMMON_STAGE_STAGE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/core/kv_entry.h"
#include "common/core/step_plan.h"
#include "common/core/step_trace.h"
#include "common/sampling/token_counts.h"
#include "common/stage/stage_info.h"
#include "common/tensor/hidden_states.h"

namespace sluice {

struct StepHeader {
  ReplicaId replica;
  Epoch epoch;
  StepId step;
};
struct CollectiveTimes {};

// A stage whose arithmetic is digests: see toy_stage.cc.
class Stage {
 public:
  struct SequenceState {
    SamplingParams sampling;
    int32_t num_prompt_tokens = 0;
    std::vector<TokenId> tokens;
    std::optional<TokenCounts> counts;
    std::vector<std::vector<BlockId>> blocks;
  };
  struct ChunkInput {
    const Chunk* chunk = nullptr;
    const SequenceState* state = nullptr;
    bool takes_drawn = false;
  };

  // A step takes up to `step_time`; of a thousand sequences `no_host` fail in
  // one, as if an expert had no host.
  Stage(StageInfo info, Duration step_time, int no_host);

  const StageInfo& info() const { return info_; }
  // A fibre that spins lets no other one go on.
  Duration spin() const { return Duration::zero(); }
  // What blocks held is gone.
  void GiveBack(const std::vector<BlockRange>& vacant);
  // Computes the step at once, as a device does in the order of its stream;
  // time passes until Finish.
  void Begin(const std::vector<ChunkInput>& chunks, HiddenStates in,
             const StepHeader& header = {});
  void Finish(HiddenStates& out, std::vector<SequenceResult>& results);
  // As a GPU without remote experts does.
  bool overlaps_steps() const { return no_host_ == 0; }
  bool Draws(SequenceId sequence) const {
    return info_.is_first() && info_.is_last() && drawn_.contains(sequence);
  }
  bool IsDone();
  const std::vector<SequenceResult>& failed() const { return failed_; }
  uint64_t layers_done() const { return layers_done_; }
  bool can_copy_kv() const { return true; }
  size_t KvBytes(int32_t layer, int32_t group) const;
  void ReadKv(const KvName& name, void* out);
  void WriteKv(const KvName& name, const void* in);
  uint64_t shelf_room() const { return UINT64_MAX; }
  const std::vector<CollectiveTimes>& collective_times() const {
    return collective_times_;
  }
  TraceSpan sampling() const { return {}; }

 private:
  // What a position has behind it: digests of its history.
  struct Row {
    uint64_t chain = 0;
    uint64_t sum = 0;
  };
  struct Flight {
    HiddenStates out;
    std::vector<SequenceResult> results;
    std::vector<SequenceResult> failed;
    int asked = 0;  // whether it is done
  };
  // The tokens of a chunk, and its sequence's history up to its end, with the
  // token that the step before has drawn.
  std::vector<TokenId> TokensOf(const ChunkInput& input) const;
  std::vector<TokenId> HistoryOf(const ChunkInput& input) const;
  void RunLayer(int32_t layer, const ChunkInput& input, Row* rows);
  Row& Slot(int32_t layer, const SequenceState& state, int32_t position);
  // Of the group of states: what is before the block of `position`.
  Row& BeforeBlock(int32_t layer, const SequenceState& state, int32_t position);
  bool HoldsState(int32_t layer) const;
  // The first row of a block.
  Row* BlockOf(const KvName& name);
  // The row before `position`, whose last rows are held against each other.
  Row ReadBefore(int32_t layer, const SequenceState& state, int32_t position,
                 uint64_t& wrong);
  SequenceResult Sample(const ChunkInput& input, const Row* rows) const;

  const StageInfo info_;
  const Duration step_time_;
  const int no_host_;
  uint64_t layers_done_ = 0;
  std::vector<Row> slots_;  // [own layers][blocks * kBlockTokens]
  // Blocks of states: [own layers][blocks * (1 + kBlockTokens)]
  std::vector<Row> states_;
  std::vector<SequenceResult> failed_;
  std::deque<Flight> flights_;
  // What the latest step drew alone, and the one before that.
  std::map<SequenceId, TokenId> drawn_;
  std::map<SequenceId, TokenId> drawn_before_;
  const std::vector<CollectiveTimes> collective_times_;
};

}  // namespace sluice

#endif  // SLUICE_TESTS_SIMULATION_HOST_COMMON_STAGE_STAGE_H_
