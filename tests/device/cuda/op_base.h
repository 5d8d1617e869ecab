#ifndef SLUICE_TESTS_DEVICE_CUDA_OP_BASE_H_
#define SLUICE_TESTS_DEVICE_CUDA_OP_BASE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "common/tensor/weight_format.h"
#include "tests/device/cuda/device_ops.h"
#include "tests/device/cuda/random_weight.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::testing {

// RandomWeight with few random rows, which repeat.
inline HostWeight RepeatedWeight(kernels::WeightType type, uint64_t seed,
                                 int64_t rows, int64_t cols) {
  constexpr int64_t kRandomRows = 4;
  if (rows <= kRandomRows) return RandomWeight(type, seed, rows, cols);
  const HostWeight few = RandomWeight(type, seed, kRandomRows, cols);
  HostWeight weight(type, rows, cols);
  for (size_t at = 0; at < weight.data.size(); at += few.data.size()) {
    std::memcpy(weight.data.data() + at, few.data.data(),
                std::min(few.data.size(), weight.data.size() - at));
  }
  return weight;
}

// An op's memory on the device, and a step of one sequence, or of as many as
// tokens.
class OpBase : public PreparedOp {
 public:
  OpBase(Backend& backend, const OpSizes& sizes)
      : backend_(backend),
        sizes_(sizes),
        step_({static_cast<int32_t>(sizes.tokens),
               static_cast<int32_t>(num_sequences()),
               static_cast<int32_t>(sizes.context + sizes.tokens), 1}),
        others_norm_(Norm(9, kOthersCols)) {
    others_ = NewMatrix(2, kOthersCols);
    others_.rows = 1;
    backend_.CopyIn(kernels::RandomFloats(10, kOthersCols).data(), others_);
    SetStep(step_, sizes.tokens);
    for (int64_t t = 0; t < sizes.tokens; ++t) {
      if (sizes.apart) {
        Place(step_, t, t, ContextOf(t));
      } else {
        Place(step_, t, 0, sizes.context + t);
      }
    }
  }
  const StepInputs& step() const override { return step_; }
  void CopyIn() override {
    PoisonOutputs();
    for (const InputRows& input : inputs_) {
      backend_.CopyIn(input.values.data(), input.at);
    }
  }
  void CopyZerosIn() override {
    PoisonOutputs();
    for (const InputRows& input : inputs_) {
      backend_.CopyIn(ManyOf(0.0f, input.at, zeros_), input.at);
    }
  }
  void RunBehindOthers() override {
    // The second launch of a list waits for the end of the first one; those
    // behind may begin early.
    DeviceMatrix to = others_;
    to.data = static_cast<float*>(others_.data) + kOthersCols;
    for (int i = 0; i < kOthers; ++i) backend_.Norm(others_, others_norm_, to);
    for (const InputRows& input : inputs_) {
      backend_.Add(input.source, nullptr, {}, input.at);
    }
    Run();
  }
  OpResults Results() override {
    OpResults all;
    for (const DeviceMatrix& x : outputs_) {
      const bool is_ids = x.type == ElementType::kInt32;
      std::vector<float> rows(static_cast<size_t>(x.rows * x.cols));
      backend_.CopyOut(x, rows.data());
      for (float& value : rows) {
        if (is_ids) {
          int32_t id = 0;
          std::memcpy(&id, &value, sizeof(id));
          value = static_cast<float>(id);
        }
        value = std::isnan(value) ? kNaN : value;
      }
      all.push_back({std::move(rows), is_ids});
    }
    return all;
  }

 protected:
  struct InputRows {
    std::vector<float> values;
    DeviceMatrix source;  // the same on the device
    DeviceMatrix at;
  };
  static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

  int64_t num_sequences() const { return sizes_.apart ? sizes_.tokens : 1; }
  // Positions of a sequence before the step's.
  int64_t ContextOf(int64_t sequence) const {
    constexpr int64_t kFewer = 97;
    return std::max<int64_t>(sizes_.context - kFewer * sequence, 0);
  }
  // Of `tokens` tokens, with all sequences' tables, whose blocks are scattered.
  void SetStep(StepInputs& step, int64_t tokens) const {
    step.num_tokens = static_cast<int32_t>(tokens);
    step.num_logits_rows = step.num_tokens;
    for (int64_t b = 0; b < num_blocks(); ++b) {
      step.kv_groups[0].block_tables[b] = BlockOf(b);
    }
  }
  // The step's token t stands at a position of a sequence.
  void Place(StepInputs& step, int64_t t, int64_t sequence,
             int64_t position) const {
    const int64_t first = sequence * sequence_blocks();
    KvGroupInputs& group = step.kv_groups[0];
    step.token_ids[t] = static_cast<int32_t>((t * 7 + 3) % sizes_.vocab);
    step.positions[t] = static_cast<int32_t>(position);
    step.logits_rows[t] = static_cast<int32_t>(t);
    group.slots[t] =
        int64_t{BlockOf(first + position / kBlockTokens)} * kBlockTokens +
        position % kBlockTokens;
    group.table_offsets[t] = first;
  }
  int64_t sequence_blocks() const {
    return (sizes_.context + sizes_.tokens + kBlockTokens - 1) / kBlockTokens;
  }
  int64_t num_blocks() const { return num_sequences() * sequence_blocks(); }

