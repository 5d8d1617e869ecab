#include "common/text/detokenizer.h"

#include <gtest/gtest.h>

#include "common/text/utf8.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

// Pushes `ids` one by one; every piece is whole characters.
std::string Streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip) {
  Detokenizer detokenizer(tokenizer, skip);
  std::string text;
  for (const TokenId id : ids) {
    const std::string piece = detokenizer.Push(id);
    EXPECT_EQ(FirstInvalidUtf8(piece), std::string_view::npos);
    text += piece;
  }
  return text + detokenizer.Finish();
}

void ExpectStreamIsDecode(const Tokenizer& tokenizer) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300 / kSlowdown; ++round) {
    Ids ids(random() % 40);
    for (TokenId& id : ids) {
      id = static_cast<TokenId>(random() %
                                static_cast<uint64_t>(tokenizer.vocab_size()));
    }
    for (const bool skip : {false, true}) {
      EXPECT_EQ(Streamed(tokenizer, ids, skip), *tokenizer.Decode(ids, skip));
    }
  }
}

TEST(DetokenizerTest, StreamedTextIsTheDecodedText) {
  ExpectStreamIsDecode(*TinyTokenizer());
  for (const auto& [name, tokenizer] : AllTokenizers()) {
    SCOPED_TRACE(name);
    ExpectStreamIsDecode(*tokenizer);
  }
}

TEST(DetokenizerTest, EncodedTextComesBack) {
  std::mt19937_64 random(3);
  for (const auto& [name, tokenizer] : AllTokenizers()) {
    // Word-level, lossy and normalizing vocabularies do not give text back.
    if (name == "llama3-tied" || name == "tokenizers/qwen3") {
      continue;
    }
    SCOPED_TRACE(name);
    for (int round = 0; round < 300 / kSlowdown; ++round) {
      const std::string text = RandomText(random, 30);
      const auto ids = tokenizer->Encode(text, kRaw);
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_EQ(Streamed(*tokenizer, *ids, true), text);
    }
  }
}

TEST(DetokenizerTest, HoldsBackAnIncompleteCharacter) {
  const auto tokenizer = TinyTokenizer();
  const Ids ids = *tokenizer->Encode("😀!", kRaw);
  ASSERT_EQ(ids.size(), 5u);
  Detokenizer detokenizer(*tokenizer, true);
  EXPECT_EQ(detokenizer.Push(ids[0]), "");
  EXPECT_EQ(detokenizer.Push(ids[1]), "");
  EXPECT_EQ(detokenizer.Push(ids[2]), "");
  EXPECT_EQ(detokenizer.Push(ids[3]), "😀");
  EXPECT_EQ(detokenizer.Push(ids[4]), "!");
}

TEST(DetokenizerTest, ATextThatEndsWithinACharacterEndsInAReplacement) {
  const auto tokenizer = TinyTokenizer();
  const Ids ids = *tokenizer->Encode("a😀", kRaw);
  Detokenizer detokenizer(*tokenizer, true);
  EXPECT_EQ(detokenizer.Push(ids[0]), "a");
  EXPECT_EQ(detokenizer.Push(ids[1]), "");
  EXPECT_EQ(detokenizer.Finish(), "\xEF\xBF\xBD");
}

TEST(DetokenizerTest, SpecialTokensAreSkippedOrShown) {
  const auto tokenizer = TinyTokenizer();
  const Ids ids = *tokenizer->Encode("<|im_start|>hi<think>", kRaw);
  EXPECT_EQ(Streamed(*tokenizer, ids, true), "hi<think>");
  EXPECT_EQ(Streamed(*tokenizer, ids, false), "<|im_start|>hi<think>");
}

TEST(DetokenizerTest, IdsThatDoNotExistGiveNothing) {
  const auto tokenizer = TinyTokenizer();
  Detokenizer detokenizer(*tokenizer, true);
  EXPECT_EQ(detokenizer.Push(-1), "");
  EXPECT_EQ(detokenizer.Push(tokenizer->vocab_size()), "");
  EXPECT_EQ(detokenizer.Push(1 << 30), "");
}

TEST(DetokenizerTest, OnlyTheFirstWordOfATextLosesItsSpace) {
  const Tokenizer* pieces = OwnTokenizer("pieces.model");
  const Ids ids = *pieces->Encode("The story", kRaw);
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(Streamed(*pieces, ids, true), "The story");
  EXPECT_EQ(Streamed(*pieces, {ids[1]}, true), "story");
  Detokenizer continued(*pieces, true, std::span(ids).first(1));
  EXPECT_EQ(continued.Push(ids[1]), " story");
  // A skipped BOS before it is not text.
  const Ids bos = {1};
  Detokenizer started(*pieces, true, bos);
  EXPECT_EQ(started.Push(ids[1]), "story");
}

}  // namespace
}  // namespace sluice::testing
