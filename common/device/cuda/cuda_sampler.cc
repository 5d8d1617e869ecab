#include "common/device/cuda/cuda_sampler.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include "kernels/exp_log.h"

namespace sluice {
namespace {

using kernels::cuda::SampleResult;
using kernels::cuda::SampleTask;

static_assert(kMaxTopLogprobs == kernels::cuda::kMostTopLogits);

// Rows whose candidates stand in device memory at once.
constexpr int64_t kRowsAtOnce = 16;

// Memory of this kind grows rarely, whatever tasks rows have.
size_t Roomy(size_t bytes) {
  constexpr size_t kLeast = size_t{1} << 14;
  return std::max(std::bit_ceil(bytes), kLeast);
}

// Tasks and their lists as bytes, whose addresses are set once the device's
// memory is there.
class Upload {
 public:
  explicit Upload(size_t tasks) : bytes_(tasks * sizeof(SampleTask)) {
    tasks_.resize(tasks);
  }
  SampleTask& task(size_t i) { return tasks_[i]; }

  // Appends entries; the list's address counts from the upload's begin.
  template <typename T>
  void Append(std::span<const T> entries, kernels::cuda::DeviceList<T>& list) {
    bytes_.resize((bytes_.size() + alignof(T) - 1) / alignof(T) * alignof(T));
    list.data = reinterpret_cast<const T*>(bytes_.size());
    list.count = static_cast<int32_t>(entries.size());
    const auto* from = reinterpret_cast<const std::byte*>(entries.data());
    bytes_.insert(bytes_.end(), from, from + entries.size_bytes());
  }
  size_t size() const { return bytes_.size(); }

  // Returns the bytes for memory at `base`.
  std::vector<std::byte> At(const void* base) {
    for (SampleTask& task : tasks_) {
      kernels::cuda::LogitEdits& edits = task.edits;
      Move(edits.biases, base);
      Move(edits.mask, base);
      Move(edits.stops, base);
      Move(edits.counts, base);
    }
    std::memcpy(bytes_.data(), tasks_.data(),
                tasks_.size() * sizeof(SampleTask));
    return std::move(bytes_);
  }

 private:
  template <typename T>
  static void Move(kernels::cuda::DeviceList<T>& list, const void* base) {
    list.data =
        reinterpret_cast<const T*>(static_cast<const std::byte*>(base) +
                                   reinterpret_cast<uintptr_t>(list.data));
  }

