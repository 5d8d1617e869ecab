#ifndef SLUICE_COMMON_BASE_RANDOM_BYTES_H_
#define SLUICE_COMMON_BASE_RANDOM_BYTES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

// The system's randomness, for all that a client or a peer sees or could guess:
// seeds, ids, secrets. Earlier bytes tell nothing about later ones. Any thread;
// never fails (without the system's randomness the process ends).

// Fills `out` by getrandom.
void FillRandom(std::span<uint8_t> out);

// Returns 64 random bits. Each thread keeps a reserve of some hundred bytes,
// and forgets each byte once used.
uint64_t RandomBits();

// `bytes` random bytes, as they are.
std::string RandomBytes(size_t bytes);

// `digits` random hexadecimal digits, lower case.
std::string RandomHex(size_t digits);

// Whether two secrets are equal, in a time that depends on their lengths
// alone.
bool EqualSecrets(std::string_view a, std::string_view b);

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_RANDOM_BYTES_H_
