#ifndef SLUICE_COMMON_STAGE_SEQUENCE_TABLE_H_
#define SLUICE_COMMON_STAGE_SEQUENCE_TABLE_H_

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "common/core/step_plan.h"
#include "common/stage/stage.h"

namespace sluice {

// The sequences of one stage, from plans: parameters, token history and block
// tables. Every plan is checked against it; the table trusts no peer. Blocks
// behind a KV group's window leave a sequence's table with the next plan, which
// may give them to others. Used by the stage loop's thread.
class SequenceTable {
 public:
  // `knows_sampled`: this is the last stage, which samples. Its chunks may only
  // bring tokens that it has sampled, or the placeholder of a token whose
  // sampling failed.
  SequenceTable(const PlanLimits& limits, bool knows_sampled);

  // Takes over ended, started and chunks, in this order. The plan has passed
  // Validate(plan, limits). FAILED_PRECONDITION, naming what, which and both
  // values, if the plan contradicts the table: an unknown sequence, or one that
  // starts twice; a chunk that begins neither where the last one ended (the
  // first: behind the prefix hits, or where their replay starts) nor behind
  // drafts of that one; a replay that is not within the hits; tokens that
  // differ from the history's; a block table that is too short; a block in two
  // KV groups. After an error the table must be cleared. Chunks that
  // `in_flight` samples for bring a placeholder, which Append replaces.
  Status Apply(const StepPlan& plan, std::optional<StepId> in_flight = {});

  // Returns the plan's chunks with their sequences, after Apply; valid until
  // the next Apply or Clear.
  std::vector<Stage::ChunkInput> Inputs(const StepPlan& plan) const;

  // Whether a token that is drawn for the sequence depends on the counts of
  // those before.
  bool CountsTokens(SequenceId id) const;
  bool WantsLogits(SequenceId id) const;

  // Appends the sampled tokens to the histories, in the place of drafts and
  // placeholders. A sequence that a later plan ended has none.
  void Append(const std::vector<SequenceResult>& results);

  void Clear();

  int32_t size() const { return static_cast<int32_t>(sequences_.size()); }
  // Distinct blocks of keys and values in the sequences' tables.
  int32_t blocks() const { return blocks_alive_; }
  // The most such blocks since the last Clear.
  int32_t peak_blocks() const { return peak_blocks_; }

 private:
  struct Entry {
    Stage::SequenceState state;
    // Positions [0, computed) are in the KV cache; the next chunk begins there.
    // At first these are the prefix hits, without the history's last token.
    int32_t computed = 0;
    int32_t kept_end = 0;  // chunks before it are replays
    // The last chunk's drafts, at the end of the history until the next chunk
    // or the result tells how many are accepted.
    int32_t num_drafts = 0;
    // The history's last token is a placeholder.
    bool awaits_token = false;
    // Per KV group: the number of blocks at the front that are behind its
    // window. Their entries are 0 and not read.
    std::vector<int32_t> evicted;
  };

  void LeaveBehind();
  Status CheckVacant(const StepPlan& plan) const;
  void LetGo(size_t group, BlockId block);
  Status End(SequenceId id);
  Status StartOne(const StartedSequence& started);
  Status TakeChunk(const Chunk& chunk, std::optional<StepId> in_flight);
  static void Accept(int32_t num_accepted, Entry& entry);
  Status TakeTokens(const Chunk& chunk, Entry& entry) const;
  Status TakeHits(const StartedSequence& started, Entry& entry);
  Status AppendBlocks(const std::vector<std::vector<BlockId>>& blocks,
                      SequenceId id, Entry& entry);

  const PlanLimits limits_;
  const bool knows_sampled_;
  std::unordered_map<SequenceId, Entry> sequences_;
  std::vector<SequenceId> advanced_;  // by the last plan
  std::vector<int32_t> block_users_;  // sequences per block
  std::vector<int32_t> block_group_;  // of blocks with users
  int32_t blocks_alive_ = 0;
  int32_t peak_blocks_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_SEQUENCE_TABLE_H_
