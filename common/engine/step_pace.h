#ifndef SLUICE_COMMON_ENGINE_STEP_PACE_H_
#define SLUICE_COMMON_ENGINE_STEP_PACE_H_

#include <cstdint>

#include "common/base/clock.h"

namespace sluice {

// How fast the pipeline is, learned from plans and the time till their
// results: how many prompt tokens a plan may carry beside decodes, and what
// tokens cost. A value without a clock; the scheduler's.
class StepPace {
 public:
  // `target_itl`: what a plan with decodes shall take from submission to
  // result; zero: kMaxSlowdown times what it takes without prompts.
  explicit StepPace(Duration target_itl) : target_itl_(target_itl) {}

  // Median and tail of others' inter-token latency stay below 1.5 times with
  // this, and a prompt gets nearly a quarter of the time.
  static constexpr double kMaxSlowdown = 1.3;
  // Prompts make so much progress per plan whatever the target.
  static constexpr int32_t kMinPrompt = 4;

  // A plan that came back.
  struct Step {
    int32_t decodes = 0;
    int32_t prompt_tokens = 0;
    // A plan of prompts alone was under way as well.
    bool concurrent_prefill = false;
    Duration latency{};  // from submission to result
    Duration busy{};     // of it, while the pipeline gave no other result
  };
  void OnResult(const Step& step);
  // A sequence ended by itself after so many tokens.
  void OnEnd(int32_t completion_tokens);

  // Prompt tokens that a plan may carry while sequences decode, with
  // `short_prompts` of them to be computed. Without a target several short
  // prompts may slow down decodes more than one prompt may, whatever its size.
  int32_t prompt_budget(int32_t short_prompts) const;
  static constexpr int32_t kMaxShortPrompts = 8;  // that makes a difference
  // The same for prompts that have a right to `share` of the time (below 1),
  // whatever that costs decodes, unless they have a target.
  int32_t share_budget(double share) const;
  static constexpr double kMaxShare = 0.75;
  // The next plans carry no prompt while sequences decode, so that the time
  // without prompts is known.
  bool wants_decode_only_plan() const;
  // Decodes that a plan may carry if `others` of them are of clients that have
  // fewer: as many as make it take kMaxDecodeSlowdown times as long as with
  // those alone. No limit while that is not known.
  int32_t decode_limit(int32_t others) const;
  static constexpr double kMaxDecodeSlowdown = 1.5;
  // Whether plans of prompts alone may go out beside those with decodes. They
  // keep more stages busy; where stages share a machine they cost decodes
  // more than prompts that ride along.
  bool allows_concurrent_prefill() const;

  // Until then the rates below say nothing.
  bool known() const {
    return prompt_s_ > 0 && decode_s_ > 0 && completion_ > 0;
  }
  // Seconds of the pipeline per token, in steps like the latest ones.
  double prompt_seconds() const { return prompt_s_; }
  double decode_seconds() const { return decode_s_; }
  double completion_tokens() const { return completion_; }  // mean

  // What a plan of that size should take from its turn to its result: at the
  // rates above, and no less than plans take typically. A pause of the
  // pipeline hardly moves it. Zero before a plan came back.
  Duration expected(int32_t decodes, int32_t prompt_tokens) const;

 private:
  void LearnLatency(const Step& step);
  void LearnDecodes(double decodes, double latency);
  double target(int32_t short_prompts) const;  // seconds
  void LearnCosts(int32_t decodes, int32_t prompt_tokens, double busy);

  const Duration target_itl_;
  // A plan with decodes: seconds without prompts, seconds per prompt token,
  // and seconds more beside a concurrent prefill.
  double decode_only_ = -1, slope_ = -1, concurrent_ = -1;
  // Plans without prompts, weighted: number, decodes, seconds, and the sums of
  // their squares and products; seconds = base_ + each_ * decodes.
  double plans_ = 0, sum_n_ = 0, sum_s_ = 0, sum_nn_ = 0, sum_ns_ = 0;
  double base_ = 0, each_ = 0;  // each_ 0: not known
  int32_t mixed_since_decode_only_ = 0;
  int32_t alone_since_concurrent_ = 0;
  double prompt_s_ = 0, decode_s_ = 0, completion_ = 0;
  double typical_ = -1;  // seconds from submission to result
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_STEP_PACE_H_
