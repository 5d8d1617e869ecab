#ifndef SLUICE_COMMON_STAGE_SEQUENCE_TABLE_H_
#define SLUICE_COMMON_STAGE_SEQUENCE_TABLE_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "common/core/step_plan.h"
#include "common/stage/stage.h"

namespace sluice {

// What plans told one stage of its sequences: parameters, token history and
// block tables. Every plan is checked against it; the table trusts no peer.
// From the next plan on a sequence has no block that is behind a KV group's
// window: others may have it then. Used by the stage loop's thread.
class SequenceTable {
 public:
  // `knows_sampled`: this is the last stage, which samples, so that chunks
  // may not bring tokens that it has not seen, but for the placeholder of one
  // that failed to be sampled.
  SequenceTable(const PlanLimits& limits, bool knows_sampled);

  // Takes over ended, started and chunks, in this order. The plan has passed
  // Validate(plan, limits). FAILED_PRECONDITION, naming what, which and both
  // values, if the plan contradicts the table: a sequence that is not there
  // or starts twice, a chunk that does not begin where the last one ended (the
  // first: where the prefix hits do), nor behind drafts of that one, or whose
  // tokens are not the history's, a block table that does not reach, a block in
  // two KV groups. The table is then in between and must be cleared.
  Status Apply(const StepPlan& plan);

  // The plan's chunks with their sequences, after Apply; valid until the
  // next Apply or Clear.
  std::vector<Stage::ChunkInput> Inputs(const StepPlan& plan) const;

  // Appends what was sampled to the histories, in the place of drafts.
  void Append(const std::vector<SequenceResult>& results);

  void Clear();

  int32_t size() const { return static_cast<int32_t>(sequences_.size()); }
  // Distinct blocks in the sequences' tables.
  int32_t blocks() const { return blocks_alive_; }
  // The most of them since the last Clear.
  int32_t peak_blocks() const { return peak_blocks_; }

 private:
  struct Entry {
    Stage::SequenceState state;
    // Positions [0, computed) are in the KV cache: the next chunk begins
    // there. At first the prefix hits, but for the history's last token.
    int32_t computed = 0;
    // The last chunk's drafts, which end the history until the next chunk,
    // or the result, tells how many of them were accepted.
    int32_t num_drafts = 0;
    // Per KV group: so many blocks at the front are behind its window. Their
    // entries are 0 and not read.
    std::vector<int32_t> evicted;
  };

  void LeaveBehind();
  void LetGo(BlockId block);
  Status End(SequenceId id);
  Status StartOne(const StartedSequence& started);
  Status TakeChunk(const Chunk& chunk);
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
  std::vector<int32_t> block_group_;  // of those that have users
  int32_t blocks_alive_ = 0;
  int32_t peak_blocks_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_SEQUENCE_TABLE_H_
