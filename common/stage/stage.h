#ifndef SLUICE_COMMON_STAGE_STAGE_H_
#define SLUICE_COMMON_STAGE_STAGE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/kv_entry.h"
#include "common/core/step_plan.h"
#include "common/device/make_backends.h"
#include "common/model/packed_weights.h"
#include "common/model_config/expert_placement.h"
#include "common/model_config/model_config.h"
#include "common/model_config/weights_mode.h"
#include "common/sampling/token_counts.h"
#include "common/stage/stage_info.h"
#include "common/tensor/hidden_states.h"
#include "kernels/block_format.h"
#include "kernels/weight_type.h"

namespace sluice {

class ExpertTransport;
class RankGroup;
class RankLink;
struct StepInputs;
struct StepLimits;

struct StageOptions {
  std::string model_path;
  // Layers [first_layer, last_layer) of the model; last_layer -1: to the end.
  int32_t first_layer = 0;
  int32_t last_layer = -1;
  int32_t ranks = 1;  // tensor-parallel ranks, each a team of threads
  // Of a stage whose ranks are of several processes: this one has ranks
  // [first_rank, first_rank + ranks) of all_ranks, and `rank_link`, which must
  // outlive the stage, reaches the others. 0, null: it has all of them.
  int32_t first_rank = 0;
  int32_t all_ranks = 0;
  RankLink* rank_link = nullptr;
  int32_t total_ranks() const { return all_ranks == 0 ? ranks : all_ranks; }
  // Compute threads of the whole stage, shared evenly, at least one per rank;
  // 0: as many as this process has cores.
  int32_t threads = 0;
  WeightsMode weights = WeightsMode::kAuto;
  KvChoice kv_type = kernels::WeightType::kF32;  // auto: KvTypeOf
  int32_t kv_blocks = 0;    // 0: from max_context and the available memory
  uint64_t memory = 0;      // of weights and KV cache; 0: the available memory
  int32_t max_context = 0;  // 0: the model's, or less if memory is short
  int32_t max_step_tokens = 512;
  int32_t max_sequences = 256;
  std::string isa = "auto";       // see ParseIsa in cpu_options.h
  std::string device = "cpu";     // see ParseDevice in device_choice.h
  std::string numerics = "auto";  // see ParseNumerics there
  // F32: blocks are widened as they are multiplied (see CheckWidened there).
  kernels::BlockActivations activations = kernels::BlockActivations::kEightBits;
  PackedOptions packed;  // packed weights on disk
  // For measuring: what an outline of a shard does not have is made up. Nothing
  // of such a model is packed on disk.
  weights::OutlineReads outlines = weights::OutlineReads::kRefuse;
  // Pins each compute thread to its own core if there are enough.
  bool pin_threads = false;
  // How long the ranks' threads look for the next step before they sleep;
  // absent: UsualSpin.
  std::optional<Duration> spin;
  // The remote experts, which the stage neither loads nor computes; empty:
  // none. `expert_transport` reaches them. The stage's thread calls it, and it
  // must outlive the stage.
  ExpertPlacement placement;
  ExpertTransport* expert_transport = nullptr;
  // Whether to keep what the next stage gets, if a quarter of the memory
  // beside weights and KV cache is enough: see BoundaryLog.
  bool replay_log = true;
  // Makes the devices that the ranks compute on.
  BackendFactory make_backends = MakeBackends;
  std::function<StatusOr<ModelConfig>(const Json&)> parse_config =
      ParseModelConfig;
  // For tests of traces: makes every step this much longer.
  Duration debug_step_delay{};
  // Called while loading with bytes done and total bytes; may be empty.
  std::function<void(uint64_t done, uint64_t total)> progress;
};

// Returns 5 ms on GPUs if there are two CPUs for each rank's thread, else 0. A
// wake takes some 25 us, a GPU's step 1 to 5 ms.
Duration UsualSpin(bool on_gpus, int32_t ranks, int cpus);

// One stage's weights, KV cache and ranks. Not thread-safe: one StageLoop owns
// the calls to Run; info() is const after Load.
class Stage {
 public:
  // Reads this stage's tensors alone. INVALID_ARGUMENT for options and models
  // that do not fit each other; RESOURCE_EXHAUSTED if the KV cache exceeds the
  // available memory.
  static StatusOr<std::unique_ptr<Stage>> Load(const StageOptions& options);
  // Returns what StageOptions::device is for a device's name (ChooseDevice of
  // device_choice.h) of stage number `place`, -1: it has none. It is the name
  // itself, but for "auto". INVALID_ARGUMENT for a name of none,
  // FAILED_PRECONDITION for a GPU that is missing, too old, or that this build
  // has no code for.
  static StatusOr<std::string> ChooseDevice(const std::string& device,
                                            int32_t place);
  // Returns what StageOptions::ranks is for `ranks` on the device (RanksOn of
  // device_choice.h).
  static StatusOr<int32_t> RanksOn(const std::string& device, int32_t ranks);
  // Returns what StageOptions::max_step_tokens is for the ranks on the device,
  // unless it is given (StepTokensOn of make_backends.h).
  static StatusOr<int32_t> StepTokensOn(const std::string& device,
                                        int32_t ranks);
  // INVALID_ARGUMENT for StageOptions::numerics that do not exist, or that the
  // device lacks.
  static Status CheckNumerics(const std::string& device,
                              const std::string& numerics);
  // INVALID_ARGUMENT for activations that the options' numerics lack.
  static Status CheckActivations(const StageOptions& options);
  // Returns the facts of a process without layers: the model, and limits that
  // no stage of it exceeds. Errors as Load's.
  static StatusOr<StageInfo> Describe(const StageOptions& options);
  ~Stage();

