#include "common/placement/layer_resplit.h"

#include <algorithm>
#include <utility>

#include "common/core/kv_groups.h"
#include "common/placement/split_sums.h"

namespace sluice {
namespace {

// Counts the bytes of one stage, layer by layer.
class PlaceBytes {
 public:
  PlaceBytes(const StageRoom& room, int32_t first)
      : room_(room), first_(first), last_(first) {}

  // Adds layers up to `last`.
  void GrowTo(int32_t last) {
    for (; last_ < last; ++last_) {
      const auto at = static_cast<size_t>(last_);
      layers_ += room_.layers[at];
      if (room_.kv.empty()) continue;
      kv_.Add(
          {room_.kv_groups.empty() ? 0 : room_.kv_groups[at], room_.kv[at]});
    }
  }
  uint64_t weights() const {
    const bool is_first = first_ == 0;
    const bool is_last = last_ == room_.num_layers();
    uint64_t bytes = layers_;
    if (is_first) bytes += room_.embedding;
    if (is_last) bytes += room_.head;
    if (is_last) bytes += is_first ? room_.tied_again : room_.tied;
    return bytes;
  }
  uint64_t total() const { return weights() + kv_.bytes(); }

 private:
  const StageRoom& room_;
  const int32_t first_;
  int32_t last_;
  uint64_t layers_ = 0;
  KvCount kv_;
};

// What is compared of splits, of the first parts on or of the last ones.
struct Cost {
  double loaded = kImpossibleSplit;
  double largest = kImpossibleSplit;
  double squares = kImpossibleSplit;
};

bool IsLess(double a, double b) { return a < b * (1 - kSameSum); }

bool IsLess(const Cost& a, const Cost& b) {
  if (a.loaded != b.loaded) return a.loaded < b.loaded;
  if (a.largest != b.largest) return a.largest < b.largest;
  return IsLess(a.squares, b.squares);
}

// Tries the parts in order; each begins at the end of the one before.
class Resplitter {
 public:
  Resplitter(const std::vector<SplitPart>& parts, int32_t num_layers)
      : parts_(parts), layers_(num_layers), count_(parts.size()) {
    by_share_ = std::ranges::all_of(parts, [](const SplitPart& part) {
      return part.room->is_set && part.room->memory > 0;
    });
    sizes_.resize(count_ * Width() * Width());
    for (size_t part = 0; part < count_; ++part) Measure(part);
  }

  // Empty: no split fits.
  std::vector<StagePlace> Split() {
    const double least = LeastLargest();
    if (least == kImpossibleSplit) return {};
    limit_ = least * kResplitSlack;
    FindCosts();
    std::vector<StagePlace> places;
    int32_t first = 0;
    for (size_t part = 0; part < count_; ++part) {
      // The longest part among those of the best splits.
      const Cost& best = CostFrom(part, first);
      int32_t last = MostEnd(part);
      while (IsLess(best, CostOf(part, first, last))) --last;
      places.push_back({first, last});
      first = last;
    }
    return places;
  }

 private:
  // A part's size with some layers, and what it loads for them.
  struct Size {
    double size = kImpossibleSplit;  // of a part that does not fit
    double loaded = 0;
  };

  size_t Width() const { return static_cast<size_t>(layers_) + 1; }
  // Each later part needs a layer.
  int32_t MostEnd(size_t part) const {
    return layers_ - static_cast<int32_t>(count_ - 1 - part);
  }
  size_t IndexOf(size_t part, int32_t first, int32_t last) const {
    return (part * Width() + static_cast<size_t>(first)) * Width() +
           static_cast<size_t>(last);
  }
  Size& At(size_t part, const StagePlace& place) {
    return sizes_[IndexOf(part, place.first_layer, place.last_layer)];
  }
  const Size& SizeOf(size_t part, int32_t first, int32_t last) const {
    return sizes_[IndexOf(part, first, last)];
  }

  void Measure(size_t index) {
    const SplitPart& part = parts_[index];
    const uint64_t memory = part.room->memory;
    if (part.room->empty()) {
      if (!part.held.empty() && part.held.last_layer <= layers_) {
        At(index, part.held) = {0, 0};
      }
      return;
    }
    for (int32_t first = 0; first < layers_; ++first) {
      PlaceBytes bytes(*part.room, first);
      for (int32_t last = first + 1; last <= layers_; ++last) {
        bytes.GrowTo(last);
        const bool is_held = part.held == StagePlace{first, last};
        const uint64_t all = bytes.total();
        if (!is_held && memory > 0 && all > memory) continue;
        const auto size = static_cast<double>(all);
        At(index, {first, last}) = {
            by_share_ ? size / static_cast<double>(memory) : size,
            is_held ? 0 : static_cast<double>(bytes.weights())};
      }
    }
  }

