#ifndef SLUICE_COMMON_SERVING_ANSWER_TIMINGS_H_
#define SLUICE_COMMON_SERVING_ANSWER_TIMINGS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json_fwd.h"
#include "common/base/mutex.h"

namespace sluice::serving {

// The counts and times of one choice so far.
struct ChoiceTimings {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // of the prompt
  int64_t completion_tokens = 0;  // with the end token
  // A plan began to compute the choice; nothing: it waits.
  std::optional<TimePoint> start;
  std::optional<TimePoint> first_token;
  std::optional<TimePoint> last_token;

  // From the start to the first token, and from there to the last; zero before.
  Duration prompt_time() const;
  Duration completion_time() const;
};

// Returns llama.cpp's `timings`, which clients of several dialects read:
// {"cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms",
// "prompt_per_second", "predicted_n", "predicted_ms", "predicted_per_token_ms",
// "predicted_per_second"}. `prompt_n` counts the tokens that were computed.
// What would be divided by zero is 0.
Json TimingsJson(const ChoiceTimings& timings);

// Measures the choices of one request: the runner tells, the answer's format
// reads. Any thread.
class AnswerTimings {
 public:
  // `prompt_tokens`: of each choice.
  explicit AnswerTimings(const std::vector<int64_t>& prompt_tokens);

  void OnStart(size_t choice, TimePoint when);
  // `count` tokens came, maybe none; `cached_tokens`: of the prompt, if known.
  void OnTokens(size_t choice, int64_t count,
                std::optional<int64_t> cached_tokens, TimePoint when);
  ChoiceTimings Of(size_t choice) const;

 private:
  mutable Mutex mutex_;
  std::vector<ChoiceTimings> choices_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_ANSWER_TIMINGS_H_
