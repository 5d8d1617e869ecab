#include "common/sampling/candidates.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace sluice {
namespace {

constexpr int kMaxBinBits = 11;
// Elements that SelectNotBelow may overwrite.
constexpr int64_t kRoom = kernels::kLogitsPiece + 16;

// Returns a key that rises with the logit, equal for equal logits and for zeros
// of both signs.
uint32_t KeyOf(float logit) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);
  constexpr uint32_t kSign = 0x80000000;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

// Returns the shift of keys up to `range` that gives about as many bins as
// candidates.
int BinShift(uint32_t range, int64_t candidates) {
  const int bits = std::clamp<int>(
      std::bit_width(static_cast<uint64_t>(candidates)), 4, kMaxBinBits);
  return std::max<int>(0, std::bit_width(range) - bits);
}

}  // namespace

void Candidates::Collect(const LogitsRow& row, float least, int64_t stride) {
  size_ = 0;
  const auto logits = row.logits();
  for (int64_t p = 0; p < std::ssize(row.maxima()); p += stride) {
    if (row.maxima()[p] < least) continue;
    if (size_ + kRoom > std::ssize(logits_)) {
      const auto room = 2 * static_cast<size_t>(size_ + kRoom);
      logits_.resize(room);
      ids_.resize(room);
      weights_.resize(room);
      keys_.resize(room);
      places_.resize(room);
    }
    const int64_t begin = p * kernels::kLogitsPiece;
    const int64_t some =
        std::min(kernels::kLogitsPiece, std::ssize(logits) - begin);
    size_ += kernels::SelectNotBelow(
        isa_, logits.subspan(begin, some), least, static_cast<int32_t>(begin),
        {logits_.data() + size_, ids_.data() + size_});
  }
}

void Candidates::Weigh(kernels::Softening softening) {
  kernels::Weights(isa_, logits(), softening, {weights_.data(), count()});
}

// Keeps the candidates at the places that `stays` names, in order. Without
// branches, which are unpredictable here.
template <typename Stays>
void Candidates::Keep(const Stays& stays) {
  int64_t kept = 0;
  for (int64_t i = 0; i < size_; ++i) {
    logits_[kept] = logits_[i];
    ids_[kept] = ids_[i];
    kept += stays(i) ? 1 : 0;
  }
  size_ = kept;
}

void Candidates::CutBehind(const Last& last) {
  const auto rank_of = [](uint32_t key, int64_t place) {
    return (uint64_t{key} << 32) - static_cast<uint64_t>(place);
  };
  const uint64_t least = rank_of(last.key, last.place);
  Keep([&](int64_t i) { return rank_of(keys_[i], i) >= least; });
}

template <typename Body>
void Candidates::ForPlaces(const Body& body) const {
  if (num_places_ < 0) {
    for (int64_t i = 0; i < size_; ++i) body(i);
  } else {
    for (int64_t i = 0; i < num_places_; ++i) body(places_[i]);
  }
}

void Candidates::Narrow(uint32_t low, uint32_t high) {
  int64_t kept = 0;
  ForPlaces([&](int64_t place) {
    places_[kept] = static_cast<int32_t>(place);
    kept += keys_[place] - low <= high - low ? 1 : 0;
  });
  num_places_ = kept;
}

void Candidates::MakeKeys() {
  for (int64_t i = 0; i < size_; ++i) keys_[i] = KeyOf(logits_[i]);
  num_places_ = -1;
}

template <typename ShareOf>
std::optional<Candidates::Last> Candidates::FindLast(const ShareOf& share,
                                                     int64_t wanted) {
  MakeKeys();
  while (true) {
    uint32_t low = std::numeric_limits<uint32_t>::max();
    uint32_t high = 0;
    ForPlaces([&](int64_t place) {
      low = std::min(low, keys_[place]);
      high = std::max(high, keys_[place]);
    });
    if (low >= high) break;
    const int shift =
        BinShift(high - low, num_places_ < 0 ? size_ : num_places_);
    bins_.assign(((high - low) >> shift) + 1, 0);
    int64_t* const bins = bins_.data();
    ForPlaces([&](int64_t place) {
      bins[(keys_[place] - low) >> shift] += share(place);
    });
    auto bin = std::ssize(bins_) - 1;
    for (; bin >= 0 && bins[bin] < wanted; --bin) wanted -= bins[bin];
    if (bin < 0) return std::nullopt;
    const uint32_t from = low + (static_cast<uint32_t>(bin) << shift);
    const uint32_t width = (uint32_t{1} << shift) - 1;
    Narrow(from, high - from < width ? high : from + width);
  }
  // Equal logits are ordered by rising id.
  std::optional<Last> last;
  ForPlaces([&](int64_t place) {
    if (wanted <= 0) return;
    wanted -= share(place);
    if (wanted <= 0) last = Last{keys_[place], place};
  });
  return last;
}

void Candidates::KeepLikeliest(int64_t count) {
  if (count >= size_) return;
  CutBehind(*FindLast([](int64_t) { return int64_t{1}; }, count));
}

std::optional<Candidates::Last> Candidates::FindShare(
    const Share& share, kernels::Softening softening) {
  Weigh(softening);
  const auto size = static_cast<uint64_t>(share.vocab_size);
  const auto unit =
      static_cast<double>(int64_t{1} << (62 - std::bit_width(size)));
  // Scaling by a power of two is exact but for the rounding. The sum is below
  // 2^62.
  const auto wanted = static_cast<int64_t>(std::ceil(share.weight * unit));
  return FindLast(
      [&](int64_t place) {
        return static_cast<int64_t>(static_cast<double>(weights_[place]) *
                                    unit);
      },
      wanted);
}

bool Candidates::KeepShare(const Share& share, kernels::Softening softening) {
  const auto last = FindShare(share, softening);
  if (last.has_value()) CutBehind(*last);
  return last.has_value();
}

float Candidates::LastOfShare(const Share& share,
                              kernels::Softening softening) {
  const auto last = FindShare(share, softening);
  return last.has_value() ? logits_[last->place]
                          : -std::numeric_limits<float>::infinity();
}

void Candidates::KeepHeavy(float least, kernels::Softening softening) {
  Weigh(softening);
  Keep([&](int64_t i) { return weights_[i] >= least; });
}

std::span<const int32_t> Candidates::Ordered(int64_t count) {
  const std::span<int32_t> places(places_.data(), this->count());
  std::iota(places.begin(), places.end(), 0);
  std::partial_sort(places.begin(), places.begin() + count, places.end(),
                    [&](int32_t a, int32_t b) {
                      return logits_[a] > logits_[b] ||
                             (logits_[a] == logits_[b] && a < b);
                    });
  return places.first(static_cast<size_t>(count));
}

}  // namespace sluice
