#ifndef SLUICE_COMMON_SAMPLING_LOGITS_ROW_H_
#define SLUICE_COMMON_SAMPLING_LOGITS_ROW_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/context.h"
#include "kernels/sampling.h"

namespace sluice {

// Pieces [begin, end) of a row (kernels/sampling.h), and their logits.
struct PieceRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_logit() const { return begin * kernels::kLogitsPiece; }
  // Returns part `part` of `parts` of a row of `logits`.
  static PieceRange Of(int64_t logits, int part, int parts);
};

// A view of a row of logits and of the largest logit of each piece. Memory is
// reused from row to row. Several threads may call Scan, then Weigh, for ranges
// of their own; the other methods need one thread, after all scans.
class LogitsRow {
 public:
  explicit LogitsRow(kernels::Isa isa) : isa_(isa) {}

  void Reset(std::span<const float> logits);

  // Finds the largest logits of `range`.
  void Scan(const PieceRange& range);
  // Returns whether no logit is NaN or +inf.
  bool is_finite() const;
  // Returns the largest logit. Needs is_finite().
  float max() const;
  // Returns the lowest id with the largest logit.
  int64_t ArgMax() const;

  // Writes the sum of the weights of each piece of `range`, at 1 / temperature
  // = `scale`, to its place in sums [pieces]. Needs a finite max().
  void Weigh(const PieceRange& range, float scale, std::span<float> sums) const;

  // Returns a logit that at least `count` logits reach, close to the count-th
  // largest; -inf for too few pieces. count >= 1.
  float LeastOfLargest(int64_t count);
  // Returns the number of tokens before `id` by likelihood: larger logits, and
  // equal ones of lower ids.
  int64_t RankOf(int64_t id) const;

  std::span<const float> logits() const { return logits_; }
  std::span<const float> maxima() const { return maxima_; }
  int64_t size() const { return static_cast<int64_t>(logits_.size()); }

 private:
  std::span<const float> LogitsOf(const PieceRange& range) const;

  const kernels::Isa isa_;
  std::span<const float> logits_;
  std::vector<float> maxima_;  // per piece
  std::vector<float> ordered_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_SAMPLING_LOGITS_ROW_H_
