#include "common/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/sampling/philox.h"
#include "kernels/exp_log.h"

namespace sluice {
namespace {

// Smaller temperatures mean greedy; 1 / temperature stays finite.
constexpr float kGreedyTemperature = 1e-5f;

double TotalOf(std::span<const float> sums) {
  double total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

Status NotFinite(std::span<const float> logits) {
  const auto bad = std::find_if_not(logits.begin(), logits.end(), [](float v) {
    return v < std::numeric_limits<float>::infinity();
  });
  return Internal("logit of token ", bad - logits.begin(), " is ", *bad);
}

// Whether `mask` allows no token but those of `ids`.
bool AllowsOnly(const TokenMask& mask, const std::vector<TokenId>& ids) {
  if (mask.excludes) return false;
  size_t num_allowed = 0;
  for (const TokenRun& run : mask.runs) {
    num_allowed += static_cast<size_t>(run.end - run.begin);
    if (num_allowed > ids.size()) return false;
    for (TokenId id = run.begin; id < run.end; ++id) {
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) return false;
    }
  }
  return true;
}

}  // namespace

bool IsGreedy(const SamplingParams& params) {
  return params.temperature < kGreedyTemperature;
}

LogitChanges ChangesOf(const TokenTask& task, const TokenCounts* counts) {
  const SamplingParams& params = *task.params;
  const int64_t sampled =
      std::ssize(task.point.history) - task.point.num_prompt_tokens;
  // Where a mask leaves nothing else, a stop token may come early.
  const bool masks =
      sampled < params.min_tokens && !params.stop_token_ids.empty() &&
      !(task.mask != nullptr && AllowsOnly(*task.mask, params.stop_token_ids));
  return {params, masks, task.mask,
          NeedsTokenCounts(params) ? counts : nullptr};
}

Sampler::Sampler(kernels::Isa isa)
    : isa_(isa),
      raw_(isa),
      adjusted_(isa),
      candidates_(isa),
      weights_(kernels::kLogitsPiece) {}

int32_t Sampler::num_top() const {
  return task_.params != nullptr ? task_.params->logprobs : task_.num_top;
}

bool Sampler::KeepsTopK() const {
  return task_.params->top_k > 0 && task_.params->top_k < raw_.size();
}

LogitChanges Sampler::Changes() const {
  return ChangesOf(task_,
                   counted_.has_value() ? &*counted_ : task_.point.counts);
}

void Sampler::Begin(const TokenTask& task) {
  task_ = task;
  raw_.Reset(task.logits);
  adjusts_ = sums_all_ = false;
  scale_ = 1;
  counted_.reset();
  if (task.params != nullptr) {
    const SamplingParams& params = *task.params;
    if (NeedsTokenCounts(params) && task.point.counts == nullptr) {
      counted_ =
          TokenCounts::Of(task.point.history, task.point.num_prompt_tokens);
    }
    adjusts_ = Changes().any();
    if (!IsGreedy(params)) scale_ = 1.0f / params.temperature;
    sums_all_ = !IsGreedy(params) && !KeepsTopK() &&
                (params.top_p < 1.0f || params.min_p <= 0.0f);
  }
  if (adjusts_) {
    changed_.resize(task.logits.size());
    adjusted_.Reset(changed_);
  }
  // At temperature 1 an unchanged row has the same sum for both.
  sums_raw_ = num_top() >= 0 && !(sums_all_ && !adjusts_ && scale_ == 1);
  const auto pieces = static_cast<size_t>(kernels::NumPieces(raw_.size()));
  if (sums_all_) sums_.resize(pieces);
  if (sums_raw_) raw_sums_.resize(pieces);
}

void Sampler::Scan(int part, int parts) {
  const PieceRange range = PieceRange::Of(raw_.size(), part, parts);
  raw_.Scan(range);
  if (!adjusts_) return;
  const int64_t begin = range.first_logit();
  const int64_t end = std::min(range.end * kernels::kLogitsPiece, raw_.size());
  std::copy(task_.logits.begin() + begin, task_.logits.begin() + end,
            changed_.begin() + begin);
  Changes().Apply(static_cast<TokenId>(begin),
                  std::span(changed_).subspan(begin, end - begin));
  adjusted_.Scan(range);
}

void Sampler::Weigh(int part, int parts) {
  if (!raw_.is_finite()) return;
  const PieceRange range = PieceRange::Of(raw_.size(), part, parts);
  if (sums_all_ && drawn().max() != kMaskedLogit) {
    drawn().Weigh(range, scale_, sums_);
  }
  if (sums_raw_ && raw_.max() != kMaskedLogit) {
    raw_.Weigh(range, 1, raw_sums_);
  }
}

StatusOr<TokenResult> Sampler::Finish() {
  if (!raw_.is_finite()) return NotFinite(task_.logits);
  if (task_.params == nullptr) return Describe(task_.token);
  SLUICE_ASSIGN_OR_RETURN(const TokenId token, Draw());
  return Describe(token);
}

StatusOr<TokenResult> Sampler::Run(const TokenTask& task) {
  Begin(task);
  Scan(0, 1);
  Weigh(0, 1);
  return Finish();
}

StatusOr<TokenId> Sampler::Draw() {
  const float max = drawn().max();
  if (max == kMaskedLogit) return Internal("every token is masked");
  if (IsGreedy(*task_.params)) return static_cast<TokenId>(drawn().ArgMax());
  soft_ = {max, scale_};
  const SamplingParams& params = *task_.params;
  if (KeepsTopK()) {
    candidates_.Collect(drawn(), drawn().LeastOfLargest(params.top_k));
    candidates_.KeepLikeliest(params.top_k);
  } else if (params.top_p >= 1.0f && params.min_p <= 0.0f) {
    return static_cast<TokenId>(DrawOne(drawn().logits(), sums_));
  }
  if (params.top_p < 1.0f) FilterShare();
  if (params.min_p > 0.0f) FilterHeavy();
  SumCandidates();
  return candidates_.ids()[DrawOne(candidates_.logits(), left_sums_)];
}

void Sampler::SumCandidates() {
  const int64_t pieces = kernels::NumPieces(candidates_.size());
  left_sums_.resize(static_cast<size_t>(pieces));
  kernels::WeightSums(isa_, candidates_.logits(), soft_, left_sums_);
}

void Sampler::FilterShare() {
  const double top_p = task_.params->top_p;
  if (KeepsTopK()) {
    SumCandidates();
    candidates_.KeepShare({top_p * TotalOf(left_sums_), raw_.size()}, soft_);
    return;
  }
  // A guess only saves work: the first bound with the run gives the exact run.
  const double total = TotalOf(sums_);
  const double left_out = (1 - top_p) * total;
  // So low that all tokens below weigh less than left_out together.
  const float rough =
      BoundAt(std::log(static_cast<double>(raw_.size()) / left_out) + 1e-3);
  for (const float least : {CloseBound(rough, left_out), rough, kMaskedLogit}) {
    candidates_.Collect(drawn(), least);
    if (candidates_.KeepShare({top_p * total, raw_.size()}, soft_)) return;
  }
}

// Returns a bound slightly below the logits that weigh Exp(-depth).
float Sampler::BoundAt(double depth) const {
  const double bound = soft_.max - depth / soft_.scale;
  if (bound < -std::numeric_limits<float>::max()) return kMaskedLogit;
  return std::nextafter(static_cast<float>(bound), kMaskedLogit);
}

// Guesses a logit, at least `rough`, below which tokens weigh half of
// `left_out`, by some of the pieces.
float Sampler::CloseBound(float rough, double left_out) {
  constexpr int64_t kStride = 16;
  if (std::ssize(sums_) < 4 * kStride) return rough;
  double some = 0;
  float largest = kMaskedLogit;
  for (int64_t p = 0; p < std::ssize(sums_); p += kStride) {
    some += sums_[p];
    largest = std::max(largest, drawn().maxima()[p]);
  }
  const double wanted = some - left_out / 2 / kStride;
  if (wanted <= 0) return std::max(rough, largest);
  candidates_.Collect(drawn(), rough, kStride);
  return std::max(rough, candidates_.LastOfShare({wanted, raw_.size()}, soft_));
}

void Sampler::FilterHeavy() {
  const float min_p = task_.params->min_p;
  if (!KeepsTopK() && task_.params->top_p >= 1.0f) {
    // Slightly more than can weigh min_p: Exp and its argument are off by less
    // than 1e-4, except for subnormal weights.
    const double depth = 1e-3 - std::log(static_cast<double>(min_p));
    candidates_.Collect(drawn(),
                        min_p < 1e-30f ? kMaskedLogit : BoundAt(depth));
  }
  candidates_.KeepHeavy(min_p, soft_);
}

int64_t Sampler::DrawOne(std::span<const float> logits,
                         std::span<const float> sums) {
  const SamplingParams& params = *task_.params;
  const double uniform = UniformFor(
      params.seed, params.choice, static_cast<uint32_t>(task_.point.position));
  const double target = uniform * TotalOf(sums);
  int64_t piece = 0;
  double before = 0;
  double running = 0;
  for (int64_t p = 0; p < std::ssize(sums) && running <= target; ++p) {
    if (sums[p] == 0) continue;
    piece = p;
    before = running;
    running += sums[p];
  }
  const int64_t begin = piece * kernels::kLogitsPiece;
  const int64_t size =
      std::min(kernels::kLogitsPiece, std::ssize(logits) - begin);
  const std::span<float> weights(weights_.data(), static_cast<size_t>(size));
  kernels::Weights(isa_, logits.subspan(begin, size), soft_, weights);
  const double wanted = (target - before) / sums[piece] * TotalOf(weights);
  int64_t drawn_at = 0;
  running = 0;
  for (int64_t i = 0; i < size && running <= wanted; ++i) {
    if (weights[i] == 0) continue;
    drawn_at = i;
    running += weights[i];
  }
  return begin + drawn_at;
}

TokenResult Sampler::Describe(TokenId token) {
  TokenResult result;
  result.token = token;
  const int32_t top = num_top();
  if (top < 0) return result;
  const float max = raw_.max();
  const double sum = TotalOf(sums_raw_ ? raw_sums_ : sums_);
  const float total =
      max == kMaskedLogit ? max : static_cast<float>(max + kernels::Log(sum));
  result.logprob = TokenLogprob{token, task_.logits[token] - total,
                                static_cast<int32_t>(raw_.RankOf(token))};
  const bool chosen =
      task_.params != nullptr && !task_.params->logprob_token_ids.empty();
  if (chosen) {
    for (const TokenId id : task_.params->logprob_token_ids) {
      result.top_logprobs.push_back({id, task_.logits[id] - total,
                                     static_cast<int32_t>(raw_.RankOf(id))});
    }
    return result;
  }
  if (top == 0) return result;
  candidates_.Collect(raw_, raw_.LeastOfLargest(top));
  const auto order =
      candidates_.Ordered(std::min<int64_t>(top, candidates_.size()));
  for (const int32_t place : order) {
    const auto rank = static_cast<int32_t>(result.top_logprobs.size());
    result.top_logprobs.push_back(
        {candidates_.ids()[place], candidates_.logits()[place] - total, rank});
  }
  return result;
}

StatusOr<TokenResult> Sample(std::span<const float> logits,
                             const SamplingParams& params,
                             const SamplingPoint& point) {
  return Sampler(kernels::DetectIsa())
      .Run({.logits = logits, .params = &params, .point = point});
}

StatusOr<TokenResult> DescribeToken(std::span<const float> logits,
                                    TokenId token, int num_top) {
  return Sampler(kernels::DetectIsa())
      .Run({.logits = logits, .token = token, .num_top = num_top});
}

}  // namespace sluice
