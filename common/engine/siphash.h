#ifndef SLUICE_COMMON_ENGINE_SIPHASH_H_
#define SLUICE_COMMON_ENGINE_SIPHASH_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  auto operator<=>(const Hash128&) const = default;
};

struct SipKey {
  uint64_t k0 = 0;
  uint64_t k1 = 0;
  // From the system's random source.
  static SipKey Random();
};

// SipHash-2-4 with 128 bits of output (Aumasson and Bernstein 2012): without
// the key, an attacker cannot find two inputs of one hash.
Hash128 SipHash128(const SipKey& key, std::span<const uint8_t> bytes);

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_SIPHASH_H_
