#include <gtest/gtest.h>

#include "common/text/text_source.h"
#include "common/text/tokenizer.h"
#include "common/text/vocabulary_formats.h"
#include "common/text/vocabulary_spec.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

TEST(VocabularySpecTest, TheByteAlphabetIsGpt2s) {
  EXPECT_EQ(ByteLevelText("a ~\n"), "aĠ~Ċ");
  EXPECT_EQ(ByteLevelText("\x7F\xA0\xAD\xC3"), "ġłŃÃ");
}

TEST(VocabularySpecTest, ScoresBecomeMergesByFallingScore) {
  const std::vector<std::string> tokens = {"a",   "b", "ab", "aab",
                                           "<s>", "<", "s>"};
  std::vector<TokenKind> kinds(tokens.size(), TokenKind::kNormal);
  kinds[4] = TokenKind::kControl;
  const std::vector<Merge> merges =
      MergesFromScores(tokens, kinds, {0, 0, -2, -1, 0, 0, 0});
  EXPECT_EQ(merges, (std::vector<Merge>{{"a", "ab"}, {"a", "b"}}));
}

TEST(VocabularySpecTest, ASpecWithATokenThatIsNotUtf8IsRefused) {
  VocabularySpec spec;
  spec.tokens = {"a", "\xFF"};
  spec.kinds.assign(2, TokenKind::kNormal);
  const auto json = ToTokenizerJson(spec);
  EXPECT_EQ(json.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(json.status()).find("token 1"), std::string::npos);
}

TEST(VocabularySpecTest, IdsOutsideTheVocabularyAreRefused) {
  VocabularySpec spec;
  spec.tokens = {"a"};
  spec.kinds.assign(1, TokenKind::kNormal);
  spec.bos = 1;
  EXPECT_FALSE(ToTokenizerJson(spec).ok());
  spec.bos = -1;
  EXPECT_FALSE(ToTokenizerJson(spec).ok());
}

TEST(VocabularyFormatsTest, RanksAreToldFromOtherFiles) {
  EXPECT_TRUE(LooksLikeTiktoken("IQ== 0\nIg== 1\n"));
  EXPECT_FALSE(LooksLikeTiktoken("\x0A\x0E\x0A\x05<unk>"));
  EXPECT_FALSE(LooksLikeTiktoken(""));
}

TEST(VocabularyFormatsTest, RanksOfAnUnknownFamilyAreNamed) {
  const auto source = FromTiktoken("IQ== 0\nIg== 1\n");
  EXPECT_EQ(source.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(Message(source.status()).find("2 tokens"), std::string::npos);
}

TEST(VocabularyFormatsTest, RandomBytesAreNoSentencePieceModel) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes(random() % 60, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const auto source = FromSentencePiece(bytes);
    EXPECT_TRUE(!source.ok() || !source->tokenizer_json.empty());
  }
}

TEST(VocabularyFormatsTest, TheSameVocabularyFromTwoFormatsIsTheSame) {
  const Tokenizer* gguf = OwnTokenizer("pieces.gguf");
  const Tokenizer* pieces = OwnTokenizer("pieces.model");
  ASSERT_EQ(gguf->vocab_size(), pieces->vocab_size());
  std::mt19937_64 random(9);
  for (int round = 0; round < 500; ++round) {
    const std::string text = RandomText(random, 40);
    EXPECT_EQ(*gguf->Encode(text, {}), *pieces->Encode(text, {})) << text;
  }
  EXPECT_EQ(gguf->bos_id(), 1);
  EXPECT_EQ(pieces->bos_id(), 1);
}

}  // namespace
}  // namespace sluice::testing
