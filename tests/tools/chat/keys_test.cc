#include "common/tools/chat/keys.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace sluice::chat {
namespace {

using Kind = Key::Kind;

// Returns the keys of `bytes`, which come one by one or together.
std::vector<Key> KeysOf(std::string_view bytes, bool one_by_one) {
  KeyReader reader;
  if (!one_by_one) return reader.Feed(bytes);
  std::vector<Key> keys;
  for (const char& byte : bytes) {
    for (Key& key : reader.Feed({&byte, 1})) keys.push_back(std::move(key));
  }
  return keys;
}

void ExpectKey(std::string_view bytes, Kind kind, std::string_view text = "") {
  for (const bool one_by_one : {false, true}) {
    const std::vector<Key> keys = KeysOf(bytes, one_by_one);
    ASSERT_EQ(keys.size(), 1u) << bytes;
    EXPECT_EQ(keys[0].kind, kind) << bytes;
    EXPECT_EQ(keys[0].text, text);
  }
}

TEST(KeysTest, SequencesOfTerminalsAreKeys) {
  ExpectKey("\x1b[A", Kind::kUp);
  ExpectKey("\x1bOB", Kind::kDown);
  ExpectKey("\x1b[1;5D", Kind::kWordLeft);
  ExpectKey("\x1b[3~", Kind::kDelete);
  ExpectKey("\x1b\r", Kind::kNewLine);
  ExpectKey("\x1b[13;2u", Kind::kNewLine);
  ExpectKey("\r", Kind::kEnter);
  ExpectKey("\n", Kind::kEnter);
  ExpectKey("\x03", Kind::kInterrupt);
  ExpectKey("\x7f", Kind::kBackspace);
}

TEST(KeysTest, CharactersOfSeveralBytesAreWhole) {
  ExpectKey("\xc3\xa9", Kind::kText, "é");
  ExpectKey("漢", Kind::kText, "漢");
}

TEST(KeysTest, WhatIsPastedHasItsNewLinesAndNoKeys) {
  ExpectKey("\x1b[200~a\rb\r\nc\x1b[A\x03\x1b[201~", Kind::kPaste,
            "a\nb\nc\x1b[A\x03");
}

TEST(KeysTest, UnknownSequencesAreLeftOutWhole) {
  for (const char* bytes : {"\x1b[99~x", "\x1b[1;9Zx", "\x1b[<0;1;1Mx",
                            "\x1bqx", "\x02\x1b[?1;2cx"}) {
    const std::vector<Key> keys = KeysOf(bytes, true);
    ASSERT_FALSE(keys.empty());
    EXPECT_EQ(keys.back().text, "x") << bytes;
    EXPECT_EQ(keys.size(), bytes[0] == '\x02' ? 2u : 1u);
  }
  // Numbers without an end do not hold all keys for ever.
  EXPECT_EQ(KeysOf("\x1b[" + std::string(32, '1') + "x", true).size(), 1u);
}

}  // namespace
}  // namespace sluice::chat
