#ifndef SLUICE_COMMON_BASE_STRONG_ID_H_
#define SLUICE_COMMON_BASE_STRONG_ID_H_

#include <compare>
#include <cstddef>
#include <functional>
#include <ostream>

namespace sluice {

// An integer of its own type, so that a block id cannot be passed where a
// sequence id is meant. `Tag` is any incomplete type.
template <typename Tag, typename Int>
class StrongId {
 public:
  using ValueType = Int;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Int value) : value_(value) {}
  constexpr Int value() const { return value_; }
  constexpr auto operator<=>(const StrongId&) const = default;
  constexpr StrongId& operator++() {
    ++value_;
    return *this;
  }
  friend std::ostream& operator<<(std::ostream& out, StrongId id) {
    return out << id.value_;
  }
  template <typename H>
  friend H AbslHashValue(H h, StrongId id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  Int value_{};
};

}  // namespace sluice

template <typename Tag, typename Int>
struct std::hash<sluice::StrongId<Tag, Int>> {
  std::size_t operator()(sluice::StrongId<Tag, Int> id) const {
    return std::hash<Int>{}(id.value());
  }
};

#endif  // SLUICE_COMMON_BASE_STRONG_ID_H_
