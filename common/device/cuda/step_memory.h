#ifndef SLUICE_COMMON_DEVICE_CUDA_STEP_MEMORY_H_
#define SLUICE_COMMON_DEVICE_CUDA_STEP_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "common/device/cpu/rope_tables.h"
#include "common/device/cuda/cuda_memory.h"
#include "common/device/cuda/step_shapes.h"
#include "common/device/layer_spec.h"
#include "common/device/step_inputs.h"
#include "common/device/weight.h"
#include "kernels/cuda/experts.h"
#include "kernels/cuda/fast/attention.h"
#include "kernels/cuda/shared/gather.h"

namespace sluice {

// What a step's kernels read beside activations and weights, on the device:
// the step's inputs, RoPE's tables, and lists that the model has as values on
// the host. Addresses stay from step to step. Used by one thread.
class StepMemory {
 public:
  struct Group {
    std::unique_ptr<GrowingMemory> slots;
    std::unique_ptr<GrowingMemory> table_offsets;
    std::unique_ptr<GrowingMemory> block_tables;
  };

  explicit StepMemory(kernels::cuda::Runtime* runtime);

  // Copies what `step` has. At most one step more is not done.
  void Begin(const StepInputs& step);
  // Puts the step's inputs where kernels read them; after Begin.
  void Place() {
    kernels::cuda::ScatterWords(runtime_.stream(), bundle_.AtLeast<uint32_t>(0),
                                runs_);
  }

  int32_t* token_ids() { return token_ids_.AtLeast<int32_t>(0); }
  const int32_t* positions() { return positions_.AtLeast<int32_t>(0); }
  const int32_t* logits_rows() { return logits_rows_.AtLeast<int32_t>(0); }
  const int64_t* slots(int32_t group) {
    return groups_[group].slots->AtLeast<int64_t>(0);
  }
  const int64_t* table_offsets(int32_t group) {
    return groups_[group].table_offsets->AtLeast<int64_t>(0);
  }
  const int32_t* block_tables(int32_t group) {
    return groups_[group].block_tables->AtLeast<int32_t>(0);
  }
  // Whether a token of the step is one that the step before draws.
  bool takes_drawn() const { return takes_drawn_; }
  // Whether every token is of a sequence of its own.
  bool is_decode() const { return is_decode_; }
  // Whether no step of its shape came before, with as many chunks.
  bool is_new() const { return is_new_; }
  // A number of all that decides what a decode step's launches are, the same on
  // every rank: another one behind a new step, in which memory may have moved;
  // 0 for a shape with copies between collectives (NoteCut).
  uint64_t alike() const { return alike_; }
  void NoteCut() { shapes_.SetCut(shape_); }
  // Chunks of kAttentionChunk that the step's longest sequence has.
  int32_t max_chunks() const { return max_chunks_; }

  RopeHandle AddRope(RopeSpec spec);
  // The table on the device.
  kernels::RopeTable rope(RopeHandle handle);
  kernels::RopeStyle rope_style(RopeHandle handle) const {
    return ropes_.at(handle).spec.style;
  }

  // `spec`'s list of kv heads.
  const int32_t* KvHeads(const AttentionSpec& spec);
  // How attention on matrix units is cut for the step's tokens from `token` on,
  // with `spec`'s heads.
  kernels::cuda::AttentionCut CutOf(const AttentionSpec& spec, int32_t token);
  // Tokens at the step's begin that have few of their sequence beside them, as
  // decodes do: attention computes each by itself.
  int32_t short_tokens() const { return short_tokens_; }
  // The addresses of the experts' weights.
  kernels::cuda::ExpertTable Experts(const ExpertWeights& experts);
  // Weights at `data` are gone.
  void Forget(const void* data) { experts_.erase(data); }

 private:
  // A list of the host's and its copy on the device.
  template <typename T>
  struct Copied {
    explicit Copied(kernels::cuda::Runtime* runtime) : memory(runtime) {}
    std::vector<T> values;
    GrowingMemory memory;
  };
  struct DeviceRope {
    explicit DeviceRope(kernels::cuda::Runtime* runtime)
        : cos(runtime), sin(runtime) {}
    GrowingMemory cos;
    GrowingMemory sin;
    int64_t positions = 0;  // copied
  };

  void CopyRopes(int64_t last);
  uint64_t AlikeOf() const;
  // Adds the first `count` of `values` to the bundle that goes to the device;
  // `to` holds all of them.
  template <typename T>
  void Bundle(const std::vector<T>& values, int64_t count, GrowingMemory& to);

  kernels::cuda::Runtime& runtime_;
  // The inputs of a step, in one copy: on the device, and of the latest two
  // steps, the present one first, on the host.
  GrowingMemory bundle_;
  std::vector<uint32_t> words_;
  std::vector<uint32_t> older_words_;
  int runs_ = 0;
  GrowingMemory token_ids_;
  GrowingMemory positions_;
  GrowingMemory logits_rows_;
  std::vector<Group> groups_;
  int32_t max_chunks_ = 0;
  int32_t short_tokens_ = 0;
  bool takes_drawn_ = false;
  bool is_decode_ = false;
  bool is_new_ = false;
  StepShape shape_;
  uint64_t alike_ = 0;
  StepShapes shapes_;
  RopeTables ropes_;
  std::vector<std::unique_ptr<DeviceRope>> device_ropes_;
  // By the lists themselves, and by the first weight.
  std::map<std::vector<int32_t>, std::unique_ptr<Copied<int32_t>>> kv_heads_;
  std::map<std::vector<int32_t>,
           std::unique_ptr<Copied<kernels::cuda::HeadRun>>>
      head_runs_;
  std::map<const void*, std::unique_ptr<Copied<const void*>>> experts_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_STEP_MEMORY_H_
