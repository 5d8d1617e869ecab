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
  // Part `part` of `parts` of a row of `logits`.
  static PieceRange Of(int64_t logits, int part, int parts);
};

// A view of a row of logits, and the largest logit of each of its pieces. The
// object keeps its memory from row to row. Several threads may call Scan, and
// after that Weigh, for ranges of their own; all else is for one thread, when
// all have scanned.
class LogitsRow {
 public:
  explicit LogitsRow(kernels::Isa isa) : isa_(isa) {}

  void Reset(std::span<const float> logits);

  // Finds the largest logits of `range`.
  void Scan(const PieceRange& range);
  // No logit is NaN or +inf.
  bool is_finite() const;
  // The largest logit, if is_finite.
  float max() const;
  // The lowest id that has it.
  int64_t ArgMax() const;

  // Sums the weights at 1 / temperature = `scale` of the pieces of `range`
  // into their places in sums [pieces]. max() is finite.
  void Weigh(const PieceRange& range, float scale, std::span<float> sums) const;

  // A logit that at least `count` logits reach, close to the count-th
  // largest; -inf where the pieces are too few to know one. count >= 1.
  float LeastOfLargest(int64_t count);
  // How many tokens come before `id` in the order of likelihood: larger
  // logits, and equal ones of lower ids.
  int64_t RankOf(int64_t id) const;

  std::span<const float> logits() const { return logits_; }
  std::span<const float> maxima() const { return maxima_; }
  int64_t size() const { return static_cast<int64_t>(logits_.size()); }

 private:
  std::span<const float> LogitsOf(const PieceRange& range) const;

  const kernels::Isa isa_;
  std::span<const float> logits_;
  std::vector<float> maxima_;  // of each piece
  std::vector<float> ordered_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_SAMPLING_LOGITS_ROW_H_
