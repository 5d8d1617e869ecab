// Tokens that files beside the vocabulary name.

#include "common/text/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "common/base/json.h"
#include "common/text/text_source.h"
#include "common/text/tokenizer.h"
#include "common/text/vocabulary_spec.h"
#include "tests/text/text_fixtures.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The tokenizer.json of all bytes, by id, and of "<s>", which is special.
std::string Bytes() {
  VocabularySpec spec;
  spec.byte_level = true;
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(
        ByteLevelText(std::string(1, static_cast<char>(byte))));
    spec.kinds.push_back(TokenKind::kNormal);
  }
  spec.tokens.emplace_back("<s>");
  spec.kinds.push_back(TokenKind::kControl);
  return *ToTokenizerJson(spec);
}

class AddedTokensTest : public ::testing::Test {
 protected:
  AddedTokensTest() { dir_.Write("tokenizer.json", Bytes()); }

  Ids Encode(const std::string& text) const {
    const auto tokenizer = Tokenizer::Load(dir_.path());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return *(*tokenizer)->Encode(text, kRaw);
  }
  std::string Refusal() const {
    return Message(Tokenizer::Load(dir_.path()).status());
  }

  const TempDir dir_;
};

TEST_F(AddedTokensTest, ATokenOfTheDecoderHasItsIdAlsoBehindAGap) {
  dir_.Write("tokenizer_config.json", R"({"added_tokens_decoder": {
      "300": {"content": "<new>", "special": false},
      "310": {"content": "<|end|>", "special": true},
      "256": {"content": "<s>", "special": true},
      "none": {"content": "<x>"}, "5": 7}})");
  EXPECT_THAT(Encode("a<new><s><|end|>"), ElementsAre('a', 300, 256, 310));
  const auto tokenizer = Tokenizer::Load(dir_.path());
  EXPECT_TRUE((*tokenizer)->IsSpecial(310));
  EXPECT_FALSE((*tokenizer)->IsSpecial(300));
  EXPECT_EQ(*(*tokenizer)->Decode(Ids{'a', 300, 310}, false), "a<new><|end|>");
  // added_tokens.json is of older files: the decoder counts.
  dir_.Write("added_tokens.json", R"({"<old>": 301})");
  EXPECT_EQ(Encode("<old>").size(), 5u);
}

TEST_F(AddedTokensTest, OlderFilesNameIdsAloneAndMarksOfChatsAreSpecial) {
  dir_.Write("added_tokens.json",
             R"({"<|im_start|>": 257, "<|im_end|>": 258, "<tool>": 259,)"
             R"( "[END]": 260, "none": "x"})");
  dir_.Write("special_tokens_map.json", R"({"eos_token": "[END]"})");
  EXPECT_THAT(Encode("<|im_start|>a<tool><|im_end|>[END]"),
              ElementsAre(257, 'a', 259, 258, 260));
  const auto tokenizer = Tokenizer::Load(dir_.path());
  EXPECT_TRUE((*tokenizer)->IsSpecial(257));
  EXPECT_FALSE((*tokenizer)->IsSpecial(259));
  EXPECT_THAT((*tokenizer)->eos_ids(), ElementsAre(260));
}

TEST_F(AddedTokensTest, ASpecialTokenMayBeAnOrdinaryOneOfTheVocabulary) {
  dir_.Write("tokenizer_config.json",
             R"({"eos_token": "!", "pad_token": "<pad>"})");
  EXPECT_THAT(Encode("a!"), ElementsAre('a', '!'));
  const auto tokenizer = Tokenizer::Load(dir_.path());
  EXPECT_TRUE((*tokenizer)->IsSpecial('!'));
  // No token of that text: transformers gives it a row that the model lacks.
  EXPECT_EQ(Encode("<pad>").size(), 5u);
}

TEST_F(AddedTokensTest, AnIdThatAnotherTokenHasIsRefused) {
  dir_.Write("tokenizer_config.json",
             R"({"added_tokens_decoder": {"97": {"content": "<new>"}}})");
  EXPECT_THAT(Refusal(), HasSubstr("'<new>' has the id 97"));
}

TEST_F(AddedTokensTest, FilesThatAddNothingLeaveTheTextAsItIs) {
  const std::string text = Bytes();
  EXPECT_EQ(*WithAddedTokens(text, {}), text);
  EXPECT_EQ(*WithAddedTokens(text, {{"<s>", 256, true}}), text);
  EXPECT_EQ(*WithAddedTokens("{", {{"<t>", 257}}), "{");
  EXPECT_FALSE(WithAddedTokens("{}", {{"<t>", 257}}).ok());
  // A key of this name within the vocabulary is no list.
  const std::string odd =
      R"({"model": {"vocab": {"added_tokens": 0}}, "added_tokens": []})";
  EXPECT_THAT(*WithAddedTokens(odd, {{"<t>", 1}}),
              HasSubstr(R"("content":"<t>","id":1)"));
}

TEST(VocabJsonTest, AVocabularyWithMergesIsSplitByItsClass) {
  const TempDir dir;
  dir.Write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "\u0120": 3, "1": 4,
      "11": 5, "<|end|>": 6})");
  dir.Write("merges.txt", "#version: 0.2\na b\r\n1 1\n");
  const auto encode = [&](const char* config) {
    dir.Write("tokenizer_config.json", config);
    const auto tokenizer = Tokenizer::Load(dir.path());
    if (!tokenizer.ok()) return Ids();
    return *(*tokenizer)->Encode("ab 11<|end|>", kRaw);
  };
  EXPECT_THAT(encode(R"({"tokenizer_class": "GPT2Tokenizer",)"
                     R"( "eos_token": "<|end|>"})"),
              ElementsAre(2, 3, 5, 6));
  // Qwen's digits stand alone.
  EXPECT_THAT(encode(R"({"tokenizer_class": "Qwen2TokenizerFast",)"
                     R"( "eos_token": "<|end|>"})"),
              ElementsAre(2, 3, 4, 4, 6));
  EXPECT_THAT(encode(R"({"tokenizer_class": "OtherTokenizer"})"),
              ElementsAre());
  dir.Write("vocab.json", R"({"a": 0, "b": 2})");
  EXPECT_THAT(encode(R"({"tokenizer_class": "GPT2Tokenizer"})"), ElementsAre());
}

TEST(TextSourceTest, FurtherTemplatesAreFilesOfAFolder) {
  const TempDir dir;
  dir.Write("tokenizer.json", Bytes());
  dir.Write("chat_template.jinja", "plain");
  ASSERT_EQ(::mkdir((dir.path() + "/additional_chat_templates").c_str(), 0700),
            0);
  dir.Write("additional_chat_templates/tool_use.jinja", "tools");
  const auto templates = ReadChatTemplates(dir.path());
  ASSERT_TRUE(templates.ok()) << templates.status();
  ASSERT_EQ(templates->size(), 2u);
  EXPECT_EQ((*templates)[0].name, "default");
  EXPECT_EQ((*templates)[1].name, "tool_use");
  EXPECT_EQ((*templates)[1].source, "tools");
}

}  // namespace
}  // namespace sluice::testing
