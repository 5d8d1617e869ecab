#include "common/engine/step_pace.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice {
namespace {

constexpr int32_t kFirstPrompt = 32;  // before anything was measured
constexpr int32_t kMaxPrompt = 8192;  // the batch builder has its own limits
constexpr double kShortestTarget = 0.002;
// After this many plans with prompts a plan without is wanted.
constexpr int32_t kMixedPlans = 32;
constexpr int32_t kFirstMixedPlans = 4;  // before the first plan without
// The part of the slowdown by prompts that concurrent prefill may cost decodes.
constexpr double kConcurrentShare = 0.5;
// After this many plans without concurrent prefill it is tried again.
constexpr int32_t kAlonePlans = 256;
// A stopped process or a page fault is no new pace: one sample moves an
// estimate at most as if it were this many times larger.
constexpr double kOutlier = 4;

// Returns `estimate` (below 0: none yet) after one more sample.
double Learn(double estimate, double sample, double weight) {
  if (estimate < 0) return sample;
  if (estimate > 0) sample = std::min(sample, kOutlier * estimate);
  return estimate + weight * (sample - estimate);
}

}  // namespace

void StepPace::OnResult(const Step& step) {
  if (step.decodes + step.prompt_tokens == 0) return;
  typical_ = Learn(typical_, Seconds(step.latency), 0.1);
  if (step.decodes > 0) LearnLatency(step);
  if (step.decodes == 0) LearnPrompts(step.prompt_tokens, Seconds(step.busy));
  LearnCosts(step.decodes, step.prompt_tokens, Seconds(step.busy));
}

void StepPace::LearnLatency(const Step& step) {
  const double latency = Seconds(step.latency);
  const int32_t prompt = step.prompt_tokens;
  if (prompt == 0 && !step.concurrent_prefill) {
    LearnDecodes(step.decodes,
                 decode_only_ < 0 ? latency
                                  : std::min(latency, kOutlier * decode_only_));
    decode_only_ = Learn(decode_only_, latency, 0.3);
    mixed_since_decode_only_ = 0;
    return;
  }
  ++mixed_since_decode_only_;
  if (decode_only_ < 0) return;
  if (!step.concurrent_prefill) {
    ++alone_since_concurrent_;
    slope_ = Learn(slope_, std::max(latency - decode_only_, 0.0) / prompt, 0.2);
  } else {
    alone_since_concurrent_ = 0;
    const double expected = decode_only_ + std::max(slope_, 0.0) * prompt;
    concurrent_ = Learn(concurrent_, std::max(latency - expected, 0.0), 0.2);
  }
}

// Fits a line through the latest plans; plans of one size leave it as it is.
void StepPace::LearnDecodes(double decodes, double latency) {
  constexpr double kKept = 0.99;
  constexpr double kMinPlans = 8, kMinVariance = 1;
  for (double* sum : {&plans_, &sum_n_, &sum_s_, &sum_nn_, &sum_ns_}) {
    *sum *= kKept;
  }
  plans_ += 1;
  sum_n_ += decodes;
  sum_s_ += latency;
  sum_nn_ += decodes * decodes;
  sum_ns_ += decodes * latency;
  const double mean = sum_n_ / plans_;
  const double variance = sum_nn_ / plans_ - mean * mean;
  if (plans_ < kMinPlans || variance < kMinVariance) return;
  each_ = std::max((sum_ns_ / plans_ - mean * sum_s_ / plans_) / variance, 0.0);
  base_ = std::max(sum_s_ / plans_ - each_ * mean, 0.0);
}

int32_t StepPace::decode_limit(int32_t others) const {
  if (each_ <= 0) return std::numeric_limits<int32_t>::max();
  const double seconds = kMaxDecodeSlowdown * (base_ + each_ * others);
  const double limit = (seconds - base_) / each_;
  return static_cast<int32_t>(std::clamp(limit, double(others), 1e6));
}

