#ifndef SLUICE_COMMON_DEVICE_CUDA_RANK_TELLING_H_
#define SLUICE_COMMON_DEVICE_CUDA_RANK_TELLING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "common/base/status.h"
#include "common/device/cuda/cuda_memory.h"
#include "common/device/cuda/device_exchange.h"
#include "common/device/cuda/own_ranks.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/reduction_tree.h"

namespace sluice {

// What a collective is for every rank alike.
struct Collective {
  int32_t num_leaves = 0;  // of a sum; 0: columns are gathered
  int64_t cols = 0;        // of a sum
  bool operator==(const Collective&) const = default;
};

// What one rank brings to it.
struct RankShare {
  std::vector<kernels::TreeNode> nodes;  // of a sum
  int64_t cols = 0;                      // of gathered columns
  int64_t col_begin = 0;
  bool operator==(const RankShare&) const = default;
};

// What a rank tells the others of its next collective.
struct RankTelling {
  Collective of;
  RankShare share;
  int64_t rows = 0;
  bool copied = false;  // since its step's first collective
};

// A RankTelling as the devices carry it: bytes as floats, which no rank adds.
struct TellingWords {
  // Nodes that a rank may bring: JoinNodes takes no more of all ranks together.
  static constexpr int kMostNodes = 1024;
  // Rises where the words mean something else.
  static constexpr uint64_t kVersion = 1;
  static const uint64_t kMark;  // of no sums' values, nor of other words

  uint64_t mark = 0;
  int64_t collective_cols = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t col_begin = 0;
  int32_t num_leaves = 0;
  int32_t copied = 0;
  int64_t num_nodes = 0;
  kernels::TreeNode nodes[kMostNodes] = {};
};
static_assert(std::is_trivially_copyable_v<TellingWords>);
static_assert(sizeof(TellingWords) % sizeof(float) == 0);
inline constexpr uint64_t TellingWords::kMark =
    uint64_t{0x51751ce0} << 32 | kVersion << 24 | sizeof(TellingWords);
static_assert(sizeof(TellingWords) < 1 << 24);

// Tells ranks of several processes what each brings: an exchange of a fixed
// size, through their devices. One rank's; used by that rank's thread. The
// runtime must outlive it.
class TellingExchange {
 public:
  static constexpr int kMostNodes = TellingWords::kMostNodes;
  // Of a rank's telling: values that are as many may be taken for one.
  static constexpr int64_t kFloats = sizeof(TellingWords) / sizeof(float);

  // Takes all memory that Tell needs, the device's and the host's by which it
  // copies. RESOURCE_EXHAUSTED if the device has none left.
  static StatusOr<std::unique_ptr<TellingExchange>> Make(
      kernels::cuda::Runtime* runtime, const OwnRanks& ranks, int index);

  // Returns what every rank tells, by number, this one `own`, when all of them
  // have come and the stream is done. By every rank at the same collective: one
  // that takes other values for tellings, or has or is told of more nodes than
  // kMostNodes, ends the process.
  std::vector<RankTelling> Tell(const RankTelling& own,
                                DeviceExchange& exchange);

 private:
  TellingExchange(kernels::cuda::Runtime* runtime, const OwnRanks& ranks,
                  int index);
  // Returns why `words` are no telling of rank `number`; empty: they are.
  std::string WhyNone(const TellingWords& words, size_t number) const;

  kernels::cuda::Runtime& runtime_;
  const OwnRanks ranks_;
  const int index_;
  GrowingMemory send_;     // one rank's words
  GrowingMemory receive_;  // every rank's
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_RANK_TELLING_H_
