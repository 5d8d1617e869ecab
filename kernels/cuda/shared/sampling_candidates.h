#ifndef SLUICE_KERNELS_CUDA_SHARED_SAMPLING_CANDIDATES_H_
#define SLUICE_KERNELS_CUDA_SHARED_SAMPLING_CANDIDATES_H_

#include <cuda_device/device.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/shared/sampling_rows.h"

namespace sluice::kernels::cuda {

// A number that rises with the likelihood of a token: larger logits, equal ones
// (zeros of both signs) by falling id.
SLUICE_DEVICE uint32_t KeyOf(float logit) {
  const auto bits = BitCast<uint32_t>(logit + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
SLUICE_DEVICE float LogitOf(uint32_t key) {
  return BitCast<float>((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}
SLUICE_DEVICE uint64_t RankOf(float logit, int32_t id) {
  return static_cast<uint64_t>(KeyOf(logit)) << 32 |
         (0xFFFFFFFFu - static_cast<uint32_t>(id));
}

// Some tokens of a row with their logits, by rising id, and what keeps fewer.
// One block has it: all threads call the methods and get the same results.
class TokenCandidates {
 public:
  static constexpr int kBins = 256;
  static constexpr size_t kSharedBytes =
      sizeof(int32_t) * kSampleWarps + sizeof(int64_t) * (kBins + 2);

  SLUICE_DEVICE TokenCandidates(Block& block, float* values, int32_t* ids)
      : block_(block),
        values_(values),
        ids_(ids),
        counts_(block.Allocate<int32_t>(kSampleWarps)),
        bins_(block.Allocate<int64_t>(kBins)),
        found_(block.Allocate<int64_t>(2)) {}

  SLUICE_DEVICE int64_t size() const { return size_; }

  // The candidates are the logits of at least `least`.
  SLUICE_DEVICE void Collect(const Logits& logits, int64_t vocab, float least) {
    size_ = 0;
    for (int64_t p = 0; p * kLogitsPiece < vocab; ++p) {
      if (logits.maxima[p] < least) continue;
      const int64_t i = p * kLogitsPiece + block_.thread();
      const float value = i < vocab ? logits.values[i] : 0.0f;
      Append(i < vocab && value >= least, value, static_cast<int32_t>(i));
    }
    block_.Sync();
  }
  // Keeps the candidates that `stays`, in order.
  template <typename Stays>
  SLUICE_DEVICE void Keep(const Stays& stays) {
    const int64_t count = size_;
    size_ = 0;
    for (int64_t begin = 0; begin < count; begin += kSampleThreads) {
      const int64_t i = begin + block_.thread();
      const float value = i < count ? values_[i] : 0.0f;
      const int32_t id = i < count ? ids_[i] : 0;
      Append(i < count && stays(value, id), value, id);
    }
    block_.Sync();
  }

  // Finds the rank of the last of the shortest run of values, likeliest first,
  // whose shares sum up to `wanted`, at least 1. False if all together do not.
  template <typename ShareOf>
  SLUICE_DEVICE bool Find(const float* values, const int32_t* ids,
                          int64_t count, const ShareOf& share, int64_t wanted,
                          uint64_t& last) {
    last = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
      bins_.Set(block_.thread(), 0);
      block_.Sync();
      for (int64_t i = block_.thread(); i < count; i += kSampleThreads) {
        const int32_t id = ids == nullptr ? static_cast<int32_t>(i) : ids[i];
        const uint64_t rank = RankOf(values[i], id);
        if (shift < 56 && rank >> (shift + 8) != last) continue;
        bins_.Add(static_cast<int64_t>(rank >> shift & 255u), share(values[i]));
      }
      block_.Sync();
      if (block_.warp() == 0) FindBin(wanted);
      block_.Sync();
      const int64_t bin = found_.Get(0);
      wanted = found_.Get(1);
      block_.Sync();
      if (bin < 0) return false;
      last = last << 8 | static_cast<uint64_t>(bin);
    }
    return true;
  }
  SLUICE_DEVICE void KeepFrom(uint64_t last) {
    Keep([&](float value, int32_t id) { return RankOf(value, id) >= last; });
  }
  SLUICE_DEVICE void KeepLikeliest(int64_t count) {
    if (count >= size_) return;
    uint64_t last = 0;
    Find(
        values_, ids_, size_, [](float) { return int64_t{1}; }, count, last);
    KeepFrom(last);
  }

  // A logit that at least `count` logits reach.
  SLUICE_DEVICE float LeastOfLargest(const Logits& logits, int64_t vocab,
                                     int64_t count) {
    const int64_t pieces = (vocab + kLogitsPiece - 1) / kLogitsPiece;
    if (count > pieces) return -Infinity();
    uint64_t last = 0;
    Find(
        logits.maxima, nullptr, pieces, [](float) { return int64_t{1}; }, count,
        last);
    return LogitOf(static_cast<uint32_t>(last >> 32));
  }

 private:
  // Appends to the candidates, by rising thread.
  SLUICE_DEVICE void Append(bool wanted, float value, int32_t id) {
    const uint32_t votes = block_.Ballot(wanted);
    if (block_.lane() == 0) counts_.Set(block_.warp(), CountBits(votes));
    block_.Sync();
    int64_t at = size_;
    int64_t all = size_;
    for (int w = 0; w < kSampleWarps; ++w) {
      const int32_t count = counts_.Get(w);
      at += w < block_.warp() ? count : 0;
      all += count;
    }
    block_.Sync();
    if (wanted) {
      at += CountBits(votes & ((1u << block_.lane()) - 1));
      values_[at] = value;
      ids_[at] = id;
    }
    size_ = all;
  }
  // The bin, from the last one down, in which the sum reaches `wanted`, and
  // what is wanted of it; -1: none. Warp 0 calls, eight bins a lane.
  SLUICE_DEVICE void FindBin(int64_t wanted) {
    constexpr int kOwn = kBins / kWarpLanes;
    const int first = kBins - 1 - block_.lane() * kOwn;
    int64_t own = 0;
    for (int b = 0; b < kOwn; ++b) own += bins_.Get(first - b);
    int64_t until = own;
    for (int step = 1; step < kWarpLanes; step *= 2) {
      const int from =
          block_.lane() < step ? block_.lane() : block_.lane() - step;
      const int64_t other = block_.Shuffle(until, from);
      until += block_.lane() < step ? 0 : other;
    }
    int64_t left = wanted - (until - own);
    const bool has = left > 0 && left <= own;
    if (block_.Ballot(has) == 0) {
      if (block_.lane() == 0) {
        found_.Set(0, -1);
        found_.Set(1, wanted);
      }
      return;
    }
    if (!has) return;
    int bin = first;
    for (; bins_.Get(bin) < left; --bin) left -= bins_.Get(bin);
    found_.Set(0, bin);
    found_.Set(1, left);
  }

  Block& block_;
  float* const values_;  // [vocab]
  int32_t* const ids_;   // [vocab]
  int64_t size_ = 0;
  const Shared<int32_t> counts_;
  const Shared<int64_t> bins_;
  const Shared<int64_t> found_;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_SAMPLING_CANDIDATES_H_
