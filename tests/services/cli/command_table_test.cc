#include "services/cli/command_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(const char* command, const Words& words) {
  const auto arguments = ParseArguments(command, words);
  EXPECT_EQ(arguments.status().code(), StatusCode::kInvalidArgument);
  return Message(arguments.status());
}

TEST(CommandTableTest, EveryHelpNamesItsCommandAndEachOfItsOptions) {
  for (const CommandSpec& command : Commands()) {
    EXPECT_THAT(UsageText(), HasSubstr(Cat("  ", command.name, " ")));
    EXPECT_EQ(FindCommand(command.name), &command);
    const std::string help = HelpText(command);
    EXPECT_THAT(help, HasSubstr(Cat("usage: sluice ", command.name)));
    for (const OptionSpec& option : command.options) {
      EXPECT_THAT(help, HasSubstr(Cat("--", option.name))) << command.name;
    }
  }
  EXPECT_EQ(FindCommand("nope"), nullptr);
}

TEST(CommandTableTest, HelpIsAskedForAnywhereButAsAValueAndBehindTheEnd) {
  const CommandSpec& chat = *FindCommand("chat");
  EXPECT_TRUE(AsksForHelp(chat, {"--help"}));
  EXPECT_TRUE(AsksForHelp(chat, {"--seed", "1", "-h"}));
  EXPECT_TRUE(AsksForHelp(chat, {"--nope", "--help"}));
  EXPECT_TRUE(AsksForHelp(chat, {"--system=x", "--help"}));
  EXPECT_FALSE(AsksForHelp(chat, {"--system", "--help"}));
  EXPECT_FALSE(AsksForHelp(chat, {"--", "--help"}));
  EXPECT_FALSE(AsksForHelp(chat, {}));
}

TEST(CommandTableTest, OptionsMayStandBeforeAndBehindTheOtherWords) {
  for (const Words& words :
       {Words{"a prompt", "--seed", "7", "--ignore-eos"},
        Words{"--seed=7", "a prompt", "--ignore-eos"},
        Words{"--ignore-eos", "--seed", "7", "a prompt"}}) {
    const auto arguments = ParseArguments("generate", words);
    ASSERT_TRUE(arguments.ok()) << arguments.status();
    EXPECT_THAT(arguments->words(), ElementsAre("a prompt"));
    EXPECT_EQ(**arguments->Int("seed"), 7);
    EXPECT_TRUE(arguments->Has("ignore-eos"));
  }
  EXPECT_THAT(*CommandFirst({"--seed", "7", "generate", "hi", "--top-k=1"}),
              ElementsAre("generate", "--seed", "7", "hi", "--top-k=1"));
  EXPECT_THAT(*CommandFirst({"--since-start", "experts", "heat"}),
              ElementsAre("experts", "--since-start", "heat"));
  EXPECT_THAT(*CommandFirst({"status"}), ElementsAre("status"));
  EXPECT_THAT(Message(CommandFirst({"--nope", "status"}).status()),
              HasSubstr("unknown option --nope"));
  EXPECT_THAT(Message(CommandFirst({"-x", "status"}).status()),
              HasSubstr("unknown option -x"));
  EXPECT_THAT(Message(CommandFirst({"--seed", "7"}).status()),
              HasSubstr("no command"));
}

TEST(CommandTableTest, AnUnknownOptionIsNamedWithTheNearestThatThereIs) {
  EXPECT_EQ(ErrorOf("generate", {"hi", "--top_k", "5"}),
            "unknown option --top_k; did you mean --top-k?; sluice generate "
            "--help lists its options");
  EXPECT_EQ(ErrorOf("status", {"--nope"}),
            "unknown option --nope; sluice status --help lists its options");
  EXPECT_THAT(ErrorOf("chat", {"-v"}), HasSubstr("unknown option -v"));
  EXPECT_EQ(ErrorOf("generate", {"--ignore-eos=1"}),
            "--ignore-eos takes no value");
  EXPECT_EQ(ErrorOf("generate", {"hi", "--seed"}), "--seed needs a value");
  // A dash alone, a number and what is behind "--" are words.
  const auto words = ParseArguments("generate", {"-", "-5", "--", "-v", "--x"});
  ASSERT_TRUE(words.ok()) << words.status();
  EXPECT_THAT(words->words(), ElementsAre("-", "-5", "-v", "--x"));
}

}  // namespace
}  // namespace sluice::cli