  const StageInfo& info() const { return info_; }
  // StageOptions::spin, or what it is if absent.
  Duration spin() const { return spin_; }

  // A sequence's state on this stage, which StageLoop keeps from plans.
  struct SequenceState {
    SamplingParams sampling;
    int32_t num_prompt_tokens = 0;
    std::vector<TokenId> tokens;        // history: prompt and sampled
    std::optional<TokenCounts> counts;  // of the history; only for penalties
    std::vector<std::vector<BlockId>> blocks;  // per KV group
  };
  // A chunk with its sequence's state; the table covers the chunk.
  struct ChunkInput {
    const Chunk* chunk = nullptr;
    const SequenceState* state = nullptr;
    // The chunk's only token is the one that the step in flight draws.
    bool takes_drawn = false;
  };

  // Runs the stage's layers over `chunks`, whose tokens together are the rows
  // of the step. First stage: embeds, and `in` is empty. Last stage: fills
  // `results`, one per chunk with logits wanted, and leaves `out` empty. Else
  // `out` has the memory of `in`. Needs inputs that StageLoop has validated.
  // `header`: for expert hosts.
  void Run(const std::vector<ChunkInput>& chunks, HiddenStates in,
           HiddenStates& out, std::vector<SequenceResult>& results,
           const StepHeader& header = {}) {
    Begin(chunks, std::move(in), header);
    Finish(out, results);
  }

  // Run in two parts. One more step may begin before the first one's Finish,
  // which is then the first one's, if the stage overlaps steps: one on a GPU,
  // or on several that do not wait for each other on the host, without remote
  // experts. Each has rows of its own for `in` and `out`, and a device does
  // what it is handed in order. The chunks, not their states, stay valid until
  // Finish.
  void Begin(const std::vector<ChunkInput>& chunks, HiddenStates in,
             const StepHeader& header = {});
  void Finish(HiddenStates& out, std::vector<SequenceResult>& results);
  bool overlaps_steps() const;
  // Gives the memory of vacant KV blocks (StepPlan::vacant) back to the system:
  // whole pages, on the ranks of this process and on the CPU. Between steps.
  void GiveBack(const std::vector<BlockRange>& vacant);
  // Whether keys and values can be copied: all ranks are of this process, and
  // a stage on GPUs has a single rank.
  bool can_copy_kv() const;
  // The bytes of one block of layer `layer` of the model in KV group `group`,
  // over all ranks; 0: the layer keeps nothing in the group. And copies of
  // these. Between steps.
  size_t KvBytes(int32_t layer, int32_t group) const;
  void ReadKv(const KvName& name, void* out);
  void WriteKv(const KvName& name, const void* in);
  // The bytes of the host's memory that copies of these may take here: half of
  // what is free.
  uint64_t shelf_room() const;
  // Whether the step in flight draws one token for the sequence, which the next
  // one may take: only where the stage that draws is the one that embeds.
  bool Draws(SequenceId sequence) const;
  // Whether Finish does not wait.
  bool IsDone() const;

  // Sequences of the last finished step that failed on this stage because
  // remote experts gave no answer, each once. Their hidden states and results
  // have no meaning.
  const std::vector<SequenceResult>& failed() const { return failed_; }

  // Layers computed so far, in all Runs. Any thread.
  uint64_t layers_done() const { return layers_done_; }

  // The ranks' times in collectives in the last step with tokens, if several.
  const std::vector<CollectiveTimes>& collective_times() const;

  // The time of sampling in the last finished step; only the last stage
  // samples. (For a prompt's logits in several pieces: of the last piece.)
  TraceSpan sampling() const;

 private:
  struct Flight;  // a step between Begin and Finish

  Stage();
  void MakeFlights(const StepLimits& limits);
  // Of the step that begins next, and of the one whose Finish is next.
  Flight& Next() const { return *flights_[begun_ % flights_.size()]; }
  Flight& Oldest() const { return *flights_[finished_ % flights_.size()]; }
  void FillInputs(const std::vector<ChunkInput>& chunks, StepInputs& step);
  void NoteFailures(const std::vector<ChunkInput>& chunks);

  StageInfo info_;
  Duration step_delay_{};
  Duration spin_{};
  std::atomic<uint64_t> layers_done_{0};
  bool ran_ = false;  // the last finished step had tokens
  std::vector<SequenceResult> failed_;
  std::vector<std::unique_ptr<Flight>> flights_;
  uint64_t begun_ = 0;
  uint64_t finished_ = 0;
  RankLink* link_ = nullptr;  // to ranks of other processes; null: none
  std::unique_ptr<RankGroup> ranks_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_STAGE_H_