// Splits the time of a plan with both kinds in the ratio of the estimates.
void StepPace::LearnCosts(int32_t decodes, int32_t prompt_tokens, double busy) {
  const auto learn = [](double& cost, double sample) {
    cost = Learn(cost > 0 ? cost : -1, sample, 0.1);
  };
  if (busy <= 0 || decodes + prompt_tokens == 0) return;
  if (prompt_tokens == 0) {
    learn(decode_s_, busy / decodes);
  } else if (decodes == 0) {
    learn(prompt_s_, busy / prompt_tokens);
  } else if (decode_s_ <= 0 || prompt_s_ <= 0) {
    const double each = busy / (decodes + prompt_tokens);
    if (decode_s_ <= 0) decode_s_ = each;
    if (prompt_s_ <= 0) prompt_s_ = each;
  } else {
    const double expected = decodes * decode_s_ + prompt_tokens * prompt_s_;
    const double ratio = std::clamp(busy / expected, 1 / kOutlier, kOutlier);
    learn(decode_s_, decode_s_ * ratio);
    learn(prompt_s_, prompt_s_ * ratio);
  }
}

// Small plans are mostly what a plan costs whatever its size.
void StepPace::LearnPrompts(int32_t tokens, double busy) {
  if (busy <= 0 || tokens < large_prompt_ / 2) return;
  if (tokens > 2 * large_prompt_) large_prompt_s_ = -1;
  large_prompt_ = std::max(large_prompt_, tokens);
  large_prompt_s_ = Learn(large_prompt_s_, busy / tokens, 0.3);
}

Duration StepPace::prompt_plan(int32_t tokens) const {
  const bool known = large_prompt_s_ > 0 && large_prompt_ >= tokens / 2;
  const double each = known ? large_prompt_s_ : prompt_s_;
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(each * tokens));
}

void StepPace::OnEnd(int32_t completion_tokens) {
  completion_ = Learn(completion_ > 0 ? completion_ : -1,
                      std::max(completion_tokens, 1), 0.05);
}

Duration StepPace::expected(int32_t decodes, int32_t prompt_tokens) const {
  if (typical_ < 0) return Duration::zero();
  const double seconds =
      std::max(typical_, decodes * decode_s_ + prompt_tokens * prompt_s_);
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(seconds));
}

double StepPace::target(double short_prompts) const {
  const double slowdown = 1 + (kMaxSlowdown - 1) * short_prompts;
  return target_itl_ > Duration::zero()
             ? Seconds(target_itl_)
             : std::max(slowdown * decode_only_, kShortestTarget);
}

int32_t StepPace::prompt_budget(int32_t short_prompts, int32_t decodes) const {
  if (decode_only_ < 0 || slope_ < 0) return kFirstPrompt;
  const double share =
      short_prompts / std::max<double>(short_prompts + decodes, 1);
  const double weight =
      std::clamp(std::min<double>(short_prompts, kMaxShortPrompts * share), 1.0,
                 kMaxWeight);
  const double beside =
      allows_concurrent_prefill() ? std::max(concurrent_, 0.0) : 0.0;
  const double spare = std::max(target(weight) - decode_only_ - beside, 0.0);
  if (spare >= slope_ * kMaxPrompt) return kMaxPrompt;
  return std::max(static_cast<int32_t>(spare / slope_), kMinPrompt);
}

int32_t StepPace::share_budget(double share) const {
  if (decode_only_ < 0 || slope_ <= 0 || target_itl_ > Duration::zero()) {
    return prompt_budget(1, 0);
  }
  share = std::min(share, kMaxShare);
  const double tokens = share / (1 - share) * decode_only_ / slope_;
  return static_cast<int32_t>(
      std::clamp(tokens, double(kMinPrompt), double(kMaxPrompt)));
}

bool StepPace::allows_concurrent_prefill() const {
  if (decode_only_ < 0 || slope_ < 0) return false;
  if (concurrent_ < 0 || alone_since_concurrent_ >= kAlonePlans) return true;
  return concurrent_ <= kConcurrentShare * (target(1) - decode_only_);
}

bool StepPace::wants_decode_only_plan() const {
  return mixed_since_decode_only_ >=
         (decode_only_ < 0 ? kFirstMixedPlans : kMixedPlans);
}

}  // namespace sluice
