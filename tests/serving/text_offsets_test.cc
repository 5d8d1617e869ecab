// text[offset:] begins with the token, whatever the tokens are parts of.
#include "common/serving/text_offsets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/dialects/openai/answer.h"
#include "common/serving/answer_format.h"
#include "tests/serving/fake_text.h"

namespace sluice::serving {
namespace {

using ::testing::ElementsAre;

constexpr const char* kParty = "\xf0\x9f\x8e\x89";

std::vector<int64_t> Offsets(TextOffsets offsets,
                             const std::vector<TokenId>& tokens) {
  std::vector<int64_t> out;
  for (const TokenId token : tokens) out.push_back(offsets.Next(token));
  return out;
}

std::vector<int64_t> OfCompletion(const std::string& bytes) {
  const FakeText text;
  return Offsets(TextOffsets(text, {}, true), Bytes(bytes));
}

std::vector<int64_t> OfEcho(const std::string& words,
                            const std::vector<TokenId>& tokens) {
  const FakeText text;
  return Offsets(TextOffsets(text, tokens, true,
                             TextOffsets::Echo{words, tokens.size(), true}),
                 tokens);
}

TEST(TextOffsetsTest, PartsOfACharacterBeginWhereItDoes) {
  EXPECT_THAT(OfCompletion(Cat("a", kParty, "b", "\xc3\xa9", "c")),
              ElementsAre(0, 1, 1, 1, 1, 2, 3, 3, 4));
}

TEST(TextOffsetsTest, AnIncompleteCharacterIsOneOfTheText) {
  // U+FFFD, a; then two U+FFFD of bytes that begin no character.
  EXPECT_THAT(OfCompletion("\xf0\x9f"
                           "a\x80\x80"
                           "b"),
              ElementsAre(0, 0, 1, 2, 3, 4));
  EXPECT_THAT(OfCompletion("\xe0\x80z"), ElementsAre(0, 1, 2));
}

// The law, over all cuts of texts into tokens of one byte: an offset is the
// number of characters that were begun before the token and end before it.
TEST(TextOffsetsTest, TheTextAtAnOffsetBeginsWithTheTokensCharacter) {
  const FakeText text;
  for (const std::string& bytes :
       {std::string("plain"), Cat("x", kParty, kParty, " y"),
        std::string("\xff\xfe ok \xe2\x82\xac\xe2\x82 end \xf0\x9f\x8e")}) {
    const std::string shown = *text.Decode(Bytes(bytes), true);
    Detokenizer decoder = text.NewDecoder({}, {});
    std::string whole;
    for (const TokenId token : Bytes(bytes)) whole += decoder.Push(token);
    whole += decoder.Finish();
    const auto offsets = OfCompletion(bytes);
    for (size_t i = 0; i < bytes.size(); ++i) {
      // The characters of the text that all tokens up to this one make.
      Detokenizer until = text.NewDecoder({}, {});
      std::string text_until;
      for (size_t k = 0; k <= i; ++k) {
        text_until += until.Push(static_cast<unsigned char>(bytes[k]));
      }
      text_until += until.Finish();
      EXPECT_EQ(offsets[i], CountCharacters(text_until) - 1) << i;
    }
  }
}

TEST(TextOffsetsTest, HiddenTokensTakeNoPlace) {
  const FakeText text;
  const std::vector<TokenId> tokens = {'a', kFakeTurn, 'b'};
  EXPECT_THAT(Offsets(TextOffsets(text, {}, true), tokens),
              ElementsAre(0, 1, 1));
  EXPECT_THAT(Offsets(TextOffsets(text, {}, false), tokens),
              ElementsAre(0, 1, 7));
}

TEST(TextOffsetsTest, AnEchoIsTheClientsOwnText) {
  EXPECT_THAT(OfEcho("Hi", {kFakeBos, 'H', 'i'}), ElementsAre(0, 0, 1));
  // A special token that the prompt spells is in the text.
  EXPECT_THAT(OfEcho("a<turn>b", {kFakeBos, 'a', kFakeTurn, 'b'}),
              ElementsAre(0, 0, 1, 7));
  EXPECT_THAT(OfEcho(kParty + std::string("!"), Bytes(Cat(kParty, "!"))),
              ElementsAre(0, 0, 0, 0, 1));
  // A space that the vocabulary puts in front.
  EXPECT_THAT(OfEcho("Hi", {' ', 'H', 'i'}), ElementsAre(0, 0, 1));
}

TEST(TextOffsetsTest, ANormalizedEchoIsFoundAgain) {
  // "e" and an accent, which the tokens have as one character.
  std::vector<TokenId> tokens = Bytes("a\xc3\xa9tbc");
  EXPECT_THAT(OfEcho("ae\xcc\x81tbc", tokens), ElementsAre(0, 1, 1, 3, 4, 5));
}

TEST(TextOffsetsTest, ACompletionBeginsBehindTheEcho) {
  const FakeText text;
  std::vector<TokenId> prompt = Bytes(kParty);
  prompt.insert(prompt.begin(), kFakeBos);
  for (const bool as_given : {true, false}) {
    TextOffsets offsets(text, prompt, true,
                        TextOffsets::Echo{kParty, prompt.size(), as_given});
    for (const TokenId token : prompt) EXPECT_EQ(offsets.Next(token), 0);
    EXPECT_EQ(offsets.Next('x'), 1);
    EXPECT_EQ(offsets.Next('y'), 2);
  }
}

// "b" is another token that spells "a".
class TwinText : public FakeText {
 public:
  std::string TokenBytes(TokenId token) const override {
    return FakeText::TokenBytes(token == 'b' ? 'a' : token);
  }
};

// A completion's logprobs as JSON.
class CompletionLogprobsTest : public ::testing::Test {
 protected:
  Json Logprobs(const std::vector<TokenResult>& tokens) {
    AnswerInfo info;
    info.logprobs = true;
    Delta delta;
    delta.logprobs = tokens;
    const auto format = openai::MakeCompletionFormat(text_, info);
    const Json answer = *ParseJson(format->Whole({delta}, {}));
    return answer["choices"][0]["logprobs"];
  }