  // The size of the largest part of the split where it is the smallest.
  double LeastLargest() const {
    std::vector<double> behind(Width(), kImpossibleSplit);
    behind.back() = 0;
    for (size_t part = count_; part-- > 0;) {
      std::vector<double> best(Width(), kImpossibleSplit);
      for (int32_t first = 0; first < MostEnd(part); ++first) {
        double& least = best[static_cast<size_t>(first)];
        for (int32_t last = first + 1; last <= MostEnd(part); ++last) {
          least = std::min(least, std::max(SizeOf(part, first, last).size,
                                           behind[static_cast<size_t>(last)]));
        }
      }
      behind = std::move(best);
    }
    return behind.front();
  }

  Cost CostOf(size_t part, int32_t first, int32_t last) const {
    const Size& own = SizeOf(part, first, last);
    const Cost& rest = CostFrom(part + 1, last);
    if (own.size > limit_ || rest.loaded == kImpossibleSplit) return {};
    const double square = limit_ > 0 ? own.size / limit_ : 0;
    return {own.loaded + rest.loaded, std::max(own.size, rest.largest),
            square * square + rest.squares};
  }

  // For each part, from the last to the first: the best split of this part and
  // the later ones, by its first layer.
  void FindCosts() {
    costs_.assign((count_ + 1) * Width(), Cost());
    costs_.back() = {0, 0, 0};
    for (size_t part = count_; part-- > 0;) {
      for (int32_t first = 0; first < MostEnd(part); ++first) {
        Cost& best = costs_[part * Width() + static_cast<size_t>(first)];
        for (int32_t last = first + 1; last <= MostEnd(part); ++last) {
          const Cost cost = CostOf(part, first, last);
          if (IsLess(cost, best)) best = cost;
        }
      }
    }
  }
  const Cost& CostFrom(size_t part, int32_t first) const {
    return costs_[part * Width() + static_cast<size_t>(first)];
  }

  const std::vector<SplitPart>& parts_;
  const int32_t layers_;
  const size_t count_;
  bool by_share_ = false;
  double limit_ = kImpossibleSplit;
  std::vector<Size> sizes_;  // [part][first][last]
  std::vector<Cost> costs_;  // [part][first]
};

}  // namespace

StatusOr<LayerResplit> ResplitLayers(const std::vector<SplitPart>& parts,
                                     int32_t num_layers) {
  const auto count = static_cast<int32_t>(parts.size());
  if (count < 1 || num_layers < count || num_layers > kMaxResplitLayers) {
    return FailedPrecondition(num_layers, " layers cannot be split over ",
                              count, " processes; at most ", kMaxResplitLayers,
                              " are");
  }
  for (const SplitPart& part : parts) {
    if (part.room->empty() || part.room->num_layers() == num_layers) continue;
    return FailedPrecondition("a process has a model of ",
                              part.room->num_layers(), " layers, not of ",
                              num_layers);
  }
  LayerResplit split;
  split.places = Resplitter(parts, num_layers).Split();
  if (split.places.empty()) {
    std::string memory;
    for (const SplitPart& part : parts) {
      memory += Cat(memory.empty() ? "" : ", ", part.room->memory);
    }
    return ResourceExhausted("no split of ", num_layers, " layers over ", count,
                             " processes fits their memory: ", memory,
                             " bytes");
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const uint64_t bytes,
                            LoadFor(parts[i], split.places[i]));
    split.loaded_bytes += bytes;
  }
  return split;
}

StatusOr<uint64_t> LoadFor(const SplitPart& part, const StagePlace& place) {
  if (part.held == place) return uint64_t{0};
  const StageRoom& room = *part.room;
  if (room.empty() || place.empty() || place.last_layer > room.num_layers()) {
    return FailedPrecondition("it cannot load layers ", place.first_layer,
                              " to ", place.last_layer - 1);
  }
  PlaceBytes bytes(room, place.first_layer);
  bytes.GrowTo(place.last_layer);
  if (room.memory == 0 || bytes.total() <= room.memory) return bytes.weights();
  return ResourceExhausted(
      "layers ", place.first_layer, " to ", place.last_layer - 1, " take ",
      bytes.total(), " bytes with the least KV cache, it has ", room.memory);
}

}  // namespace sluice
