#include "common/engine/siphash.h"

#include <bit>

#include "common/base/random_bytes.h"

namespace sluice {
namespace {

struct State {
  uint64_t v0, v1, v2, v3;

  void Rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  }
  void Absorb(uint64_t word) {
    v3 ^= word;
    Rounds(2);
    v0 ^= word;
  }
  uint64_t Fold() const { return v0 ^ v1 ^ v2 ^ v3; }
};

uint64_t LittleEndian(std::span<const uint8_t> bytes) {
  uint64_t word = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    word |= uint64_t{bytes[i]} << (8 * i);
  }
  return word;
}

}  // namespace

SipKey SipKey::Random() {
  const uint64_t k0 = RandomBits();
  return {k0, RandomBits()};
}

Hash128 SipHash128(const SipKey& key, std::span<const uint8_t> bytes) {
  // The constants spell "somepseudorandomlygeneratedbytes"; 0xee and 0xdd
  // tell the 128-bit form from the 64-bit one.
  State state{key.k0 ^ 0x736f6d6570736575, key.k1 ^ 0x646f72616e646f6d ^ 0xee,
              key.k0 ^ 0x6c7967656e657261, key.k1 ^ 0x7465646279746573};
  const size_t whole = bytes.size() / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) {
    state.Absorb(LittleEndian(bytes.subspan(i, 8)));
  }
  state.Absorb(LittleEndian(bytes.subspan(whole)) |
               (uint64_t{bytes.size()} << 56));
  Hash128 hash;
  state.v2 ^= 0xee;
  state.Rounds(4);
  hash.low = state.Fold();
  state.v1 ^= 0xdd;
  state.Rounds(4);
  hash.high = state.Fold();
  return hash;
}

}  // namespace sluice
