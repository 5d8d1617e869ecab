#include "common/base/random_bytes.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "common/base/check.h"

namespace sluice {

void FillRandom(std::span<uint8_t> out) {
  while (!out.empty()) {
    const ssize_t got = ::getrandom(out.data(), out.size(), 0);
    if (got < 0) {
      SLUICE_CHECK(errno == EINTR);
      continue;
    }
    out = out.subspan(static_cast<size_t>(got));
  }
}

uint64_t RandomBits() {
  // getrandom gives up to 256 bytes in one piece.
  thread_local std::array<uint8_t, 256> reserve;
  thread_local size_t left = 0;
  if (left == 0) {
    FillRandom(reserve);
    left = reserve.size();
  }
  left -= sizeof(uint64_t);
  uint64_t bits = 0;
  std::memcpy(&bits, &reserve[left], sizeof(bits));
  std::memset(&reserve[left], 0, sizeof(bits));
  return bits;
}

std::string RandomBytes(size_t bytes) {
  std::string out(bytes, '\0');
  FillRandom({reinterpret_cast<uint8_t*>(out.data()), out.size()});
  return out;
}

std::string RandomHex(size_t digits) {
  std::string out;
  out.reserve(digits);
  uint64_t bits = 0;
  for (size_t i = 0; i < digits; ++i, bits >>= 4) {
    if (i % 16 == 0) bits = RandomBits();
    out += "0123456789abcdef"[bits & 15];
  }
  return out;
}

bool EqualSecrets(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  // The compiler may not end the loop early: what it reads may change.
  volatile uint8_t differ = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    differ = static_cast<uint8_t>(differ | (a[i] ^ b[i]));
  }
  return differ == 0;
}

}  // namespace sluice
