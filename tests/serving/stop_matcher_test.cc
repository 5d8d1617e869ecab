#include "common/serving/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace sluice::serving {
namespace {

// The same rule, string by string over the whole text: what the matcher must
// show, whatever the cut.
struct Reference {
  Reference(const std::vector<std::string>& stops, std::string_view text) {
    size_t first_end = std::string::npos;
    for (size_t end = 1; end <= text.size() && !match_size; ++end) {
      for (const std::string& stop : stops) {
        if (!text.substr(0, end).ends_with(stop)) continue;
        match_size = std::max(match_size, stop.size());
        first_end = end;
      }
    }
    if (match_size > 0) {
      match = text.substr(first_end - match_size, match_size);
      shown = text.substr(0, first_end - match_size);
      included = text.substr(0, first_end);
    } else {
      shown = included = text;
    }
  }
  size_t match_size = 0;
  std::string match;
  std::string shown;
  std::string included;
};

// Of a text without a match: bytes at its end that may begin one.
size_t HeldBack(const std::vector<std::string>& stops, std::string_view text) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size(); ++n) {
      if (text.ends_with(stop.substr(0, n))) longest = std::max(longest, n);
    }
  }
  return longest;
}

std::string RandomWord(std::mt19937& random, size_t longest, int letters) {
  const size_t size = 1 + random() % longest;
  std::string word;
  for (size_t i = 0; i < size; ++i) {
    word += static_cast<char>('a' + random() % static_cast<unsigned>(letters));
  }
  return word;
}

// Pushes `text` in random pieces. After each, exactly what can no longer be
// part of a match is out.
void ExpectAsReference(const std::vector<std::string>& stops,
                       const std::string& text, bool include,
                       std::mt19937& random) {
  const Reference expected(stops, text);
  StopMatcher matcher(stops, include);
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    const size_t size = std::min<size_t>(1 + random() % 7, text.size() - at);
    shown += matcher.Push(std::string_view(text).substr(at, size));
    at += size;
    if (matcher.matched()) continue;
    const std::string_view so_far = std::string_view(text).substr(0, at);
    EXPECT_EQ(shown.size(), at - HeldBack(stops, so_far));
  }
  shown += matcher.Finish();
  EXPECT_EQ(matcher.match(), expected.match);
  EXPECT_EQ(matcher.matched(), expected.match_size > 0);
  EXPECT_EQ(shown, include ? expected.included : expected.shown);
}

TEST(GatewayStopMatcherLawTest, EveryCutShowsWhatStringByStringSearchShows) {
  std::mt19937 random(7);
  int matched = 0;
  for (int round = 0; round < 4000; ++round) {
    const int letters = 1 + static_cast<int>(random() % 3);
    std::vector<std::string> stops;
    const size_t count = 1 + random() % 6;
    for (size_t i = 0; i < count; ++i) {
      stops.push_back(RandomWord(random, 6, letters));
    }
    const std::string text = RandomWord(random, 40, letters + 1);
    SCOPED_TRACE(text);
    ExpectAsReference(stops, text, round % 2 == 0, random);
    matched += Reference(stops, text).match_size > 0 ? 1 : 0;
  }
  EXPECT_GT(matched, 500);
  EXPECT_LT(matched, 3900);
}

// lm-evaluation-harness' HumanEval sends eight and more.
TEST(GatewayStopMatcherLawTest, AThousandLongStringsAreFoundToo) {
  std::vector<std::string> stops;
  for (int i = 0; i < 1000; ++i) {
    stops.push_back(std::string(1000, 'x') + std::to_string(i) + "!");
  }
  const StopStrings shared(stops);
  for (const int wanted : {0, 7, 999}) {
    StopMatcher matcher(shared);
    const std::string text = "text" + std::string(5000, 'x');
    std::string shown = matcher.Push(text);
    EXPECT_EQ(shown.size(), text.size() - 1000);
    shown += matcher.Push(std::to_string(wanted) + "!more");
    EXPECT_EQ(shown.size(), text.size() - 1000);
    EXPECT_EQ(matcher.match(), stops[static_cast<size_t>(wanted)]);
  }
}

}  // namespace
}  // namespace sluice::serving
