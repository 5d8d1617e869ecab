#include "common/stage/step_sampler.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// Rows shorter than this are not cut: two threads that meet cost more.
constexpr int64_t kLeastToSplit = 8192;

}  // namespace

StepSampler::StepSampler(const std::vector<Stage::ChunkInput>& chunks,
                         std::vector<Sampler>& samplers)
    : chunks_(chunks), samplers_(samplers) {
  int32_t first_row = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& chunk = *chunks[i].chunk;
    const auto count = static_cast<int32_t>(chunk.tokens.size());
    if (chunk.logits != LogitsWanted::kNone) {
      results_.emplace_back().sequence = chunk.sequence;
      const int32_t begin = chunk.logits == LogitsWanted::kAll ? 0 : count - 1;
      for (int32_t row = begin; row < count; ++row) {
        rows_.push_back(first_row + row);
        infos_.push_back(
            {i, results_.size() - 1, chunk.start + row, row == count - 1});
      }
    }
    first_row += count;
  }
}

void StepSampler::AddJobs(const Row& row, int64_t index,
                          std::span<const float> logits) {
  const Chunk& chunk = *chunks_[row.chunk].chunk;
  const Stage::SequenceState& state = *chunks_[row.chunk].state;
  const int32_t next = row.position + 1;
  if (chunk.logits == LogitsWanted::kAll && next < state.num_prompt_tokens) {
    Job& job = jobs_.emplace_back();
    job.row = index;
    job.ask = {.logits = logits,
               .token = state.tokens[next],
               .num_top = state.sampling.prompt_logprobs};
  }
  if (chunk.samples && row.is_last) {
    Job& job = jobs_.emplace_back();
    job.row = index;
    job.ask = {.logits = logits,
               .params = &state.sampling,
               .point = {next, std::span(state.tokens.data(), next),
                         state.num_prompt_tokens,
                         state.counts ? &*state.counts : nullptr}};
  }
}

// A multiple of the team's threads, each of which takes whole rows.
void StepSampler::RunSide(const kernels::Context& context,
                          std::span<Job> jobs) {
  if (jobs.empty()) return;
  const int threads = kernels::NumThreads(context);
  const size_t each = jobs.size() / static_cast<size_t>(threads);
  kernels::ParallelFor(context, threads, [&](int thread) {
    for (Job& job : jobs.subspan(thread * each, each)) {
      job.told = samplers_[thread].Run(job.ask);
    }
  });
}

// Fewer than the team has threads: each row is cut into parts.
void StepSampler::RunSplit(const kernels::Context& context,
                           std::span<Job> jobs) {
  if (jobs.empty()) return;
  const auto rows = static_cast<int>(jobs.size());
  const bool cuts = std::ssize(jobs[0].ask.logits) >= kLeastToSplit;
  const int parts = cuts ? kernels::NumThreads(context) / rows : 1;
  if (parts == 1) {
    kernels::ParallelFor(context, rows, [&](int i) {
      jobs[i].told = samplers_[i].Run(jobs[i].ask);
    });
    return;
  }
  for (int i = 0; i < rows; ++i) samplers_[i].Begin(jobs[i].ask);
  kernels::ParallelFor(context, rows * parts, [&](int task) {
    samplers_[task / parts].Scan(task % parts, parts);
  });
  if (std::any_of(samplers_.begin(), samplers_.begin() + rows,
                  [](const Sampler& s) { return s.needs_weights(); })) {
    kernels::ParallelFor(context, rows * parts, [&](int task) {
      samplers_[task / parts].Weigh(task % parts, parts);
    });
  }
  kernels::ParallelFor(context, rows,
                       [&](int i) { jobs[i].told = samplers_[i].Finish(); });
}

void StepSampler::Take(const Row& row, Job& job) {
  SequenceResult& result = results_[row.result];
  if (!job.told.ok()) {
    if (result.status.ok()) result.status = job.told.status();
    return;
  }
  auto& told = job.ask.params == nullptr ? result.prompt : result.sampled;
  told.push_back(*std::move(job.told));
}

void StepSampler::Consume(const kernels::Context& context, int32_t begin,
                          kernels::ConstMatrix logits) {
  const auto threads = static_cast<size_t>(kernels::NumThreads(context));
  while (samplers_.size() < threads) samplers_.emplace_back(context.isa);
  jobs_.clear();
  for (int64_t i = 0; i < logits.rows; ++i) {
    AddJobs(infos_[begin + i], i, {logits.row(i), size_t(logits.cols)});
  }
  const size_t whole = jobs_.size() / threads * threads;
  RunSide(context, std::span(jobs_).first(whole));
  RunSplit(context, std::span(jobs_).subspan(whole));
  for (Job& job : jobs_) Take(infos_[begin + job.row], job);
  for (int64_t i = 0; i < logits.rows; ++i) {
    const Row& info = infos_[begin + i];
    SequenceResult& result = results_[info.result];
    if (!result.status.ok()) continue;
    if (chunks_[info.chunk].state->sampling.return_logits) {
      result.logits.insert(result.logits.end(), logits.row(i),
                           logits.row(i) + logits.cols);
    }
  }
}

}  // namespace sluice
