#ifndef SLUICE_COMMON_ENGINE_STEP_PACE_H_
#define SLUICE_COMMON_ENGINE_STEP_PACE_H_

#include <cstdint>

#include "common/base/clock.h"

namespace sluice {

// How fast the pipeline is, learned from plans and the time to their results:
// how many prompt tokens a plan may carry beside decodes, and what tokens cost.
// A value without a clock; the scheduler's.
class StepPace {
 public:
  // `target_itl`: the wanted time of a plan with decodes, from submission to
  // result; zero: kMaxSlowdown times the time without prompts.
  explicit StepPace(Duration target_itl) : target_itl_(target_itl) {}

  // With this, median and tail of others' inter-token latency stay below 1.5
  // times, and a prompt gets nearly a quarter of the time.
  static constexpr double kMaxSlowdown = 1.3;
  // Prompt tokens per plan whatever the target, so that prompts make progress.
  static constexpr int32_t kMinPrompt = 4;

  // A plan with its result.
  struct Step {
    int32_t decodes = 0;
    int32_t prompt_tokens = 0;
    // Whether a plan of prompts alone was in flight as well.
    bool concurrent_prefill = false;
    Duration latency{};  // from submission to result
    Duration busy{};     // of it, since the result before
  };
  void OnResult(const Step& step);
  // Notes a sequence that ended by itself after `completion_tokens`.
  void OnEnd(int32_t completion_tokens);

  // Returns the prompt tokens that a plan may carry while `decodes` sequences
  // decode, with `short_prompts` to be computed. Without a target several short
  // prompts may slow decodes more than one prompt of any size: the more of them
  // there are, and the fewer decodes they slow.
  int32_t prompt_budget(int32_t short_prompts, int32_t decodes) const;
  static constexpr int32_t kMaxShortPrompts = 8;  // weigh as much as all,
  static constexpr double kMaxWeight = 4.5;  // and as many one by one at most
  // The same for prompts with a right to `share` of the time (below 1),
  // whatever that costs decodes, unless there is a target.
  int32_t share_budget(double share) const;
  static constexpr double kMaxShare = 0.75;
  // Whether the next plan with decodes is to carry no prompt, so that the time
  // without prompts is known.
  bool wants_decode_only_plan() const;
  // Returns the decodes that a plan may carry, `others` of which are of smaller
  // clients: with them it takes kMaxDecodeSlowdown times as long as with
  // `others` alone. No limit before the cost of a decode is known.
  int32_t decode_limit(int32_t others) const;
  static constexpr double kMaxDecodeSlowdown = 1.5;
  // Whether plans of prompts alone may be in flight beside plans with decodes.
  // They keep more stages busy. Where stages share a machine they cost decodes
  // more than prompts in the same plan do.
  bool allows_concurrent_prefill() const;

  // Whether the rates below mean anything yet.
  bool known() const {
    return prompt_s_ > 0 && decode_s_ > 0 && completion_ > 0;
  }
  // Seconds of the pipeline per token, in steps like the latest ones.
  double prompt_seconds() const { return prompt_s_; }
  double decode_seconds() const { return decode_s_; }
  double completion_tokens() const { return completion_; }  // mean

  // Returns the time that a full plan of `tokens` of prompts takes of the
  // pipeline, by the plans of prompts alone that had half as many or more; zero
  // before the first result, and by all plans before there was such a one.
  Duration prompt_plan(int32_t tokens) const;

  // Returns the time that a plan of that size should take, from its turn to its
  // result: by the rates above, and at least the typical time of a plan. A
  // pause of the pipeline hardly moves it. Zero before the first result.
  Duration expected(int32_t decodes, int32_t prompt_tokens) const;

 private:
  void LearnLatency(const Step& step);
  void LearnDecodes(double decodes, double latency);
  // Seconds; `short_prompts`: what they weigh, from 1 to kMaxShortPrompts.
  double target(double short_prompts) const;
  void LearnCosts(int32_t decodes, int32_t prompt_tokens, double busy);
  void LearnPrompts(int32_t tokens, double busy);

  const Duration target_itl_;
  // A plan with decodes: seconds without prompts, seconds per prompt token,
  // and seconds more beside a concurrent prefill.
  double decode_only_ = -1, slope_ = -1, concurrent_ = -1;
  // Plans without prompts, weighted: number, decodes, seconds, and the sums of
  // their squares and products; seconds = base_ + each_ * decodes.
  double plans_ = 0, sum_n_ = 0, sum_s_ = 0, sum_nn_ = 0, sum_ns_ = 0;
  double base_ = 0, each_ = 0;  // each_ 0: unknown
  int32_t mixed_since_decode_only_ = 0;
  int32_t alone_since_concurrent_ = 0;
  double prompt_s_ = 0, decode_s_ = 0, completion_ = 0;
  double large_prompt_s_ = -1;  // seconds a token, of the largest such plans
  int32_t large_prompt_ = 0;    // and their tokens
  double typical_ = -1;         // seconds from submission to result
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_STEP_PACE_H_
