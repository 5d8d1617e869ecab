#include "common/manual/completion_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

namespace sluice {
namespace {

using ::testing::HasSubstr;

Program CompletedProgram() {
  Program program;
  program.name = "tool";
  ProgramCommand ask;
  ask.name = "ask";
  ask.about = "asks: who, and what";
  ask.arguments = {{.name = "WHO", .value = "TEXT", .words = "models"}};
  ask.options = {{.name = "--top-k", .value = "INT", .about = "it's a number"},
                 {.name = "--as", .value = "TEXT", .choices = {"json", "text"}},
                 {.name = "--keep"}};
  ProgramCommand show;
  show.name = "show";
  show.about = "shows";
  show.options = {{.name = "--json"}};
  program.commands = {ask, show};
  return program;
}

std::string ScriptOf(const std::string& shell) {
  const auto script = CompletionScript(CompletedProgram(), shell);
  EXPECT_TRUE(script.ok()) << script.status();
  return script.ok() ? *script : "";
}

// Returns what `shell`, a command, prints of a script, its errors included.
std::string Output(const std::string& shell, const std::string& script) {
  const std::string path =
      Cat(::testing::TempDir(), "completion-", getpid(), ".sh");
  std::ofstream(path) << script;
  const auto close = [](FILE* file) { ::pclose(file); };
  const std::unique_ptr<FILE, decltype(close)> pipe(
      ::popen(Cat(shell, " ", path, " 2>&1").c_str(), "r"), close);
  std::string text;
  std::array<char, 4096> bytes;
  size_t got = 0;
  while ((got = std::fread(bytes.data(), 1, bytes.size(), pipe.get())) > 0) {
    text.append(bytes.data(), got);
  }
  std::remove(path.c_str());
  return text;
}

bool Has(const std::string& shell) {
  return std::system(Cat("command -v ", shell, " >/dev/null").c_str()) == 0;
}

// What bash offers behind these words, each on a line. `sluice` is the body of
// the command that lists words.
std::string Offered(const std::string& words,
                    const std::string& sluice = "printf '%s\\n' {a,b}-$2") {
  return Output(
      "bash --norc",
      Cat("sluice() { ", sluice, "; }\n", ScriptOf("bash"), "COMP_WORDS=(",
          words, ")\n", "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_tool\n",
          "printf '%s\\n' \"${COMPREPLY[@]}\"\n"));
}

// The paths of folders that a stranger has named.
constexpr char kHostile[] = R"(printf '%s\n' '/t/$(echo pwned >&2)' )"
                            R"('/t/`echo pwned`' '/t/two words' '/t/*')";

TEST(CompletionScriptTest, BashOffersCommandsOptionsAndValues) {
  EXPECT_EQ(Offered("tool ''"), "ask\nshow\n");
  EXPECT_EQ(Offered("tool sh"), "show\n");
  EXPECT_EQ(Offered("tool show --"), "--json\n");
  EXPECT_EQ(Offered("tool ask --"), "--top-k\n--as\n--keep\n");
  EXPECT_EQ(Offered("tool ask --as ''"), "json\ntext\n");
  EXPECT_EQ(Offered("tool ask --as j"), "json\n");
  EXPECT_EQ(Offered("tool ask --top-k ''"), "\n") << "files, by bash itself";
}

TEST(CompletionScriptTest, BashOffersWhatTheCommandListsAtThatMoment) {
  EXPECT_EQ(Offered("tool ask ''"), "a-models\nb-models\n");
  EXPECT_EQ(Offered("tool ask --keep b"), "b-models\n");
}

TEST(CompletionScriptTest, BashExpandsNoWordOfAList) {
  EXPECT_EQ(Offered("tool ask ''", kHostile),
            "/t/\\$\\(echo\\ pwned\\ \\>\\&2\\)\n"
            "/t/\\`echo\\ pwned\\`\n/t/two\\ words\n/t/\\*\n");
  EXPECT_EQ(Offered("tool ask /t/tw", kHostile), "/t/two\\ words\n");
  EXPECT_EQ(Offered("tool ask '/t/two\\ w'", kHostile), "/t/two\\ words\n")
      << "as bash has completed its beginning";
  EXPECT_EQ(Offered("tool ask '/t/*'", kHostile), "/t/\\*\n")
      << "what is typed is no pattern";
}

TEST(CompletionScriptTest, WhatBashOffersIsTheNameAgain) {
  const std::string offered = Offered("tool ask '/t/$'", kHostile);
  EXPECT_EQ(Output("bash --norc", "printf '%s\\n' " + offered),
            "/t/$(echo pwned >&2)\n");
}

TEST(CompletionScriptTest, ZshExpandsNoWordOfAList) {
  if (!Has("zsh")) GTEST_SKIP() << "zsh is not installed";
  EXPECT_EQ(
      Output("zsh -f",
             Cat("sluice() { ", kHostile,
                 " }\ncompdef() {}\n"
                 "compadd() { shift; printf '%s\\n' \"$@\" }\n_files() {}\n",
                 ScriptOf("zsh"), "words=(tool ask '') CURRENT=3\n_tool\n")),
      "/t/$(echo pwned >&2)\n/t/`echo pwned`\n/t/two words\n/t/*\n");
}

TEST(CompletionScriptTest, FishExpandsNoWordOfAList) {
  if (!Has("fish")) GTEST_SKIP() << "fish is not installed";
  const std::string offered =
      Output("fish --no-config",
             Cat("function sluice\n", kHostile, "\nend\n", ScriptOf("fish"),
                 "complete -C 'tool ask /t/'\n"));
  EXPECT_THAT(offered, HasSubstr("/t/$(echo pwned >&2)\n"));
  EXPECT_THAT(offered, HasSubstr("/t/`echo pwned`\n"));
  EXPECT_THAT(offered, HasSubstr("/t/two words\n"));
  EXPECT_THAT(offered, HasSubstr("/t/*\n"));
}

TEST(CompletionScriptTest, ZshAndFishHaveTheSameWithDescriptions) {
  const std::string zsh = ScriptOf("zsh");
  EXPECT_THAT(zsh, HasSubstr("#compdef tool\n"));
  EXPECT_THAT(zsh, HasSubstr("'ask:asks\\: who, and what'"));
  EXPECT_THAT(zsh, HasSubstr("'--top-k:its a number'"));
  EXPECT_THAT(zsh, HasSubstr("ask:--as) compadd -- 'json' 'text'; return ;;"));
  const std::string fish = ScriptOf("fish");
  EXPECT_THAT(fish, HasSubstr("__fish_seen_subcommand_from ask' -l as -x -a "
                              "'json text'"));
  EXPECT_THAT(fish, HasSubstr("-a '(sluice words models 2>/dev/null)'"));
}

TEST(CompletionScriptTest, AProgramWithoutCommandsHasItsOptions) {
  Program program;
  program.name = "tool-gateway";
  program.options = {{.name = "--listen", .value = "TEXT"}};
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = CompletionScript(program, shell);
    ASSERT_TRUE(script.ok());
    EXPECT_THAT(*script, HasSubstr("listen")) << shell;
  }
  EXPECT_EQ(CompletionScript(program, "csh").status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
