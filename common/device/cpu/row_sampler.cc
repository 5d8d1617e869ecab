#include "common/device/cpu/row_sampler.h"

#include <algorithm>

namespace sluice {
namespace {

// Shorter rows are not cut: two threads that meet cost more.
constexpr int64_t kMinToSplit = 8192;

}  // namespace

RowSampler::RowSampler(const kernels::Context& context)
    : context_(context),
      samplers_(static_cast<size_t>(kernels::NumThreads(context)),
                Sampler(context.isa)) {}

void RowSampler::Run(kernels::ConstMatrix logits, int32_t begin,
                     std::span<const RowTask> tasks,
                     std::span<StatusOr<TokenResult>> answers) {
  tasks_.clear();
  for (const RowTask& row : tasks) {
    tasks_.push_back(row.task);
    tasks_.back().logits = {logits.row(row.row - begin),
                            static_cast<size_t>(logits.cols)};
  }
  const std::span<const TokenTask> all = tasks_;
  const size_t whole = all.size() / samplers_.size() * samplers_.size();
  RunWhole(all.first(whole), answers.first(whole));
  RunSplit(all.subspan(whole), answers.subspan(whole));
}

// Needs a multiple of the team's threads, each of which takes whole rows.
void RowSampler::RunWhole(std::span<const TokenTask> tasks,
                          std::span<StatusOr<TokenResult>> answers) {
  if (tasks.empty()) return;
  const size_t each = tasks.size() / samplers_.size();
  kernels::ParallelFor(
      context_, static_cast<int>(samplers_.size()), [&](int thread) {
        for (size_t i = thread * each; i < (thread + 1) * each; ++i) {
          answers[i] = samplers_[thread].Run(tasks[i]);
        }
      });
}

// Needs fewer rows than the team has threads: each row is cut into parts.
void RowSampler::RunSplit(std::span<const TokenTask> tasks,
                          std::span<StatusOr<TokenResult>> answers) {
  if (tasks.empty()) return;
  const auto rows = static_cast<int>(tasks.size());
  const bool cuts = std::ssize(tasks[0].logits) >= kMinToSplit;
  const int parts = cuts ? kernels::NumThreads(context_) / rows : 1;
  if (parts == 1) {
    kernels::ParallelFor(context_, rows, [&](int i) {
      answers[i] = samplers_[i].Run(tasks[i]);
    });
    return;
  }
  for (int i = 0; i < rows; ++i) samplers_[i].Begin(tasks[i]);
  kernels::ParallelFor(context_, rows * parts, [&](int task) {
    samplers_[task / parts].Scan(task % parts, parts);
  });
  if (std::any_of(samplers_.begin(), samplers_.begin() + rows,
                  [](const Sampler& s) { return s.needs_weights(); })) {
    kernels::ParallelFor(context_, rows * parts, [&](int task) {
      samplers_[task / parts].Weigh(task % parts, parts);
    });
  }
  kernels::ParallelFor(context_, rows,
                       [&](int i) { answers[i] = samplers_[i].Finish(); });
}

}  // namespace sluice
