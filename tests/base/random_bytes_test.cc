#include "common/base/random_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace sluice {
namespace {

TEST(RandomBytesTest, NothingComesTwice) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 2000; ++i) seen.insert(RandomBits());
  EXPECT_EQ(seen.size(), 2000u);
}

TEST(RandomBytesTest, EveryBitIsSetInHalfOfTheWords) {
  constexpr int kWords = 20000;
  int set[64] = {};
  for (int i = 0; i < kWords; ++i) {
    const uint64_t bits = RandomBits();
    for (int b = 0; b < 64; ++b) set[b] += (bits >> b) & 1;
  }
  // Seven standard deviations: once in 10^10 runs.
  for (int b = 0; b < 64; ++b) EXPECT_NEAR(set[b], kWords / 2, 500) << b;
}

TEST(RandomBytesTest, TextHasTheLengthAndTheDigitsAskedFor) {
  EXPECT_EQ(RandomBytes(0), "");
  EXPECT_EQ(RandomBytes(1000).size(), 1000u);
  EXPECT_NE(RandomBytes(32), RandomBytes(32));
  EXPECT_THAT(RandomHex(33), ::testing::MatchesRegex("[0-9a-f]{33}"));
  EXPECT_NE(RandomHex(33), RandomHex(33));
}

TEST(RandomBytesTest, SecretsAreEqualInEveryByteOrNotAtAll) {
  const std::string secret = RandomBytes(32);
  EXPECT_TRUE(EqualSecrets(secret, std::string(secret)));
  EXPECT_FALSE(EqualSecrets(secret, secret.substr(1)));
  EXPECT_FALSE(EqualSecrets(secret, ""));
  EXPECT_TRUE(EqualSecrets("", ""));
  for (size_t i = 0; i < secret.size(); ++i) {
    std::string other = secret;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_FALSE(EqualSecrets(secret, other)) << i;
  }
}

}  // namespace
}  // namespace sluice
