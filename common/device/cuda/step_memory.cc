#include "common/device/cuda/step_memory.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "common/base/check.h"
#include "kernels/attention.h"

namespace sluice {
namespace {

// Copies the first `count` of `values` into memory that holds all of them.
template <typename T>
void CopyFirst(kernels::cuda::Runtime& runtime, const std::vector<T>& values,
               int64_t count, GrowingMemory& to) {
  T* const data = to.AtLeast<T>(static_cast<int64_t>(values.size()));
  runtime.CopyIn(values.data(), data, {static_cast<size_t>(count) * sizeof(T)});
}

// Returns the bytes of the bundle of the largest step.
size_t BundleBytes(const StepInputs& step) {
  size_t words = kernels::cuda::kBundleWords + step.token_ids.size() +
                 step.positions.size() + step.logits_rows.size();
  for (const KvGroupInputs& group : step.kv_groups) {
    words += 2 * (group.slots.size() + group.table_offsets.size()) +
             group.block_tables.size();
  }
  return words * sizeof(uint32_t);
}

// Returns the runs of tokens of one sequence that lie side by side.
int32_t RunsOf(const StepInputs& step) {
  int32_t runs = 0;
  const std::vector<int64_t>& offsets = step.kv_groups[0].table_offsets;
  for (int32_t t = 0; t < step.num_tokens; ++t) {
    runs += t == 0 || offsets[t] != offsets[t - 1] ? 1 : 0;
  }
  return runs;
}

// Returns how many tokens come before the first run of kLongRun.
int32_t ShortOf(const StepInputs& step) {
  constexpr int32_t kLongRun = 16;
  const std::vector<int64_t>& offsets = step.kv_groups[0].table_offsets;
  int32_t begin = 0;
  for (int32_t t = 1; t < step.num_tokens; ++t) {
    if (offsets[t] != offsets[t - 1]) begin = t;
    if (t + 1 - begin == kLongRun) return begin;
  }
  return step.num_tokens;
}

}  // namespace

uint64_t StepMemory::AlikeOf() const {
  uint64_t hash = shapes_.num_new();
  for (const int32_t one :
       {shape_.num_tokens, shape_.num_logits_rows, shape_.short_tokens,
        max_chunks_, static_cast<int32_t>(takes_drawn_)}) {
    hash = (hash ^ static_cast<uint32_t>(one)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return std::max<uint64_t>(hash, 1);
}

StepMemory::StepMemory(kernels::cuda::Runtime* runtime)
    : runtime_(*runtime),
      bundle_(runtime),
      token_ids_(runtime),
      positions_(runtime),
      logits_rows_(runtime) {}

template <typename T>
void StepMemory::Bundle(const std::vector<T>& values, int64_t count,
                        GrowingMemory& to) {
  static_assert(sizeof(T) % sizeof(uint32_t) == 0);
  T* const data = to.AtLeast<T>(static_cast<int64_t>(values.size()));
  SLUICE_CHECK(runs_ < kernels::cuda::kMostWordRuns);
  const size_t words = static_cast<size_t>(count) * sizeof(T) / 4;
  const size_t from = words_.size();
  const kernels::cuda::WordRun run = {reinterpret_cast<uint32_t*>(data),
                                      static_cast<int32_t>(from),
                                      static_cast<int32_t>(words)};
  std::memcpy(words_.data() + runs_++ * sizeof(run) / 4, &run, sizeof(run));
  words_.resize(from + words);
  if (words > 0) std::memcpy(words_.data() + from, values.data(), words * 4);
}

void StepMemory::Begin(const StepInputs& step) {
  while (groups_.size() < step.kv_groups.size()) {
    groups_.push_back({std::make_unique<GrowingMemory>(&runtime_),
                       std::make_unique<GrowingMemory>(&runtime_),
                       std::make_unique<GrowingMemory>(&runtime_)});
  }
  std::swap(words_, older_words_);
  words_.assign(kernels::cuda::kBundleWords, 0);
  runs_ = 0;
  Bundle(step.token_ids, step.num_tokens, token_ids_);
  Bundle(step.positions, step.num_tokens, positions_);
  Bundle(step.logits_rows, step.num_logits_rows, logits_rows_);
  for (size_t g = 0; g < step.kv_groups.size(); ++g) {
    const KvGroupInputs& group = step.kv_groups[g];
    Bundle(group.slots, step.num_tokens, *groups_[g].slots);
    Bundle(group.table_offsets, step.num_tokens, *groups_[g].table_offsets);
    Bundle(group.block_tables, TableEnd(step, group), *groups_[g].block_tables);
  }
  runtime_.CopyIn(words_.data(), bundle_.AtLeast(BundleBytes(step)),
                  {words_.size() * sizeof(uint32_t)});
  int32_t last = -1;
  takes_drawn_ = false;
  for (int32_t t = 0; t < step.num_tokens; ++t) {
    last = std::max(last, step.positions[t]);
    takes_drawn_ = takes_drawn_ || step.token_ids[t] < 0;
  }
  const int32_t runs = RunsOf(step);
  short_tokens_ = ShortOf(step);
  is_decode_ = step.num_tokens == runs;
  max_chunks_ = std::max(last, 0) / kernels::kAttentionChunk + 1;
  shape_ = {step.num_tokens, step.num_logits_rows, short_tokens_};
  is_new_ = shapes_.IsNew(shape_, max_chunks_);
  alike_ = shapes_.IsCut(shape_) ? 0 : AlikeOf();
  CopyRopes(last);
}

RopeHandle StepMemory::AddRope(RopeSpec spec) {
  const auto floats =
      static_cast<int64_t>(spec.inv_freq.size()) * spec.positions;
  auto& rope =
      device_ropes_.emplace_back(std::make_unique<DeviceRope>(&runtime_));
  rope->cos.AtLeast<float>(floats);
  rope->sin.AtLeast<float>(floats);
  return ropes_.Add(std::move(spec));
}

kernels::RopeTable StepMemory::rope(RopeHandle handle) {
  const kernels::RopeTable& made = ropes_.at(handle).rows;
  DeviceRope& rope = *device_ropes_[static_cast<size_t>(handle)];
  return {rope.cos.AtLeast<float>(0), rope.sin.AtLeast<float>(0),
          made.positions, made.half};
}

void StepMemory::CopyRopes(int64_t last) {
  ropes_.Reach(last);
  for (size_t i = 0; i < device_ropes_.size(); ++i) {
    const kernels::RopeTable& made = ropes_.at(static_cast<RopeHandle>(i)).rows;
    DeviceRope& rope = *device_ropes_[i];
    const int64_t more = made.positions - rope.positions;
    if (more <= 0) continue;
    const int64_t from = rope.positions * made.half;
    const kernels::cuda::ByteRows bytes = {
        static_cast<size_t>(more * made.half) * sizeof(float)};
    runtime_.CopyIn(made.cos + from, rope.cos.AtLeast<float>(0) + from, bytes);
    runtime_.CopyIn(made.sin + from, rope.sin.AtLeast<float>(0) + from, bytes);
    rope.positions = made.positions;
  }
}

const int32_t* StepMemory::KvHeads(const AttentionSpec& spec) {
  std::unique_ptr<Copied<int32_t>>& copied = kv_heads_[spec.kv_heads];
  if (copied == nullptr) {
    copied = std::make_unique<Copied<int32_t>>(&runtime_);
    copied->values = spec.kv_heads;
    CopyFirst(runtime_, copied->values, std::ssize(copied->values),
              copied->memory);
  }
  return copied->memory.AtLeast<int32_t>(0);
}

kernels::cuda::AttentionCut StepMemory::CutOf(const AttentionSpec& spec,
                                              int32_t token) {
  std::unique_ptr<Copied<kernels::cuda::HeadRun>>& copied =
      head_runs_[spec.kv_heads];
  if (copied == nullptr) {
    copied = std::make_unique<Copied<kernels::cuda::HeadRun>>(&runtime_);
    copied->values = kernels::cuda::HeadRunsOf(spec.kv_heads);
    CopyFirst(runtime_, copied->values, std::ssize(copied->values),
              copied->memory);
  }
  constexpr int32_t kTokensOfARun = 128;
  kernels::cuda::AttentionCut cut;
  cut.runs = copied->memory.AtLeast<kernels::cuda::HeadRun>(0);
  cut.num_runs = static_cast<int32_t>(copied->values.size());
  for (const kernels::cuda::HeadRun& run : copied->values) {
    cut.most_heads = std::max(cut.most_heads, run.count);
    cut.kv_heads += run.kv_head == cut.kv_heads ? 1 : 0;
  }
  cut.tokens = token < short_tokens_ ? 1 : kTokensOfARun;
  return cut;
}

kernels::cuda::ExpertTable StepMemory::Experts(const ExpertWeights& experts) {
  const void* const first = experts.gate_up[0]->parts[0].data.data();
  std::unique_ptr<Copied<const void*>>& copied = experts_[first];
  if (copied == nullptr) {
    copied = std::make_unique<Copied<const void*>>(&runtime_);
    for (const auto* weights : {&experts.gate_up, &experts.down}) {
      for (const auto& weight : *weights) {
        copied->values.push_back(weight->parts[0].data.data());
      }
    }
    CopyFirst(runtime_, copied->values, std::ssize(copied->values),
              copied->memory);
  }
  const auto* const table = copied->memory.AtLeast<const void*>(0);
  return {table, table + experts.size(), nullptr, 0, false};
}

}  // namespace sluice
