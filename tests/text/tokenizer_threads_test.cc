// One tokenizer, many threads: a binary of its own, since ThreadSanitizer need
// not see the rest.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/text/tokenizer.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

TEST(TokenizerTest, ManyThreadsEncodeAtOnce) {
  const auto tokenizer = TinyTokenizer();
  std::mt19937_64 random(6);
  std::vector<std::string> texts;
  std::vector<Ids> expected;
  for (int i = 0; i < 200; ++i) {
    texts.push_back(RandomText(random, 30));
    expected.push_back(*tokenizer->Encode(texts.back(), kRaw));
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < texts.size(); ++i) {
        wrong += *tokenizer->Encode(texts[i], kRaw) == expected[i] ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace sluice::testing
