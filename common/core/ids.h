#ifndef SLUICE_COMMON_CORE_IDS_H_
#define SLUICE_COMMON_CORE_IDS_H_

#include <compare>
#include <cstdint>
#include <ostream>
#include <utility>

#include "common/base/strong_id.h"

namespace sluice {

// Index into the vocabulary.
using TokenId = int32_t;

// A sequence in one replica's engine, unique for the life of the gateway.
using SequenceId = StrongId<struct SequenceIdTag, uint64_t>;

// A block of the KV cache: the same slot on every stage of a replica.
using BlockId = StrongId<struct BlockIdTag, int32_t>;

// One forward pass over one plan. Rises by one per plan within an epoch.
using StepId = StrongId<struct StepIdTag, uint64_t>;

// One build of a pipeline: the term of the gateway's hold (epochs.h), and a
// count within the term. Messages of an older epoch are dropped.
class Epoch {
 public:
  constexpr Epoch() = default;  // before all others
  constexpr explicit Epoch(uint64_t count) : count_(count) {}
  constexpr Epoch(uint64_t term, uint64_t count) : term_(term), count_(count) {}
  constexpr uint64_t term() const { return term_; }
  constexpr uint64_t count() const { return count_; }
  constexpr auto operator<=>(const Epoch&) const = default;
  // The next one. A term without a further count ends at the next term.
  constexpr Epoch& operator++() {
    if (++count_ == 0) ++term_;
    return *this;
  }
  // "3.2": term 3, count 2.
  friend std::ostream& operator<<(std::ostream& out, Epoch epoch) {
    return out << epoch.term_ << '.' << epoch.count_;
  }
  template <typename H>
  friend H AbslHashValue(H h, Epoch epoch) {
    return H::combine(std::move(h), epoch.term_, epoch.count_);
  }

 private:
  uint64_t term_ = 0;
  uint64_t count_ = 0;
};

// A whole pipeline.
using ReplicaId = StrongId<struct ReplicaIdTag, uint32_t>;

// Tokens per block of the KV cache. The handshake checks that both sides agree.
inline constexpr int kBlockTokens = 16;

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_IDS_H_
