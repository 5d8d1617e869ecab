#include "common/sampling/logits_row.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace sluice {
namespace {

using kernels::kLogitsPiece;

constexpr float kLowest = -std::numeric_limits<float>::infinity();

int64_t CountNotBelow(kernels::Isa isa, std::span<const float> logits,
                      float value) {
  if (value == kLowest) return static_cast<int64_t>(logits.size());
  return kernels::CountAbove(isa, logits, std::nextafter(value, kLowest));
}

}  // namespace

PieceRange PieceRange::Of(int64_t logits, int part, int parts) {
  const int64_t pieces = kernels::NumPieces(logits);
  return {pieces * part / parts, pieces * (part + 1) / parts};
}

void LogitsRow::Reset(std::span<const float> logits) {
  logits_ = logits;
  maxima_.resize(static_cast<size_t>(kernels::NumPieces(size())));
}

std::span<const float> LogitsRow::LogitsOf(const PieceRange& range) const {
  const int64_t end = std::min(range.end * kLogitsPiece, size());
  return logits_.subspan(range.first_logit(), end - range.first_logit());
}

void LogitsRow::Scan(const PieceRange& range) {
  if (range.begin == range.end) return;
  const std::span<float> maxima(maxima_.data() + range.begin,
                                range.end - range.begin);
  if (!kernels::PieceMaxima(isa_, LogitsOf(range), maxima)) {
    maxima[0] = std::numeric_limits<float>::quiet_NaN();
  }
}

bool LogitsRow::is_finite() const {
  return std::none_of(maxima_.begin(), maxima_.end(),
                      [](float value) { return std::isnan(value); });
}

float LogitsRow::max() const {
  return *std::max_element(maxima_.begin(), maxima_.end());
}

int64_t LogitsRow::ArgMax() const {
  const auto piece = std::max_element(maxima_.begin(), maxima_.end());
  const auto begin = logits_.begin() + (piece - maxima_.begin()) * kLogitsPiece;
  return std::find(begin, logits_.end(), *piece) - logits_.begin();
}

void LogitsRow::Weigh(const PieceRange& range, float scale,
                      std::span<float> sums) const {
  kernels::WeightSums(isa_, LogitsOf(range), {max(), scale},
                      sums.subspan(range.begin, range.end - range.begin));
}

float LogitsRow::LeastOfLargest(int64_t count) {
  // Each piece whose maximum reaches the count-th largest has such a logit.
  if (count > std::ssize(maxima_)) return kLowest;
  ordered_ = maxima_;
  const auto at = ordered_.begin() + (count - 1);
  std::nth_element(ordered_.begin(), at, ordered_.end(), std::greater<float>());
  return *at;
}

int64_t LogitsRow::RankOf(int64_t id) const {
  const float own = logits_[id];
  int64_t rank = 0;
  for (int64_t p = 0; p < std::ssize(maxima_); ++p) {
    if (maxima_[p] < own) continue;
    const int64_t begin = p * kLogitsPiece;
    const auto piece = LogitsOf({p, p + 1});
    const int64_t before =
        std::clamp<int64_t>(id - begin, 0, std::ssize(piece));
    rank += CountNotBelow(isa_, piece.first(before), own);
    rank += kernels::CountAbove(isa_, piece.subspan(before), own);
  }
  return rank;
}

}  // namespace sluice
