#include "common/tools/chat/edit_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice::chat {
namespace {

using ::testing::ElementsAre;

// Returns the text with | at the cursor.
std::string Shown(const EditBuffer& buffer) {
  std::string text = buffer.text();
  return text.insert(buffer.cursor(), "|");
}

EditBuffer BufferOf(const std::string& text) {
  EditBuffer buffer;
  buffer.Set(text);
  return buffer;
}

TEST(EditBufferTest, TheCursorGoesOverWholeCharacters) {
  EditBuffer buffer = BufferOf("aé漢e\u0301");
  buffer.Left();  // an accent goes with its letter
  EXPECT_EQ(Shown(buffer), "aé漢|e\u0301");
  buffer.Left();
  buffer.EraseBefore();
  EXPECT_EQ(Shown(buffer), "a|漢e\u0301");
  buffer.Right();
  buffer.EraseBehind();
  EXPECT_EQ(Shown(buffer), "a漢|");
  buffer.Right();
  EXPECT_EQ(Shown(buffer), "a漢|");
}

TEST(EditBufferTest, UpAndDownKeepTheColumn) {
  EditBuffer buffer = BufferOf("abcd\ne\nfghi");
  EXPECT_TRUE(buffer.Up());
  EXPECT_EQ(Shown(buffer), "abcd\ne|\nfghi");
  EXPECT_TRUE(buffer.Up());
  EXPECT_EQ(Shown(buffer), "a|bcd\ne\nfghi");
  EXPECT_FALSE(buffer.Up());
  EXPECT_TRUE(buffer.Down());
  EXPECT_TRUE(buffer.Down());
  EXPECT_EQ(Shown(buffer), "abcd\ne\nf|ghi");
  EXPECT_FALSE(buffer.Down());
}

TEST(EditBufferTest, WhatIsErasedByWordsComesBack) {
  EditBuffer buffer = BufferOf("one two");
  buffer.EraseWord();
  EXPECT_EQ(Shown(buffer), "one |");
  buffer.LineBegin();
  buffer.Yank();
  EXPECT_EQ(Shown(buffer), "two|one ");
  buffer.EraseToLineEnd();
  EXPECT_EQ(Shown(buffer), "two|");
  buffer.EraseToLineBegin();
  EXPECT_EQ(Shown(buffer), "|");
}

TEST(EditBufferTest, ControlCharactersAreNoText) {
  EditBuffer buffer;
  buffer.Insert("a\x1b[2Jb\nc\x07");
  EXPECT_EQ(Shown(buffer), "a[2Jb\nc|");
}

TEST(EditBufferTest, APromptIsWholeUnlessABackslashOrABlockAsksForMore) {
  EXPECT_TRUE(IsWholePrompt("a"));
  EXPECT_FALSE(IsWholePrompt("a\\"));
  EXPECT_TRUE(IsWholePrompt("a\\\nb"));
  EXPECT_FALSE(IsWholePrompt("\"\"\"a\nb"));
  EXPECT_TRUE(IsWholePrompt("\"\"\"a\nb\"\"\""));
  EXPECT_TRUE(IsWholePrompt("\"\"\"doc\"\"\"\nimport x"));
  EXPECT_EQ(PromptOf("\"\"\"\na\n\nb\n\"\"\""), "a\n\nb");
  EXPECT_EQ(PromptOf("\"\"\"doc\"\"\"\nimport x"), "\"\"\"doc\"\"\"\nimport x");
  EXPECT_EQ(PromptOf("\"\"\"\"\"\""), "");
  EXPECT_EQ(PromptOf("\"\"\""), "\"\"\"");
}

TEST(EditBufferTest, RowsAreAsWideAsTheTerminal) {
  EditBuffer buffer = BufferOf("abcdef\ng漢");
  Layout layout = LayOut("> ", buffer, 5, 10);
  EXPECT_THAT(layout.rows, ElementsAre("> abc", "def", "  g漢", ""));
  EXPECT_EQ(layout.cursor_row, 3u);  // a full row's end is the next row's begin
  EXPECT_EQ(layout.cursor_column, 0);
  buffer.Left();
  layout = LayOut("> ", buffer, 5, 10);
  EXPECT_EQ(layout.cursor_row, 2u);
  EXPECT_EQ(layout.cursor_column, 3);
}

TEST(EditBufferTest, RowsFarFromTheCursorAreLeftOut) {
  EditBuffer buffer = BufferOf("a\nb\nc\nd");
  EXPECT_THAT(LayOut("> ", buffer, 9, 2).rows, ElementsAre("  c", "  d"));
  buffer.Up();
  buffer.Up();
  buffer.Up();
  const Layout layout = LayOut("> ", buffer, 9, 2);
  EXPECT_THAT(layout.rows, ElementsAre("> a", "  b"));
  EXPECT_EQ(layout.cursor_row, 0u);
}

}  // namespace
}  // namespace sluice::chat
