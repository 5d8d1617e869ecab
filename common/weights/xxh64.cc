#include "common/weights/xxh64.h"

#include <bit>
#include <cstring>
#include <initializer_list>

namespace sluice::weights {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87u;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Fu;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9u;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63u;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5u;
constexpr size_t kStripe = 32;

template <typename T>
T Load(const unsigned char* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

uint64_t Round(uint64_t lane, uint64_t input) {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

uint64_t Merge(uint64_t hash, uint64_t lane) {
  return (hash ^ Round(0, lane)) * kPrime1 + kPrime4;
}

// The four lanes over whole stripes; moves `at` behind them.
uint64_t Stripes(const unsigned char*& at, const unsigned char* end) {
  uint64_t a = kPrime1 + kPrime2;
  uint64_t b = kPrime2;
  uint64_t c = 0;
  uint64_t d = 0 - kPrime1;
  for (; static_cast<size_t>(end - at) >= kStripe; at += kStripe) {
    a = Round(a, Load<uint64_t>(at));
    b = Round(b, Load<uint64_t>(at + 8));
    c = Round(c, Load<uint64_t>(at + 16));
    d = Round(d, Load<uint64_t>(at + 24));
  }
  uint64_t hash =
      std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
  for (const uint64_t lane : {a, b, c, d}) hash = Merge(hash, lane);
  return hash;
}

}  // namespace

uint64_t Xxh64(const void* data, size_t size) {
  const auto* at = static_cast<const unsigned char*>(data);
  const unsigned char* end = at + size;
  uint64_t hash = size >= kStripe ? Stripes(at, end) : kPrime5;
  hash += size;
  for (; end - at >= 8; at += 8) {
    hash ^= Round(0, Load<uint64_t>(at));
    hash = std::rotl(hash, 27) * kPrime1 + kPrime4;
  }
  if (end - at >= 4) {
    hash ^= Load<uint32_t>(at) * kPrime1;
    hash = std::rotl(hash, 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at != end; ++at) {
    hash ^= *at * kPrime5;
    hash = std::rotl(hash, 11) * kPrime1;
  }
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace sluice::weights
