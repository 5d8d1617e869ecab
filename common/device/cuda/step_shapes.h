#ifndef SLUICE_COMMON_DEVICE_CUDA_STEP_SHAPES_H_
#define SLUICE_COMMON_DEVICE_CUDA_STEP_SHAPES_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>

namespace sluice {

// Of a step's inputs, what says how much memory its operations need beside the
// chunks of its longest sequence, with which every need rises.
struct StepShape {
  int32_t num_tokens = 0;
  int32_t num_logits_rows = 0;
  int32_t short_tokens = 0;  // see StepMemory
  auto operator<=>(const StepShape&) const = default;
};

// The shapes of steps that have come. A step like one before needs no memory
// that is not there. The ranks of a stage see the same inputs, so every rank
// says the same of each step. A value.
class StepShapes {
 public:
  // So many are kept.
  static constexpr size_t kMost = 4096;

  // Returns whether no step of the shape with as many chunks came before; the
  // next one is not new.
  bool IsNew(const StepShape& shape, int32_t chunks) {
    if (shapes_.size() >= kMost && !shapes_.contains(shape)) shapes_.clear();
    int32_t& most = shapes_[shape].most_chunks;
    if (chunks <= most) return false;
    most = chunks;
    ++num_new_;
    return true;
  }
  // How many steps were new.
  uint64_t num_new() const { return num_new_; }

  // Steps of the shape have copies between their collectives.
  void SetCut(const StepShape& shape) { shapes_[shape].is_cut = true; }
  bool IsCut(const StepShape& shape) const {
    const auto found = shapes_.find(shape);
    return found != shapes_.end() && found->second.is_cut;
  }

 private:
  struct Seen {
    int32_t most_chunks = 0;
    bool is_cut = false;
  };
  std::map<StepShape, Seen> shapes_;
  uint64_t num_new_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_STEP_SHAPES_H_
