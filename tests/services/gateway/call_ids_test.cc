// Ids that clients see tell nothing of the seeds that others get.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "services/gateway/handlers/prepare.h"

namespace sluice::gateway {
namespace {

uint64_t WordOf(const std::string& ids) {
  return std::stoull(ids.substr(5, 16), nullptr, 16);  // "call_", 16 digits
}

// The word of std::mt19937_64's state that gave `y`.
uint64_t Untempered(uint64_t y) {
  y ^= y >> 43;
  y ^= (y << 37) & 0xfff7eee000000000;
  uint64_t x = y;
  for (int i = 0; i < 4; ++i) x = y ^ ((x << 17) & 0x71d67fffeda60000);
  y = x;
  for (int i = 0; i < 3; ++i) x = y ^ ((x >> 29) & 0x5555555555555555);
  return x;
}

// What follows `words`, if they are a Mersenne Twister's.
uint64_t NextOf(const std::vector<uint64_t>& words) {
  std::ostringstream state;
  for (const uint64_t word : words) state << Untempered(word) << ' ';
  state << words.size();
  std::mt19937_64 twister;
  std::istringstream(state.str()) >> twister;
  return twister();
}

TEST(CallIdsTest, TheOracleSeesThroughAMersenneTwister) {
  std::mt19937_64 twister(7);
  std::vector<uint64_t> words(std::mt19937_64::state_size);
  for (uint64_t& word : words) word = twister();
  EXPECT_EQ(NextOf(words), twister());
}

TEST(CallIdsTest, TheNextWordCannotBeToldFromThoseBefore) {
  std::vector<uint64_t> words(std::mt19937_64::state_size);
  for (uint64_t& word : words) word = WordOf(NewCallIds());
  EXPECT_NE(NextOf(words), WordOf(NewCallIds()));
}

}  // namespace
}  // namespace sluice::gateway
