#ifndef SLUICE_TESTS_ENGINE_FAKE_STAGES_H_
#define SLUICE_TESTS_ENGINE_FAKE_STAGES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "common/base/status.h"
#include "common/core/kv_groups.h"
#include "common/core/step_plan.h"

namespace sluice {

// Spreads a value over all bits.
uint64_t Mix(uint64_t x);

// Digest of a history; of one without tokens; and of one with a token more.
uint64_t Digest(const TokenId* tokens, size_t count);
inline constexpr uint64_t kNoHistory = 1;
uint64_t Extend(uint64_t digest, TokenId token);

// The memory of a pipeline's stages, which outlives the pipeline. Per slot a
// stage's "KV cache" has a digest of the whole history up to the slot's
// position and of the KV group, and per block of states one of the history
// before it. Its log has what the stage handed on. Every stage works off the
// same parts of steps, in order, each at its own pace.
class FakeStages {
 public:
  // What one chunk, or one start, does on every stage.
  struct Part {
    StepId step;
    SequenceId sequence;
    std::vector<std::vector<BlockId>> blocks;  // the tables, per KV group
    std::shared_ptr<const std::vector<TokenId>> tokens;  // the history
    // Positions [0, known) must hold the history, as far as a query at `query`
    // sees them, and on stages that replay [0, whole).
    int32_t query = 0;
    int32_t known = 0;
    int32_t whole = 0;
    // Positions [start, end) are computed; on stages of `replay_at` alone if
    // `replay`.
    int32_t start = 0;
    int32_t end = 0;
    bool replay = false;
    std::vector<int32_t> replay_at = {};
    bool fails = false;  // what it leaves has no meaning
  };

  // Stage i has layer i. `logs`: whether stages have a log.
  FakeStages(int count, const PlanLimits& limits, bool logs);

  int count() const { return static_cast<int>(stages_.size()); }
  const PlanLimits& limits() const { return limits_; }
  void Add(Part part);
  // Every stage does the parts up to `step`. INTERNAL names the first slot that
  // is not as it must be.
  Status Finish(StepId step);
  // The sequences that have a chunk in `step`, which is not finished.
  std::vector<SequenceId> Carried(StepId step) const;
  // From `step` on the parts of `sequence` fail, where they are not done, until
  // the sequence starts again.
  void Spoil(StepId step, SequenceId sequence);
  // The pipeline is lost: each stage has done some of the parts, the later
  // stages fewer, and perhaps a piece of one more. `pick` returns a number
  // below its argument.
  Status Break(const std::function<size_t(size_t)>& pick);
  // The memory of these blocks loses its meaning on every stage.
  void Vacate(const std::vector<BlockRange>& vacant);
  // Stage `index` is another process, whose memory has no meaning.
  void Replace(size_t index);
  // The layers are cut at `first_layers`: those of the stages, rising from 0. A
  // stage with the same layers as before is the same one. Returns the others.
  // `copies`: each of these has copied what the stages before had of its
  // layers, but no log.
  std::vector<int32_t> Recut(const std::vector<int32_t>& first_layers,
                             bool copies = false);
  int32_t num_layers() const { return num_layers_; }
  std::vector<int32_t> first_layers() const;
  // Returns the first layers of the stages that must compute replays so that
  // those of `lost` (indices) can: a stage without a log hands on what it
  // computes.
  std::vector<int32_t> ReplayAt(const std::vector<int32_t>& lost) const;

 private:
  struct Stage {
    int32_t first_layer = 0;
    int32_t last_layer = 0;       // one past the last
    std::vector<uint64_t> slots;  // of all KV groups but states
    // Of blocks of states: what is before a block, and its slots.
    std::vector<uint64_t> states;
    std::vector<uint64_t> log;
    bool has_log = true;  // since it computed what it has
  };
  // What all stages of `before` with layers of stage `index` agree on is in its
  // slots.
  void CopyFrom(const std::vector<Stage>& before, size_t index);
  bool Computes(const Part& part, size_t index) const;
  // Does the part up to position `end` of it.
  Status Do(const Part& part, size_t index, int32_t end);
  Status CheckHistory(const Part& part, const Stage& stage, int32_t query,
                      int32_t end) const;
  bool HoldsStates(size_t group) const {
    return IsState(limits_.kv_window(static_cast<int32_t>(group)));
  }
  size_t SlotOf(const Part& part, size_t group, int32_t position) const;
  Status CheckState(const Part& part, const Stage& stage, size_t group,
                    int32_t query, int32_t end) const;
  void WriteSlot(const Part& part, size_t group, int32_t position,
                 uint64_t before, uint64_t digest, Stage& stage) const;

  const PlanLimits limits_;
  const bool logs_;
  const int32_t num_layers_;
  std::vector<Stage> stages_;
  std::deque<Part> parts_;
  std::set<SequenceId> failed_;
};

}  // namespace sluice

#endif  // SLUICE_TESTS_ENGINE_FAKE_STAGES_H_