  DeviceMatrix NewMatrix(int64_t rows, int64_t cols,
                         ElementType type = ElementType::kF32) {
    memory_.push_back(backend_.Allocate(static_cast<size_t>(rows * cols) * 4));
    return {memory_.back().data(), rows, cols, cols, type};
  }
  // Random rows that every CopyIn copies in again, since an operation may
  // change them. None is zero, whose sign a sum with zeros does not keep.
  DeviceMatrix Input(uint64_t seed, int64_t rows, int64_t cols) {
    InputRows input;
    input.values = kernels::RandomFloats(seed, rows * cols, sizes_.largest);
    for (float& value : input.values) {
      if (value == 0.0f) value = sizes_.largest;
    }
    input.source = NewMatrix(rows, cols);
    backend_.CopyIn(input.values.data(), input.source);
    input.at = NewMatrix(rows, cols);
    inputs_.push_back(std::move(input));
    return inputs_.back().at;
  }
  DeviceMatrix Output(int64_t rows, int64_t cols,
                      ElementType type = ElementType::kF32) {
    outputs_.push_back(NewMatrix(rows, cols, type));
    return outputs_.back();
  }
  const void* Vector(uint64_t seed, int64_t size) {
    const DeviceMatrix x = NewMatrix(1, size);
    const auto values = kernels::RandomFloats(seed, size);
    backend_.CopyIn(values.data(), x);
    return x.data;
  }
  NormSpec Norm(uint64_t seed, int64_t size) {
    return {Vector(seed, size), 1e-5f};
  }
  std::unique_ptr<Weight> Pack(kernels::WeightType type, uint64_t seed,
                               int64_t rows, int64_t cols) {
    std::vector<HostWeight> parts;
    parts.push_back(sizes_.rows_repeat ? RepeatedWeight(type, seed, rows, cols)
                                       : RandomWeight(type, seed, rows, cols));
    auto packed = backend_.Pack(std::move(parts));
    if (!sizes_.widened || type == kernels::WeightType::kF32) return packed;
    parts.clear();
    parts.push_back(Widened(*packed, rows, cols));
    return backend_.Pack(std::move(parts));
  }

  Backend& backend_;
  const OpSizes sizes_;
  StepInputs step_;
  std::vector<InputRows> inputs_;
  std::vector<DeviceMatrix> outputs_;

 private:
  // What an operation does not write stays no number.
  void PoisonOutputs() {
    for (const DeviceMatrix& x : outputs_) {
      backend_.CopyIn(ManyOf(kNaN, x, poison_), x);
    }
  }
  // Rows of `value` as a matrix has them, which stay until the step's end.
  static const float* ManyOf(float value, const DeviceMatrix& like,
                             std::deque<std::vector<float>>& kept) {
    const auto size = static_cast<size_t>(like.rows * like.cols);
    const auto found = std::find_if(
        kept.begin(), kept.end(),
        [&](const std::vector<float>& rows) { return rows.size() >= size; });
    if (found != kept.end()) return found->data();
    kept.emplace_back(size, value);
    return kept.back().data();
  }

  static constexpr int kOthers = 3;
  static constexpr int64_t kOthersCols = 8192;

  // The rows of a weight as embeddings, which are exact.
  HostWeight Widened(const Weight& weight, int64_t rows, int64_t cols) {
    constexpr int64_t kRows = 256;
    const DeviceMatrix room = NewMatrix(kRows, cols);
    HostWeight wide(kernels::WeightType::kF32, rows, cols);
    for (int64_t first = 0; first < rows; first += kRows) {
      DeviceMatrix some = room;
      some.rows = std::min(kRows, rows - first);
      StepInputs step({static_cast<int32_t>(some.rows), 1, 1, 1});
      step.num_tokens = static_cast<int32_t>(some.rows);
      for (int64_t t = 0; t < some.rows; ++t) {
        step.token_ids[t] = static_cast<int32_t>(first + t);
      }
      backend_.BeginStep(step);
      backend_.Embed(&weight, some);
      backend_.EndStep();
      backend_.CopyOut(some, wide.data.as<float>() + first * cols);
    }
    return wide;
  }
  // Blocks stand in the cache from the last one down.
  int32_t BlockOf(int64_t index) const {
    return static_cast<int32_t>(num_blocks() - 1 - index);
  }
  std::vector<DeviceMemory> memory_;
  // What copies within a step read as late as its end.
  std::deque<std::vector<float>> zeros_;
  std::deque<std::vector<float>> poison_;
  DeviceMatrix others_;  // a row that is normed; behind it goes the result
  const NormSpec others_norm_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_DEVICE_CUDA_OP_BASE_H_
