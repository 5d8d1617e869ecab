#include "common/serving/answer_timings.h"

#include "common/base/json.h"

namespace sluice::serving {
namespace {

double Divided(double dividend, double divisor) {
  return divisor > 0 ? dividend / divisor : 0.0;
}

}  // namespace

Duration ChoiceTimings::prompt_time() const {
  return start && first_token ? *first_token - *start : Duration::zero();
}

Duration ChoiceTimings::completion_time() const {
  return first_token && last_token ? *last_token - *first_token
                                   : Duration::zero();
}

Json TimingsJson(const ChoiceTimings& timings) {
  const int64_t computed = timings.prompt_tokens - timings.cached_tokens;
  const auto prompt_n = static_cast<double>(computed);
  const auto predicted_n = static_cast<double>(timings.completion_tokens);
  const double prompt_ms = 1e3 * Seconds(timings.prompt_time());
  const double predicted_ms = 1e3 * Seconds(timings.completion_time());
  return {{"cache_n", timings.cached_tokens},
          {"prompt_n", computed},
          {"prompt_ms", prompt_ms},
          {"prompt_per_token_ms", Divided(prompt_ms, prompt_n)},
          {"prompt_per_second", Divided(1e3 * prompt_n, prompt_ms)},
          {"predicted_n", timings.completion_tokens},
          {"predicted_ms", predicted_ms},
          {"predicted_per_token_ms", Divided(predicted_ms, predicted_n)},
          {"predicted_per_second", Divided(1e3 * predicted_n, predicted_ms)}};
}

AnswerTimings::AnswerTimings(const std::vector<int64_t>& prompt_tokens) {
  for (const int64_t tokens : prompt_tokens) {
    ChoiceTimings choice;
    choice.prompt_tokens = tokens;
    choices_.push_back(choice);
  }
}

void AnswerTimings::OnStart(size_t choice, TimePoint when) {
  MutexLock lock(mutex_);
  std::optional<TimePoint>& start = choices_.at(choice).start;
  if (!start) start = when;  // else it goes on, after a preemption
}

void AnswerTimings::OnTokens(size_t choice, int64_t count,
                             std::optional<int64_t> cached_tokens,
                             TimePoint when) {
  MutexLock lock(mutex_);
  ChoiceTimings& timings = choices_.at(choice);
  if (cached_tokens) timings.cached_tokens = *cached_tokens;
  if (count == 0) return;
  timings.completion_tokens += count;
  if (!timings.first_token) timings.first_token = when;
  timings.last_token = when;
}

ChoiceTimings AnswerTimings::Of(size_t choice) const {
  MutexLock lock(mutex_);
  return choices_.at(choice);
}

}  // namespace sluice::serving
