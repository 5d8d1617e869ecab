#include "services/cli/arguments.h"

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

TEST(ArgumentsTest, OptionsSwitchesAndWordsAreToldApart) {
  const auto parsed = Arguments::Parse(
      {"hello", "--top-k", "5", "--seed=7", "--echo", "--", "--word"},
      {"top-k", "seed"}, {"echo"});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->words(), (std::vector<std::string>{"hello", "--word"}));
  EXPECT_EQ(**parsed->Int("top-k"), 5);
  EXPECT_EQ(**parsed->Int("seed"), 7);
  EXPECT_TRUE(parsed->Has("echo"));
  EXPECT_FALSE(parsed->Int("max-tokens")->has_value());
}

TEST(ArgumentsTest, AnUnknownOptionIsNamed) {
  const auto parsed = Arguments::Parse({"--nope", "1"}, {"seed"}, {});
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(parsed.status()), "unknown option --nope");
}

TEST(ArgumentsTest, AnOptionWithoutItsValueIsNamed) {
  const auto parsed = Arguments::Parse({"--seed"}, {"seed"}, {});
  EXPECT_EQ(Message(parsed.status()), "--seed needs a value");
}

TEST(ArgumentsTest, TextThatIsNoNumberIsRefusedWithItsOption) {
  const auto parsed = Arguments::Parse({"--seed", "7x"}, {"seed"}, {});
  EXPECT_EQ(Message(parsed->Int("seed").status()), "--seed: '7x' is no number");
  EXPECT_EQ(**Arguments::Parse({"--p", "0.5"}, {"p"}, {})->Number("p"), 0.5);
}

}  // namespace
}  // namespace sluice::cli
