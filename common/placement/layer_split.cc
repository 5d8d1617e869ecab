#include "common/placement/layer_split.h"

#include <algorithm>

#include "common/placement/layer_loads.h"
#include "common/placement/split_sums.h"

namespace sluice {
namespace {

// Tries stages in order; each begins at the end of the one before.
class Splitter {
 public:
  Splitter(const LayerLoads& loads, int32_t num_stages,
           std::span<const uint64_t> memory)
      : loads_(loads),
        layers_(loads.num_layers()),
        stages_(num_stages),
        memory_(memory) {}

  std::vector<LayerRange> Split() {
    limit_ = LeastLargestShare();
    const std::vector<std::vector<double>> rest = LeastSquares();
    std::vector<LayerRange> ranges;
    int32_t first = 0;
    for (int32_t stage = 0; stage < stages_; ++stage) {
      // The longest stage among the most even splits.
      int32_t last = MostEnd(stage);
      const double best = At(rest, stage, first) * (1 + kSameSum);
      while (Squares(stage, first, last, rest) > best) --last;
      ranges.push_back({first, last});
      first = last;
    }
    return ranges;
  }

 private:
  // Each later stage needs a layer.
  int32_t MostEnd(int32_t stage) const {
    return layers_ - (stages_ - 1 - stage);
  }

  bool MayEnd(int32_t last) const {
    const auto at = static_cast<size_t>(last);
    return at >= loads_.uncut.size() || !loads_.uncut[at];
  }

  double Share(int32_t stage, int32_t first, int32_t last) const {
    const auto bytes = static_cast<double>(loads_.Of({first, last}).total());
    return memory_.empty()
               ? bytes
               : bytes /
                     static_cast<double>(memory_[static_cast<size_t>(stage)]);
  }

  // For each stage, from the last to the first: the best split of this stage
  // and the later ones, by its first layer.
  double LeastLargestShare() const {
    std::vector<double> behind(static_cast<size_t>(layers_) + 1,
                               kImpossibleSplit);
    behind.back() = 0;
    for (int32_t stage = stages_ - 1; stage >= 0; --stage) {
      std::vector<double> best(behind.size(), kImpossibleSplit);
      for (int32_t first = stage; first < MostEnd(stage); ++first) {
        double& least = best[static_cast<size_t>(first)];
        for (int32_t last = first + 1; last <= MostEnd(stage); ++last) {
          const double share = Share(stage, first, last);
          if (!MayEnd(last)) continue;
          if (share >= least) break;  // more layers, more bytes
          least = std::min(least,
                           std::max(share, behind[static_cast<size_t>(last)]));
        }
      }
      behind = std::move(best);
    }
    return behind.front();
  }

  double Squares(int32_t stage, int32_t first, int32_t last,
                 const std::vector<std::vector<double>>& rest) const {
    const double share = Share(stage, first, last);
    if (share > limit_ || !MayEnd(last)) return kImpossibleSplit;
    const double part = limit_ > 0 ? share / limit_ : 0;
    return part * part + At(rest, stage + 1, last);
  }

  // [stage][first]: the least sum of squares of this stage and the later ones.
  std::vector<std::vector<double>> LeastSquares() const {
    const std::vector<double> none(static_cast<size_t>(layers_) + 1,
                                   kImpossibleSplit);
    std::vector<std::vector<double>> rest(static_cast<size_t>(stages_) + 1,
                                          none);
    rest.back().back() = 0;
    for (int32_t stage = stages_ - 1; stage >= 0; --stage) {
      for (int32_t first = stage; first < MostEnd(stage); ++first) {
        double& least =
            rest[static_cast<size_t>(stage)][static_cast<size_t>(first)];
        for (int32_t last = first + 1; last <= MostEnd(stage); ++last) {
          if (Share(stage, first, last) > limit_) break;
          least = std::min(least, Squares(stage, first, last, rest));
        }
      }
    }
    return rest;
  }

  static double At(const std::vector<std::vector<double>>& rest, int32_t stage,
                   int32_t first) {
    return rest[static_cast<size_t>(stage)][static_cast<size_t>(first)];
  }

  const LayerLoads& loads_;
  const int32_t layers_;
  const int32_t stages_;
  const std::span<const uint64_t> memory_;
  double limit_ = kImpossibleSplit;
};

}  // namespace

StatusOr<std::vector<LayerRange>> SplitLayers(
    const LayerLoads& loads, int32_t num_stages,
    std::span<const uint64_t> memory) {
  if (num_stages < 1 || num_stages > loads.num_layers()) {
    return InvalidArgument(num_stages, " stages for ", loads.num_layers(),
                           " layers: 1 to ", loads.num_layers(),
                           " are possible");
  }
  if (!memory.empty() && memory.size() != static_cast<size_t>(num_stages)) {
    return InvalidArgument(num_stages, " stages have ", memory.size(),
                           " sizes of memory");
  }
  for (size_t i = 0; i < memory.size(); ++i) {
    if (memory[i] == 0) {
      return InvalidArgument("stage ", i, " has no memory: must be positive");
    }
  }
  const auto uncut = std::count(loads.uncut.begin(), loads.uncut.end(), true);
  if (num_stages > loads.num_layers() - uncut) {
    return InvalidArgument(
        num_stages, " stages: ", uncut, " of ", loads.num_layers(),
        " layers read keys and values of layers before and stay with them, so "
        "1 to ",
        loads.num_layers() - uncut, " stages are possible");
  }
  std::vector<LayerRange> ranges = Splitter(loads, num_stages, memory).Split();
  for (size_t i = 0; i < memory.size(); ++i) {
    const StageBytes bytes = loads.Of(ranges[i]);
    if (bytes.total() <= memory[i]) continue;
    return ResourceExhausted(
        "stage ", i, " would have layers ", ranges[i].first, "-",
        ranges[i].last - 1, ", ", bytes.weights, " bytes of weights and ",
        bytes.kv, " of KV cache, in ", memory[i], " of memory; no split fits");
  }
  return ranges;
}

}  // namespace sluice
