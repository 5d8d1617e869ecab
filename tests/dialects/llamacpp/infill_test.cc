// The prompts of infills.
#include "common/serving/infill.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>

#include "tests/dialects/llamacpp/llamacpp_fixture.h"

namespace sluice::llamacpp {
namespace {

using serving::kFakeBos;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The fake's ids below 32 play the tokens.
std::unique_ptr<serving::FakeText> TextWith(
    std::map<std::string, TokenId> names) {
  auto text = std::make_unique<serving::FakeText>();
  text->names = std::move(names);
  return text;
}

class InfillTest : public LlamacppTest {
 protected:
  void Use(std::map<std::string, TokenId> names) {
    model_.text = TextWith(std::move(names));
  }
};

TEST_F(InfillTest, PutsPrefixAndSuffixBehindTheirTokens) {
  Use({{"<|fim_prefix|>", 1},
       {"<|fim_suffix|>", 2},
       {"<|fim_middle|>", 3},
       {"<|endoftext|>", 9}});
  const auto on = Ask(R"({"input_prefix":"p","input_suffix":"s","prompt":"m",
    "input_extra":[{"filename":"f","text":"x"}],"n_predict":2})",
                      kInfillPath);
  const GenerateRequest request = engine_.request(0);
  EXPECT_THAT(request.prompt_tokens,
              ElementsAre(kFakeBos, 'x', 1, 'p', 2, 's', 3, 'm'));
  EXPECT_THAT(request.sampling.stop_token_ids, ElementsAre(9));
  engine_.Start(0);
  engine_.Text(0, "hi");
  engine_.End(0, FinishReason::kLength);
  EXPECT_EQ(on->Body()["content"], "hi");
}

TEST_F(InfillTest, FilesComeBehindTheirNamesWhereTheModelHasTokensForThat) {
  Use({{"<fim_prefix>", 1},
       {"<fim_suffix>", 2},
       {"<fim_middle>", 3},
       {"<|repo_name|>", 4},
       {"<|file_sep|>", 5}});
  Ask(R"({"input_prefix":"p","input_suffix":"s",
    "input_extra":[{"filename":"f","text":"x"}]})",
      kInfillPath);
  std::string text;
  for (const TokenId token : engine_.request(0).prompt_tokens) {
    text += token < 32 && token != '\n' ? std::to_string(token)
                                        : std::string(1, char(token));
  }
  EXPECT_EQ(text.substr(1), "4myproject\n5f\nx5filename\n1p2s3");
  EXPECT_THAT(engine_.request(0).sampling.stop_token_ids, ElementsAre(4, 5));
}

TEST_F(InfillTest, TheKeysOfTheModelsFileComeBeforeNames) {
  Use({{"<PRE>", 1}, {"<SUF>", 2}, {"<MID>", 3}});
  model_.infill_ids = {{"fim_pre", 11}, {"fim_mid", 13}, {"fim_pad", 14}};
  Ask(R"({"input_prefix":"p","input_suffix":"s"})", kInfillPath);
  EXPECT_THAT(engine_.request(0).prompt_tokens,
              ElementsAre(kFakeBos, 11, 'p', 2, 's', 13));
  EXPECT_THAT(engine_.request(0).sampling.stop_token_ids, ElementsAre(14));
}

TEST_F(InfillTest, AModelWithoutTheTokensIsRefusedByName) {
  const std::string body = R"({"input_prefix":"p","input_suffix":"s"})";
  EXPECT_THAT(Refusal(body, kInfillPath)["message"].get<std::string>(),
              HasSubstr("its vocabulary has no token for the prefix"));
  Use({{"<PRE>", 1}, {"<SUF>", 2}});
  EXPECT_THAT(Refusal(body, kInfillPath)["message"].get<std::string>(),
              HasSubstr("no token for the middle"));
  EXPECT_EQ(engine_.submitted(), 0u);
}

TEST_F(InfillTest, PrefixAndSuffixMustBeThere) {
  Use({{"<PRE>", 1}, {"<SUF>", 2}, {"<MID>", 3}});
  for (const char* body :
       {R"({"input_suffix":"s"})", R"({"input_prefix":"p"})",
        R"({"input_prefix":1,"input_suffix":"s"})",
        R"({"input_prefix":"p","input_suffix":"s","input_extra":{}})",
        R"({"input_prefix":"p","input_suffix":"s","input_extra":[{}]})"}) {
    EXPECT_EQ(Refusal(body, kInfillPath)["code"], 400) << body;
  }
  // Empty texts are texts.
  Ask(R"({"input_prefix":"","input_suffix":""})", kInfillPath);
  EXPECT_THAT(engine_.request(0).prompt_tokens, ElementsAre(kFakeBos, 1, 2, 3));
}

}  // namespace
}  // namespace sluice::llamacpp
