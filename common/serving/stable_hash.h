#ifndef SLUICE_COMMON_SERVING_STABLE_HASH_H_
#define SLUICE_COMMON_SERVING_STABLE_HASH_H_

#include <bit>
#include <cstdint>
#include <string_view>

namespace sluice::serving {

// A hash that is the same in every process and release. Not for secrets: who
// chooses the input can find two of one hash.
class StableHash {
 public:
  StableHash& Add(uint64_t word) {
    state_ = Mix(state_ * 0x9e3779b97f4a7c15 + word + 1);
    return *this;
  }
  StableHash& Add(double value) { return Add(std::bit_cast<uint64_t>(value)); }
  StableHash& Add(std::string_view bytes) {
    Add(uint64_t{bytes.size()});
    for (; bytes.size() >= sizeof(uint64_t);
         bytes.remove_prefix(sizeof(uint64_t))) {
      Add(Word(bytes.substr(0, sizeof(uint64_t))));
    }
    return bytes.empty() ? *this : Add(Word(bytes));
  }
  uint64_t value() const { return state_; }

 private:
  // Little-endian, whatever the machine is.
  static uint64_t Word(std::string_view bytes) {
    uint64_t word = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      word |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    }
    return word;
  }
  // The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
  static uint64_t Mix(uint64_t word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
  }

  uint64_t state_ = 0;
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_STABLE_HASH_H_
