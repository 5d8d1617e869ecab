#include "common/text/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice {
namespace {

TEST(Utf8Test, FindsTheFirstInvalidByte) {
  EXPECT_EQ(FirstInvalidUtf8("plain é 中 😀"), std::string_view::npos);
  EXPECT_EQ(FirstInvalidUtf8("ab\xC3"), 2u);            // cut off
  EXPECT_EQ(FirstInvalidUtf8("\x80"), 0u);              // continuation
  EXPECT_EQ(FirstInvalidUtf8("a\xC0\xAF"), 1u);         // overlong
  EXPECT_EQ(FirstInvalidUtf8("\xED\xA0\x80"), 0u);      // surrogate
  EXPECT_EQ(FirstInvalidUtf8("\xF4\x90\x80\x80"), 0u);  // over U+10FFFF
}

TEST(Utf8Test, ReplacesMaximalSubparts) {
  EXPECT_EQ(Utf8Lossy("a\xF0\x9F\x98z"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(Utf8Lossy("\xE2\x28\xA1"), "\xEF\xBF\xBD(\xEF\xBF\xBD");
  EXPECT_EQ(Utf8Lossy("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(Utf8Lossy("\xE4\xB8"), "\xEF\xBF\xBD");
}

TEST(Utf8Test, AStreamHoldsBackOnlyAnIncompleteCharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("a\xE4"), "a");
  EXPECT_TRUE(stream.holds());
  EXPECT_EQ(stream.Push("\xB8"), "");
  EXPECT_EQ(stream.Push("\xAD!"), "中!");
  EXPECT_FALSE(stream.holds());
  EXPECT_EQ(stream.Finish(), "");
}

TEST(Utf8Test, AStreamCutAnywhereGivesTheSameText) {
  std::mt19937_64 random(1);
  constexpr std::string_view kBytes = "a\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\xFF";
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (uint64_t left = random() % 40; left > 0; --left) {
      bytes.push_back(kBytes[random() % kBytes.size()]);
    }
    Utf8Stream stream;
    std::string joined;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = 1 + random() % 3;
      const std::string piece =
          stream.Push(std::string_view(bytes).substr(at, size));
      EXPECT_EQ(FirstInvalidUtf8(piece), std::string_view::npos);
      joined += piece;
      at += size;
    }
    joined += stream.Finish();
    EXPECT_EQ(joined, Utf8Lossy(bytes));
  }
}

TEST(Utf8Test, EveryScalarValueSurvivesARoundTrip) {
  for (char32_t value = 0; value < 0x110000; value += 7) {
    if (value >= 0xD800 && value < 0xE000) continue;
    std::string text;
    AppendUtf8(value, text);
    const Utf8Unit unit = NextUtf8(text);
    ASSERT_EQ(unit.kind, Utf8Unit::Kind::kCharacter);
    ASSERT_EQ(unit.value, value);
    ASSERT_EQ(unit.size, text.size());
  }
}

TEST(Utf8StreamTest, TellsWhenBytesLeaveACharacterIncomplete) {
  Utf8Stream stream;
  EXPECT_FALSE(stream.BreaksOff("a"));
  stream.Push("\xf0\x9f");
  EXPECT_FALSE(stream.BreaksOff(""));
  EXPECT_FALSE(stream.BreaksOff("\x8e\x89"));
  EXPECT_FALSE(
      stream.BreaksOff("\x8e"
                       "a"))
      << "its first byte belongs to the character";
  EXPECT_TRUE(stream.BreaksOff("a"));
  EXPECT_TRUE(stream.BreaksOff("\xf0\x9f"));
  stream.Push("a");
  stream.Push("\xe0");
  EXPECT_TRUE(stream.BreaksOff("\x80")) << "no continuation of this lead";
  EXPECT_FALSE(stream.BreaksOff("\xa0"));
}

}  // namespace
}  // namespace sluice
