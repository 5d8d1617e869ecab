#ifndef SLUICE_KERNELS_CUDA_CANONICAL_FUSED_TOKEN_SUMS_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_FUSED_TOKEN_SUMS_H_

#include <cuda_device/device.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/canonical/block_term_sums.h"
#include "kernels/cuda/canonical/fused_token_row.h"
#include "kernels/cuda/shared/gated_activation.h"
#include "kernels/cuda/shared/math.h"
#include "kernels/cuda/shared/product_shards.h"

namespace sluice::kernels::cuda {

// Shards of a product, at most: as many as ranks have (model_config).
inline constexpr int kMostTokenShards = 16;

struct BlockTokenArgs {
  TokenRowArgs row;
  const uint8_t* packed;
  const float* bias;
  int32_t rows;  // of the weight
  int32_t adds;
  int32_t gated;
  int32_t clamped;  // what it is gated with
  float limit;
  uint32_t each;   // groups of outputs of every block
  uint32_t more;   // blocks that have one more
  int32_t unused;  // no bytes between members: see LaunchList
  ShardArgs shards;
};

// The groups of sixteen rows that a block multiplies, one after the other:
// every count-th one or, where rows are gated, such a one and its partner.
class TokenGroups {
 public:
  SLUICE_DEVICE TokenGroups(const Block& block, const BlockTokenArgs& a)
      : index_(static_cast<uint32_t>(block.index())),
        step_(static_cast<uint32_t>(block.count())),
        gated_(a.gated != 0 ? 1 : 0),
        outputs_(Outputs(a)),
        count_((a.each + (index_ < a.more ? 1 : 0)) << gated_) {}
  // Groups of outputs.
  static constexpr SLUICE_DEVICE uint32_t Outputs(const BlockTokenArgs& a) {
    return (static_cast<uint32_t>(a.rows) + kGroupRows - 1) / kGroupRows >>
           (a.gated != 0 ? 1 : 0);
  }
  SLUICE_DEVICE uint32_t count() const { return count_; }
  // The block's group n.
  SLUICE_DEVICE uint32_t Of(uint32_t n) const {
    return index_ + (n >> gated_) * step_ + (n & gated_) * outputs_;
  }

 private:
  uint32_t index_;
  uint32_t step_;
  uint32_t gated_;
  uint32_t outputs_;
  uint32_t count_;
};

// What a warp does that adds the terms of a block's units, pass after pass, and
// stores the outputs. A lane has a row of each group; the halves of the warp
// have every other shard.
template <typename Unit, int kSlots>
class BlockTokenSums {
 public:
  static constexpr int kSlotFloats = Unit::kTerms * 2 * kGroupRows + 4;
  static constexpr int kPassFloats = kSlots * kSlotFloats;

  // `partials`: room for the shards' sums of a group.
  SLUICE_DEVICE BlockTokenSums(Block& block, const BlockTokenArgs& a,
                               const TokenGroups& groups,
                               const Shared<float>& terms,
                               const Shared<float>& partials)
      : block_(block),
        a_(a),
        groups_(groups),
        terms_(terms),
        partials_(partials),
        row_(block.lane() % kGroupRows) {}

  // `finite`: whether the token is.
  SLUICE_DEVICE void Begin(bool finite) {
    finite_ = finite;
    BeginGroup();
  }
  // Adds a pass, whose terms begin at `from`. The whole warp calls.
  SLUICE_DEVICE void AddPass(int32_t from) {
    const int32_t end = a_.shards.bounds[a_.shards.num_shards];
    for (int32_t slot = 0; slot < kSlots && group_ < groups_.count();) {
      const int32_t left = end - b_;
      const int32_t count = left < kSlots - slot ? left : kSlots - slot;
      AddBlocks(from + slot * kSlotFloats + row_, count);
      b_ += count;
      if (count < left) return;
      block_.SyncWarp();  // all partials are there
      Finish(SumOfShards());
      block_.SyncWarp();  // and read
      ++group_;
      BeginGroup();
      slot = (slot + count + Unit::kBlocks - 1) / Unit::kBlocks * Unit::kBlocks;
    }
  }

