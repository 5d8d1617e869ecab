#ifndef SLUICE_COMMON_SAMPLING_CANDIDATES_H_
#define SLUICE_COMMON_SAMPLING_CANDIDATES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/core/ids.h"
#include "common/sampling/logits_row.h"
#include "kernels/sampling.h"

namespace sluice {

// Some tokens of a row with their logits, by rising id, and filters that keep
// fewer. Likelier tokens have larger logits or, among equal ones, lower ids.
// Nothing is sorted: a filter finds the last token to keep by histograms of the
// logits' bits with integer bins, so that no sum depends on an order. Memory is
// reused from row to row. One thread at a time.
class Candidates {
 public:
  explicit Candidates(kernels::Isa isa) : isa_(isa) {}

  // Collects the logits of at least `least` in every `stride`-th piece of
  // `row`.
  void Collect(const LogitsRow& row, float least, int64_t stride = 1);

  // Keeps the `count` likeliest.
  void KeepLikeliest(int64_t count);

  // The shortest run, likeliest first, with a total weight of at least
  // `weight`. A weight counts in whole multiples of 2^(b - 62), rounded down,
  // with b the bits of the vocabulary's size.
  struct Share {
    double weight = 0;  // above 0
    int64_t vocab_size = 0;
  };
  // Keeps that run. False if all together weigh less: all stay.
  bool KeepShare(const Share& share, kernels::Softening softening);
  // Returns the run's last logit; -inf if all together weigh less.
  float LastOfShare(const Share& share, kernels::Softening softening);

  // Keeps the tokens that weigh at least `least`.
  void KeepHeavy(float least, kernels::Softening softening);

  int64_t size() const { return size_; }
  std::span<const float> logits() const { return {logits_.data(), count()}; }
  std::span<const TokenId> ids() const { return {ids_.data(), count()}; }
  // Returns the places of the `count` likeliest in logits() and ids(), in
  // order, valid until the next call. count <= size().
  std::span<const int32_t> Ordered(int64_t count);

 private:
  // The last token to keep.
  struct Last {
    uint32_t key = 0;  // of its logit
    int64_t place = 0;
  };
  size_t count() const { return static_cast<size_t>(size_); }
  void Weigh(kernels::Softening softening);
  void MakeKeys();
  std::optional<Last> FindShare(const Share& share,
                                kernels::Softening softening);
  // Returns the last token of the shortest run whose shares, share(place), sum
  // up to `wanted`; nullopt if all together do not. wanted >= 1.
  template <typename ShareOf>
  std::optional<Last> FindLast(const ShareOf& share, int64_t wanted);
  template <typename Body>
  void ForPlaces(const Body& body) const;
  void Narrow(uint32_t low, uint32_t high);
  void CutBehind(const Last& last);
  template <typename Stays>
  void Keep(const Stays& stays);

  const kernels::Isa isa_;
  int64_t size_ = 0;
  // The first size_ of each are valid; both grow together.
  std::vector<float> logits_;
  std::vector<TokenId> ids_;
  std::vector<float> weights_;
  std::vector<uint32_t> keys_;
  // The first num_places_ are the candidates of a search; all if below 0.
  std::vector<int32_t> places_;
  int64_t num_places_ = -1;
  std::vector<int64_t> bins_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_SAMPLING_CANDIDATES_H_
