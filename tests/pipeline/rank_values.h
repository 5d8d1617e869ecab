// Values of the streams between a stage's processes: an order, facts, hellos,
// steps, and who keeps these.
#ifndef SLUICE_TESTS_PIPELINE_RANK_VALUES_H_
#define SLUICE_TESTS_PIPELINE_RANK_VALUES_H_

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/pipeline/ranks/rank_frames.h"
#include "tests/testing/holds_within.h"

namespace sluice::testing {

inline RankOrder OrderOf(int32_t all_ranks) {
  RankOrder order;
  order.model_digest = "aa11";
  order.first_layer = 4;
  order.last_layer = 9;
  order.all_ranks = all_ranks;
  order.weights = WeightsMode::kQ8_0;
  order.kv_type = kernels::WeightType::kBf16;
  order.numerics = "fast";
  order.memory = uint64_t{9} << 30;
  order.kv_blocks = 64;
  order.max_context = 128;
  order.max_step_tokens = 32;
  order.max_sequences = 8;
  return order;
}

inline RankFacts FactsOf(int32_t context, int32_t blocks, uint64_t bytes) {
  return {"cuda-fast-90-5", context, blocks, bytes, 10 * bytes};
}

inline FollowerHello HelloOf(int32_t first, int32_t count) {
  FollowerHello hello;
  hello.build = "test";
  hello.model_digest = "aa11";
  hello.first_rank = first;
  hello.num_ranks = count;
  hello.process = "pid 7";
  return hello;
}

inline RankStepBounds BoundsOf(int32_t hidden_size, int32_t kv_groups = 3) {
  RankStepBounds bounds;
  bounds.limits = {32, 8, 128, kv_groups};
  bounds.kv_blocks = 64;
  bounds.vocab_size = 1000;
  bounds.hidden_size = hidden_size;
  return bounds;
}

// Step `id`: sequences of 3 and 2 tokens at positions 30 and 5, whose values
// differ from step to step and from group to group.
inline std::unique_ptr<RankStep> StepOf(const RankStepBounds& bounds,
                                        uint64_t id) {
  auto step = std::make_unique<RankStep>(bounds.limits);
  StepInputs& inputs = step->inputs;
  inputs.header = {ReplicaId(3), Epoch(7), StepId(id)};
  inputs.num_tokens = 5;
  const int32_t shift = static_cast<int32_t>(id);
  inputs.num_logits_rows = 2;
  inputs.logits_rows[0] = 2;
  inputs.logits_rows[1] = 4;
  for (int32_t t = 0; t < 5; ++t) {
    inputs.token_ids[t] = t == 3 ? -1 - shift % 3 : 100 * t + shift;
    inputs.positions[t] = t < 3 ? 30 + t : 2 + t;
  }
  for (size_t g = 0; g < inputs.kv_groups.size(); ++g) {
    KvGroupInputs& group = inputs.kv_groups[g];
    const auto first = static_cast<int32_t>(10 * g) + shift;
    for (int32_t b = 0; b < 4; ++b) group.block_tables[b] = first + b;
    for (int32_t t = 0; t < 5; ++t) {
      group.table_offsets[t] = t < 3 ? 0 : 3;
      const int64_t block =
          group.block_tables[group.table_offsets[t] +
                             inputs.positions[t] / kBlockTokens];
      group.slots[t] =
          block * kBlockTokens + inputs.positions[t] % kBlockTokens;
    }
  }
  if (bounds.hidden_size > 0) {
    step->hidden = HiddenStates(5, bounds.hidden_size);
    for (int32_t i = 0; i < 5 * bounds.hidden_size; ++i) {
      step->hidden.values()[i] = 0.5f * static_cast<float>(i + shift);
    }
  }
  return step;
}

inline void ExpectSame(const RankStep& got, const RankStep& want) {
  const StepInputs& a = got.inputs;
  const StepInputs& b = want.inputs;
  EXPECT_EQ(a.header.replica, b.header.replica);
  EXPECT_EQ(a.header.epoch, b.header.epoch);
  EXPECT_EQ(a.header.step_id, b.header.step_id);
  ASSERT_EQ(a.num_tokens, b.num_tokens);
  EXPECT_EQ(a.num_logits_rows, b.num_logits_rows);
  EXPECT_EQ(a.token_ids, b.token_ids);
  EXPECT_EQ(a.positions, b.positions);
  EXPECT_EQ(a.logits_rows, b.logits_rows);
  ASSERT_EQ(a.kv_groups.size(), b.kv_groups.size());
  for (size_t g = 0; g < a.kv_groups.size(); ++g) {
    EXPECT_EQ(a.kv_groups[g].slots, b.kv_groups[g].slots);
    EXPECT_EQ(a.kv_groups[g].table_offsets, b.kv_groups[g].table_offsets);
    EXPECT_EQ(a.kv_groups[g].block_tables, b.kv_groups[g].block_tables);
  }
  EXPECT_EQ(got.hidden.rows, want.hidden.rows);
  EXPECT_EQ(got.hidden.cols, want.hidden.cols);
  ASSERT_EQ(got.hidden.data.size(), want.hidden.data.size());
  if (want.hidden.empty()) return;
  EXPECT_EQ(std::memcmp(got.hidden.data.data(), want.hidden.data.data(),
                        want.hidden.data.size()),
            0);
}

// Keeps the steps that come; has no more than `places`.
class StepRecord : public RankStepRunner {
 public:
  explicit StepRecord(const RankStepBounds& bounds, size_t places = 1000)
      : bounds_(bounds), places_(places) {}

  const RankStepBounds& bounds() const override { return bounds_; }
  RankStep* Free() override {
    MutexLock lock(mutex_);
    if (steps_.size() == places_) return nullptr;
    if (next_ == nullptr) next_ = std::make_unique<RankStep>(bounds_.limits);
    return next_.get();
  }
  void Push() override {
    MutexLock lock(mutex_);
    steps_.push_back(std::move(next_));
  }

  size_t size() const {
    MutexLock lock(mutex_);
    return steps_.size();
  }
  bool Await(size_t count) const {
    return HoldsWithin(std::chrono::seconds(10),
                       [&] { return size() >= count; });
  }
  const RankStep& at(size_t i) const {
    MutexLock lock(mutex_);
    return *steps_.at(i);
  }

 private:
  const RankStepBounds bounds_;
  const size_t places_;
  mutable Mutex mutex_;
  std::unique_ptr<RankStep> next_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<RankStep>> steps_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_PIPELINE_RANK_VALUES_H_
