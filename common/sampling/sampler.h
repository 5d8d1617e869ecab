#ifndef SLUICE_COMMON_SAMPLING_SAMPLER_H_
#define SLUICE_COMMON_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/core/generate_request.h"
#include "common/core/sampling_params.h"
#include "common/core/token_mask.h"
#include "common/sampling/candidates.h"
#include "common/sampling/logit_changes.h"
#include "common/sampling/logits_row.h"
#include "common/sampling/token_counts.h"
#include "kernels/context.h"

namespace sluice {

// The inputs of sampling one token, without its logits.
struct SamplingPoint {
  // The drawn token's index in the sequence, with the prompt, for any cut of
  // the sequence into steps.
  int32_t position = 0;
  // The sequence so far: history.size() == position. Its first
  // num_prompt_tokens are the prompt.
  std::span<const TokenId> history;
  int32_t num_prompt_tokens = 0;
  // TokenCounts::Of(history, num_prompt_tokens) if the caller keeps it; null:
  // the sampler counts.
  const TokenCounts* counts = nullptr;
};

// The work on one row of raw logits: sample a token (Sample), or describe
// `token` (DescribeToken). All pointers outlive the call.
struct TokenTask {
  std::span<const float> logits;
  const SamplingParams* params = nullptr;  // null: describe `token`
  SamplingPoint point;                     // of a draw
  const TokenMask* mask = nullptr;         // of a draw; null: none
  TokenId token = 0;
  int32_t num_top = -1;  // of a described token; see DescribeToken
};

// Whether a draw takes the largest logit: a temperature below 1e-5.
bool IsGreedy(const SamplingParams& params);

// The changes of the logits before a draw (`task.params` is not null): steps 1
// to 4 of Sampler. `counts` are those of the history.
LogitChanges ChangesOf(const TokenTask& task, const TokenCounts* counts);

// Draws tokens from rows of raw logits, one row at a time, in memory that it
// keeps from row to row. A pure function: the same arguments give the same
// result on every CPU and for every split of a row over threads. In this order:
//   1. each logit_bias is added to its token's logit;
//   2. tokens that the mask does not allow are excluded and, with fewer than
//      min_tokens sampled, stop_token_ids unless the mask allows nothing else;
//   3. repetition_penalty r, for every token of prompt or completion: a
//      logit above 0 is divided by r, others are multiplied by it (Keskar et
//      al., "CTRL", 2019; so do Hugging Face and vLLM);
//   4. frequency_penalty f and presence_penalty p, for every token that was
//      generated, c times: logit - f * c - p (OpenAI's API reference);
//   5. temperature 0 (below 1e-5): the largest logit, ties to the lower id;
//      else the token's weight is Exp((logit - max) * (1 / temperature));
//   6. top_k: the k largest; 7. top_p: of these the shortest run, largest
//      first, whose weights (in whole multiples of the unit that candidates.h
//      gives) reach top_p of the sum; 8. min_p: of these, weight >= min_p,
//      the largest weight being 1. Equal logits are ordered by id, lower
//      first;
//   9. the draw, from the tokens left by rising id. Their weights are summed
//      in pieces of 256 (kernels/sampling.h), the pieces in F64: W. The first
//      piece at whose end the running sum is above UniformFor(seed, choice,
//      position) * W has the token; what this is above the pieces before,
//      scaled to the piece's sum in F64, is what the running F64 sum within
//      the piece must be above. Behind the end: the last of any weight.
// 1 to 4 are F32, one rounding per operation, results kept finite; they come
// in the order of vLLM's sampler, 6 to 8 as in vLLM and Hugging Face. The sum
// of 7 is that of 9.
// Logprobs are of the raw distribution: logit - (max + Log(W)) with W as in 9
// of all raw logits at temperature 1. Those of logprob_token_ids come in their
// order, in the place of the likeliest ones.
//
// Begin, Scan for all parts, Weigh for all parts if needs_weights, Finish.
// Parts of one phase may run on several threads at once; a phase begins when
// the one before has ended. Run is all of it on one thread.
class Sampler {
 public:
  explicit Sampler(kernels::Isa isa);

  void Begin(const TokenTask& task);
  void Scan(int part, int parts);
  bool needs_weights() const { return sums_all_ || sums_raw_; }
  void Weigh(int part, int parts);
  // Returns the result. INTERNAL for logits with a NaN or +inf, or without a
  // token left to draw.
  StatusOr<TokenResult> Finish();

  StatusOr<TokenResult> Run(const TokenTask& task);

 private:
  // Returns the logits of the draw: those after steps 1 to 4.
  const LogitsRow& drawn() const { return adjusts_ ? adjusted_ : raw_; }
  LogitsRow& drawn() { return adjusts_ ? adjusted_ : raw_; }
  int32_t num_top() const;
  LogitChanges Changes() const;
  StatusOr<TokenId> Draw();
  bool KeepsTopK() const;
  void FilterShare();
  float BoundAt(double depth) const;
  float CloseBound(float rough, double left_out);
  void FilterHeavy();
  void SumCandidates();
  int64_t DrawOne(std::span<const float> logits, std::span<const float> sums);
  TokenResult Describe(TokenId token);

  const kernels::Isa isa_;
  TokenTask task_;
  std::optional<TokenCounts> counted_;  // for a caller without counts
  bool adjusts_ = false;
  bool sums_all_ = false;  // the draw needs the sum over all tokens
  bool sums_raw_ =
      false;  // logprobs need the sum over other tokens or at another scale
  float scale_ = 1;          // 1 / temperature
  kernels::Softening soft_;  // of the draw
  LogitsRow raw_;
  LogitsRow adjusted_;            // of changed_
  std::vector<float> changed_;    // the logits after steps 1 to 4
  std::vector<float> sums_;       // of pieces, for the draw
  std::vector<float> left_sums_;  // of pieces of the candidates
  std::vector<float> raw_sums_;   // for logprobs
  Candidates candidates_;
  std::vector<float> weights_;  // of one piece
};

// Returns a Sampler's result for one row, with memory of its own.
StatusOr<TokenResult> Sample(std::span<const float> logits,
                             const SamplingParams& params,
                             const SamplingPoint& point);

// Returns `token` with its logprob and the `num_top` likeliest tokens of the
// raw distribution, most likely first, ties to the lower id. num_top is in [0,
// kMaxTopLogprobs]; below 0: the token alone. INTERNAL for logits with a NaN or
// +inf.
StatusOr<TokenResult> DescribeToken(std::span<const float> logits,
                                    TokenId token, int num_top);

}  // namespace sluice

#endif  // SLUICE_COMMON_SAMPLING_SAMPLER_H_