  std::vector<SampleTask> tasks_;
  std::vector<std::byte> bytes_;
};

void AddEdits(const TokenTask& task, Upload& upload,
              kernels::cuda::LogitEdits& edits) {
  const SamplingParams& params = *task.params;
  std::optional<TokenCounts> counted;
  const TokenCounts* counts = task.point.counts;
  if (NeedsTokenCounts(params) && counts == nullptr) {
    counted = TokenCounts::Of(task.point.history, task.point.num_prompt_tokens);
    counts = &*counted;
  }
  const LogitChanges changes = ChangesOf(task, counts);
  edits.any = changes.any();
  if (!edits.any) return;
  std::vector<kernels::cuda::TokenValue> biases;
  for (const LogitBias& bias : params.logit_bias) {
    biases.push_back({bias.token, bias.bias});
  }
  upload.Append<kernels::cuda::TokenValue>(biases, edits.biases);
  if (changes.mask != nullptr) {
    edits.masked = true;
    edits.excludes = changes.mask->excludes;
    std::vector<kernels::cuda::TokenRange> runs;
    for (const TokenRun& run : changes.mask->runs) {
      runs.push_back({run.begin, run.end});
    }
    upload.Append<kernels::cuda::TokenRange>(runs, edits.mask);
  }
  if (changes.masks) {
    upload.Append<int32_t>(params.stop_token_ids, edits.stops);
  }
  if (changes.counts == nullptr) return;
  std::vector<kernels::cuda::TokenTimes> times;
  for (const TokenCounts::Entry& entry : changes.counts->entries()) {
    times.push_back({entry.token, entry.generated});
  }
  upload.Append<kernels::cuda::TokenTimes>(times, edits.counts);
  edits.repetition = params.repetition_penalty;
  edits.frequency = params.frequency_penalty;
  edits.presence = params.presence_penalty;
}

void AddDraw(const TokenTask& task, int64_t vocab, Upload& upload,
             SampleTask& to) {
  const SamplingParams& params = *task.params;
  to.draws = true;
  to.greedy = IsGreedy(params);
  // Tokens that the request names have tasks of their own.
  to.num_top = params.logprob_token_ids.empty() ? params.logprobs : 0;
  AddEdits(task, upload, to.edits);
  if (!to.greedy) to.scale = 1.0f / params.temperature;
  to.top_k = params.top_k;
  to.top_p = params.top_p;
  to.min_p = params.min_p;
  const bool keeps_top_k = params.top_k > 0 && params.top_k < vocab;
  to.sums_all = !to.greedy && !keeps_top_k &&
                (params.top_p < 1.0f || params.min_p <= 0.0f);
  // Slightly more than can weigh min_p, as Sampler has it.
  to.heavy_depth = params.min_p < 1e-30f
                       ? std::numeric_limits<double>::infinity()
                       : 1e-3 - kernels::Log(double{params.min_p});
  to.share_unit = static_cast<double>(
      int64_t{1} << (62 - std::bit_width(static_cast<uint64_t>(vocab))));
  to.seed = params.seed;
  to.choice = params.choice;
  to.position = static_cast<uint32_t>(task.point.position);
}

// Returns `tasks` and, behind them, a description of each token of their
// logprob_token_ids. `owners`: by such a description its draw.
std::vector<RowTask> WithNamed(std::span<const RowTask> tasks,
                               std::vector<size_t>& owners) {
  std::vector<RowTask> all(tasks.begin(), tasks.end());
  for (size_t i = 0; i < tasks.size(); ++i) {
    const SamplingParams* params = tasks[i].task.params;
    if (params == nullptr || params->logprobs < 0) continue;
    for (const TokenId id : params->logprob_token_ids) {
      all.push_back({tasks[i].row, {.token = id, .num_top = 0}});
      owners.push_back(i);
    }
  }
  return all;
}

StatusOr<TokenResult> ResultOf(const SampleResult& from, int32_t num_top) {
  switch (from.outcome) {
    case SampleResult::Outcome::kNotFinite:
      return Internal("logit of token ", from.token, " is ", from.logprob);
    case SampleResult::Outcome::kAllMasked:
      return Internal("every token is masked");
    case SampleResult::Outcome::kToken:
      break;
  }
  TokenResult result;
  result.token = from.token;
  if (num_top < 0) return result;
  result.logprob = TokenLogprob{from.token, from.logprob, from.rank};
  for (int32_t i = 0; i < from.num_top; ++i) {
    result.top_logprobs.push_back(
        {from.top_tokens[i], from.top_logprobs[i], i});
  }
  return result;
}

}  // namespace

void CudaSampler::Enqueue(kernels::ConstMatrix logits, int32_t begin,
                          std::span<const RowTask> asked,
                          std::span<StatusOr<TokenResult>> answers) {
  if (asked.empty()) return;
  auto batch = std::make_unique<Batch>();
  const std::vector<RowTask> tasks = WithNamed(asked, batch->owners);
  Upload upload(tasks.size());
  kernels::cuda::SampleTasks work = {.edits = false, .sums = false};
  for (size_t i = 0; i < tasks.size(); ++i) {
    SampleTask& to = upload.task(i);
    to.logits = logits.row(tasks[i].row - begin);
    if (tasks[i].task.params != nullptr) {
      to.drawn = drawn_.AtLeast<int32_t>(0) + tasks[i].row;
      AddDraw(tasks[i].task, logits.cols, upload, to);
    } else {
      to.token = tasks[i].task.token;
      to.num_top = tasks[i].task.num_top;
    }
    // At temperature 1 an unchanged row has the same sum for both.
    to.sums_raw =
        to.num_top >= 0 && !(to.sums_all && !to.edits.any && to.scale == 1);
    work.edits = work.edits || to.edits.any;
    work.sums = work.sums || to.sums_all || to.sums_raw;
  }
  std::fill(answers.begin(), answers.end(),
            StatusOr<TokenResult>(Internal("read before the step's end")));
  batch->answers = answers;
  batch->results.resize(tasks.size());
  auto* const at =
      static_cast<SampleTask*>(tasks_.AtLeast(Roomy(upload.size())));
  batch->upload = upload.At(at);
  runtime_.CopyIn(batch->upload.data(), at, {batch->upload.size()});
  const auto count = static_cast<int64_t>(tasks.size());
  auto* const results = static_cast<SampleResult*>(
      results_.AtLeast(Roomy(tasks.size() * sizeof(SampleResult))));
  const int64_t at_once = std::min(count, kRowsAtOnce);
  void* const rows = rows_.AtLeast(
      static_cast<size_t>(kernels::cuda::SampleBytes(at_once, logits.cols)));
  for (int64_t i = 0; i < count; i += at_once) {
    work.tasks = at + i;
    work.rows = std::min(at_once, count - i);
    kernels::cuda::Sample(runtime_.stream(), work, logits.cols, rows,
                          results + i);
  }
  runtime_.CopyOut(results, batch->results.data(),
                   {batch->results.size() * sizeof(SampleResult)});
  batches_.push_back(std::move(batch));
}

void CudaSampler::TakeDrawn(int32_t* token_ids, int64_t count) {
  kernels::cuda::TakeDrawn(runtime_.stream(), drawn_.AtLeast<int32_t>(0), count,
                           token_ids);
}

void CudaSampler::Collect(size_t count) {
  for (; count > 0; --count, batches_.pop_front()) {
    const auto& batch = batches_.front();
    const auto* tasks =
        reinterpret_cast<const SampleTask*>(batch->upload.data());
    const size_t asked = batch->answers.size();
    for (size_t i = 0; i < asked; ++i) {
      batch->answers[i] = ResultOf(batch->results[i], tasks[i].num_top);
    }
    for (size_t i = 0; i < batch->owners.size(); ++i) {
      StatusOr<TokenResult>& draw = batch->answers[batch->owners[i]];
      auto named = ResultOf(batch->results[asked + i], /*num_top=*/0);
      if (!draw.ok()) continue;
      if (named.ok()) {
        draw->top_logprobs.push_back(*named->logprob);
      } else {
        draw = named.status();
      }
    }
  }
}

}  // namespace sluice