  const TwinText text_{};
};

TEST_F(CompletionLogprobsTest, PartsOfACharacterAreNamedByTheirBytes) {
  TokenResult part{0xf0, TokenLogprob{0xf0, -2.017f, 3}, {}};
  for (int i = 0; i < 3; ++i) {
    part.top_logprobs.push_back({0x80 + i, -1.0f - static_cast<float>(i), i});
  }
  const Json logprobs = Logprobs({part});
  EXPECT_EQ(DumpJson(logprobs["tokens"]), R"(["bytes:\\xf0"])");
  EXPECT_EQ(logprobs["token_logprobs"][0], -2.017);
  EXPECT_EQ(DumpJson(logprobs["top_logprobs"][0]),
            R"({"bytes:\\x80":-1.0,"bytes:\\x81":-2.0,"bytes:\\x82":-3.0,)"
            R"("bytes:\\xf0":-2.017})");
}

TEST_F(CompletionLogprobsTest, TokensOfOneTextHaveAnEntryEach) {
  const std::vector<TokenLogprob> tops = {{'a', -0.5f, 0}, {'b', -1.5f, 1}};
  const auto of = [&](TokenId token, float logprob,
                      const std::vector<TokenLogprob>& top) {
    return DumpJson(Logprobs(
        {{token, TokenLogprob{token, logprob, 1}, top}})["top_logprobs"][0]);
  };
  EXPECT_EQ(of('a', -0.5f, tops), R"({"a":-0.5,"token_id:98":-1.5})");
  EXPECT_EQ(of('b', -1.5f, tops), R"({"token_id:97":-0.5,"a":-1.5})");
  // Neither is the token itself: the likelier one has the name.
  EXPECT_EQ(of('x', -3.0f, tops), R"({"a":-0.5,"token_id:98":-1.5,"x":-3.0})");
}

}  // namespace
}  // namespace sluice::serving
