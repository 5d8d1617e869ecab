#include "common/engine/siphash.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace sluice {
namespace {

// Key 00 01 .. 0f, input 00 01 .. n-1: the reference implementation's vectors.
std::vector<uint8_t> HashOfFirst(size_t n) {
  const SipKey key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::vector<uint8_t> input(n);
  for (size_t i = 0; i < n; ++i) input[i] = static_cast<uint8_t>(i);
  const Hash128 hash = SipHash128(key, input);
  std::vector<uint8_t> bytes(16);
  std::memcpy(bytes.data(), &hash.low, 8);
  std::memcpy(bytes.data() + 8, &hash.high, 8);
  return bytes;
}

TEST(SipHashTest, GivesTheReferenceImplementationsVectors) {
  EXPECT_EQ(
      HashOfFirst(0),
      (std::vector<uint8_t>{0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
                            0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93}));
  EXPECT_EQ(
      HashOfFirst(1),
      (std::vector<uint8_t>{0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44,
                            0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45}));
  EXPECT_EQ(
      HashOfFirst(63),
      (std::vector<uint8_t>{0x51, 0x50, 0xd1, 0x77, 0x2f, 0x50, 0x83, 0x4a,
                            0x50, 0x3e, 0x06, 0x9a, 0x97, 0x3f, 0xbd, 0x7c}));
}

TEST(SipHashTest, AnotherKeyGivesAnotherHash) {
  const std::vector<uint8_t> input{1, 2, 3};
  EXPECT_NE(SipHash128(SipKey::Random(), input),
            SipHash128(SipKey::Random(), input));
}

}  // namespace
}  // namespace sluice