 private:
  SLUICE_DEVICE int32_t RowOf(uint32_t n) const {
    return static_cast<int32_t>(groups_.Of(n)) * kGroupRows + row_;
  }
  // What an output is added to comes while its terms are added.
  SLUICE_DEVICE void BeginGroup() {
    b_ = a_.shards.bounds[0];
    shard_ = block_.lane() / kGroupRows;
    sum_ = 0.0f;
    if (group_ >= groups_.count()) return;
    const int32_t row = RowOf(group_);
    if (row >= a_.rows) return;
    if (a_.bias != nullptr) bias_ = a_.bias[row];
    if (a_.adds != 0) before_ = a_.shards.y[0][row];
  }
  // Adds what the lane's shards have of `count` blocks from b_ on.
  SLUICE_DEVICE void AddBlocks(int32_t from, int32_t count) {
    const int32_t end = b_ + count;
    while (shard_ < a_.shards.num_shards) {
      const int32_t begin = a_.shards.bounds[shard_];
      const int32_t bound = a_.shards.bounds[shard_ + 1];
      const int32_t first = begin > b_ ? begin : b_;
      const int32_t own = (bound < end ? bound : end) - first;
      if (own > 0) {
        BlockTerms<Unit::kTerms, kSlotFloats>::Add(
            terms_, from + (first - b_) * kSlotFloats, own, sum_);
      }
      if (bound > end) return;
      partials_.Set(shard_ * kGroupRows + row_, sum_);
      sum_ = 0.0f;
      shard_ += kWarpLanes / kGroupRows;
    }
  }
  // The shards' sums joined in the tree.
  SLUICE_DEVICE float SumOfShards() const {
    const int32_t count = a_.shards.num_shards;
    const auto sum_of = [&](int shard) {
      return partials_.Get(shard * kGroupRows + row_);
    };
    constexpr int kPairs = kMostTokenShards / 2;
    float sums[kPairs];
    SLUICE_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      if (2 * i < count) sums[i] = sum_of(2 * i);
      if (2 * i + 1 < count) sums[i] = sums[i] + sum_of(2 * i + 1);
    }
    SLUICE_UNROLL
    for (int stride = 1; stride < kPairs; stride *= 2) {
      SLUICE_UNROLL
      for (int i = 0; i + stride < kPairs; i += 2 * stride) {
        if (2 * (i + stride) < count) sums[i] = sums[i] + sums[i + stride];
      }
    }
    return sums[0];
  }
  SLUICE_DEVICE void Finish(float sum) {
    if (a_.bias != nullptr) sum = sum + bias_;
    if (!finite_) sum = NotANumber();
    int32_t row = RowOf(group_);
    if (a_.gated != 0) {
      if (group_ % 2 == 0) {
        gate_ = sum;
        return;
      }
      row = RowOf(group_ - 1);
      sum = a_.clamped != 0 ? ClampedGate(gate_, sum, a_.limit)
                            : SiluGate(gate_, sum);
    }
    if (block_.lane() >= kGroupRows || row >= a_.rows) return;
    a_.shards.y[0][row] = a_.adds != 0 ? before_ + sum : sum;
  }

  Block& block_;
  const BlockTokenArgs& a_;
  const TokenGroups& groups_;
  const Shared<float>& terms_;
  const Shared<float>& partials_;
  const int row_;  // of a group
  bool finite_ = true;
  // The group at hand, its next block, the lane's shard and the sum of that.
  uint32_t group_ = 0;
  int32_t b_ = 0;
  int32_t shard_ = 0;
  float sum_ = 0.0f;
  float bias_ = 0.0f;
  float before_ = 0.0f;
  float gate_ = 0.0f;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_FUSED_TOKEN_SUMS_H_
