#include "services/cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "services/cli/commands.h"

namespace sluice::cli {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A variable of the environment that is gone with the test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* const name_;
};

// A command with an option of each kind, and what it was given.
struct Given {
  std::string prompt, url, run_dir, api_key;
  std::optional<int64_t> top_k;
  bool ignore_eos = false, since = false;

  Status Parse(const Words& words) {
    CommandLine sluice("sluice 1.2.3\ncommit c\n");
    CLI::App& ask = sluice.Add("ask", "asks", [] { return OkStatus(); });
    ask.add_option("PROMPT", prompt);
    ask.add_option("--url", url, "where");
    ask.add_option("--run-dir", run_dir, "of which cluster");
    ask.add_option("--api-key", api_key, "with which key");
    ask.add_option("--top-k", top_k, "of the likeliest")->check(Within(1, 9));
    ask.add_flag("--ignore-eos", ignore_eos, "goes on");
    sluice.Add("other", "other things", [] { return OkStatus(); })
        .add_flag("--since", since, "a flag");
    return sluice.Run(words);
  }
};

std::string ErrorOf(const Words& words) {
  const Status status = Given().Parse(words);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return Message(status);
}

// What a command line prints; it must be a good one.
std::string Printed(const Words& words) {
  CommandLine sluice("sluice 1.2.3\ncommit c\n");
  AddCommands(sluice);
  ::testing::internal::CaptureStdout();
  EXPECT_TRUE(sluice.Run(words).ok());
  std::fflush(stdout);
  return ::testing::internal::GetCapturedStdout();
}

TEST(CommandLineTest, EveryHelpNamesItsCommandAndEachOfItsOptions) {
  CommandLine sluice("sluice 1.2.3\ncommit c\n");
  AddCommands(sluice);
  for (const CLI::App* command : sluice.app().get_subcommands({})) {
    if (command->get_group().empty()) continue;  // for programs alone
    EXPECT_THAT(sluice.Help(), HasSubstr(Cat("  ", command->get_name(), " ")));
    const std::string help = command->help("sluice");
    EXPECT_THAT(help, HasSubstr(Cat("usage: sluice ", command->get_name())));
    for (const CLI::Option* option : command->get_options()) {
      EXPECT_THAT(help, HasSubstr(option->get_name())) << command->get_name();
      EXPECT_NE(option->get_description(), "") << option->get_name();
    }
  }
}

TEST(CommandLineTest, HelpIsAskedForAnywhereButAsAValueAndBehindTheEnd) {
  for (const Words& words :
       {Words{"chat", "--help"}, Words{"help", "chat"}, Words{"-h", "chat"},
        Words{"--help", "chat"}, Words{"chat", "--seed", "1", "-h"},
        Words{"chat", "--nope", "--help"},
        Words{"chat", "--system=x", "word", "--help"}}) {
    EXPECT_THAT(Printed(words), HasSubstr("usage: sluice chat")) << words[0];
  }
  Given given;
  EXPECT_TRUE(given.Parse({"ask", "--url", "--help"}).ok());
  EXPECT_EQ(given.url, "--help");
  EXPECT_TRUE(given.Parse({"ask", "--", "--help"}).ok());
  EXPECT_EQ(given.prompt, "--help");
}

TEST(CommandLineTest, TheVersionIsToldAnywhere) {
  EXPECT_EQ(Printed({"--version"}), "sluice 1.2.3\ncommit c\n");
  EXPECT_EQ(Printed({"chat", "--version"}), "sluice 1.2.3\ncommit c\n");
}

TEST(CommandLineTest, OptionsMayStandBeforeAndBehindTheOtherWords) {
  for (const Words& words :
       {Words{"ask", "a prompt", "--top-k", "7", "--ignore-eos"},
        Words{"ask", "--top-k=7", "a prompt", "--ignore-eos"},
        Words{"--ignore-eos", "ask", "--top-k", "7", "a prompt"},
        Words{"--top-k", "7", "ask", "--ignore-eos", "--", "a prompt"}}) {
    Given given;
    const Status parsed = given.Parse(words);
    ASSERT_TRUE(parsed.ok()) << parsed;
    EXPECT_EQ(given.prompt, "a prompt");
    EXPECT_EQ(given.top_k, 7);
    EXPECT_TRUE(given.ignore_eos);
  }
  EXPECT_THAT(ErrorOf({"--nope", "ask"}), HasSubstr("unknown option --nope"));
  EXPECT_THAT(ErrorOf({"-x", "ask"}), HasSubstr("unknown option -x"));
  EXPECT_THAT(ErrorOf({"--top-k", "7"}), HasSubstr("no command"));
  EXPECT_THAT(ErrorOf({"nope"}), HasSubstr("unknown command 'nope'"));
}

TEST(CommandLineTest, WordsOfCommandsDashesAndNumbersArePrompts) {
  for (const char* word : {"other", "-", "-5", "-5x", ""}) {
    Given given;
    const Status parsed = given.Parse({"ask", word});
    EXPECT_TRUE(parsed.ok()) << parsed;
    EXPECT_EQ(given.prompt, word);
  }
  EXPECT_THAT(ErrorOf({"ask", "one", "two"}), HasSubstr("two"));
}

TEST(CommandLineTest, AnUnknownOptionIsNamedWithTheNearestThatThereIs) {
  EXPECT_EQ(ErrorOf({"ask", "hi", "--top_k", "5"}),
            "unknown option --top_k; did you mean --top-k?; sluice ask --help "
            "lists its options");
  EXPECT_EQ(ErrorOf({"ask", "--nope"}),
            "unknown option --nope; sluice ask --help lists its options");
  EXPECT_THAT(ErrorOf({"ask", "-v"}), HasSubstr("unknown option -v"));
  EXPECT_EQ(ErrorOf({"ask", "--ignore-eos=1"}), "--ignore-eos takes no value");
  EXPECT_EQ(ErrorOf({"ask", "hi", "--top-k"}), "--top-k needs a value");
}

TEST(CommandLineTest, ValuesThatCannotBeAreRefusedWithTheirOption) {
  for (const char* value : {"7x", "10", "0", "-1", "nan", ""}) {
    EXPECT_THAT(ErrorOf({"ask", "--top-k", value}), HasSubstr("--top-k"))
        << value;
  }
  EXPECT_THAT(ErrorOf({"ask", "--top-k", "10"}),
              HasSubstr("must be between 1 and 9, got 10"));
}

TEST(CommandLineTest, TheLineIsOverTheEnvironmentOverTheFile) {
  const std::string path = Cat(::testing::TempDir(), "sluice-", getpid());
  std::ofstream(path) << "url = \"http://file\"\n[ask]\ntop-k = 2\n"
                         "ignore-eos = true\n[other]\nsince = true\n";
  const Variable config("SLUICE_CONFIG", path);
  Given file;
  const Status read = file.Parse({"ask"});
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(file.url, "http://file");
  EXPECT_EQ(file.top_k, 2);
  EXPECT_TRUE(file.ignore_eos);
  const Variable url("SLUICE_URL", "http://environment");
  const Variable top_k("SLUICE_ASK_TOP_K", "3");
  Given environment;
  ASSERT_TRUE(environment.Parse({"ask"}).ok());
  EXPECT_EQ(environment.url, "http://environment");
  EXPECT_EQ(environment.top_k, 3);
  Given line;
  ASSERT_TRUE(line.Parse({"ask", "--top-k", "4"}).ok());
  EXPECT_EQ(line.url, "http://environment");
  EXPECT_EQ(line.top_k, 4);
  std::remove(path.c_str());
}

TEST(CommandLineTest, ARunFolderOnTheLineIsOverAServerNamedElsewhere) {
  const std::string path = Cat(::testing::TempDir(), "sluice-dir-", getpid());
  std::ofstream(path) << "url = \"http://file\"\n";
  const Variable config("SLUICE_CONFIG", path);
  Given file;
  ASSERT_TRUE(file.Parse({"ask", "--run-dir", "/tmp/run"}).ok());
  EXPECT_EQ(file.url, "");
  const Variable url("SLUICE_URL", "http://environment");
  Given line;
  ASSERT_TRUE(line.Parse({"ask", "--run-dir=/tmp/run"}).ok());
  EXPECT_EQ(line.run_dir, "/tmp/run");
  EXPECT_EQ(line.url, "");
  std::remove(path.c_str());
}

TEST(CommandLineTest, AFileThatIsNotThereOrHasOtherNamesIsRefused) {
  const std::string path = Cat(::testing::TempDir(), "sluice-bad-", getpid());
  EXPECT_THAT(ErrorOf({"ask", "--config", path}), HasSubstr(path));
  for (const char* text : {"[ask]\ntop_q = 2\n", "nope = 1\n"}) {
    std::ofstream(path) << text;
    EXPECT_THAT(ErrorOf({"ask", "--config", path}),
                ::testing::AnyOf(HasSubstr("top_q"), HasSubstr("nope")));
  }
  std::ofstream(path) << "[ask]\ntop-k = many\n";
  EXPECT_THAT(ErrorOf({"ask", "--config", path}), HasSubstr("--top-k"));
  std::remove(path.c_str());
}

TEST(CommandLineTest, HelpAndVersionNeedNoFileOfOptions) {
  const std::string path = Cat(::testing::TempDir(), "sluice-help-", getpid());
  const Variable config("SLUICE_CONFIG", path);
  for (const char* text : {"", "nope = 1\n", "[chat\n"}) {
    if (*text != '\0') std::ofstream(path) << text;
    EXPECT_THAT(Printed({"chat", "--help"}), HasSubstr("usage: sluice chat"));
    EXPECT_EQ(Printed({"chat", "--version"}), "sluice 1.2.3\ncommit c\n");
    EXPECT_EQ(Printed({"--version", "chat"}), "sluice 1.2.3\ncommit c\n");
    EXPECT_THAT(ErrorOf({"ask", "hi"}), Not(HasSubstr("usage: sluice chat")));
  }
  std::remove(path.c_str());
}

TEST(CommandLineTest, WordsBehindTheEndAreForUpWhereACommandStartsClusters) {
  Words up;
  std::string model;
  CommandLine sluice("0");
  sluice.Add("start", "starts", [] { return OkStatus(); })
      .add_option("MODEL", model, "which");
  sluice.TakeUpOptions("start", up);
  ASSERT_TRUE(sluice.Run({"start", "m", "--", "--stages", "3", "x"}).ok());
  EXPECT_EQ(model, "m");
  EXPECT_EQ(up, (Words{"--stages", "3", "x"}));
  EXPECT_THAT(Message(sluice.Run({"start", "m", "--stages", "3"})),
              HasSubstr("options of up stand behind --"));
}

TEST(CommandLineTest, AStatusHasTheExitCodeOfItsKindOrItsOwn) {
  EXPECT_EQ(ExitCodeOf(OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(NotFound("x")), 1);
  EXPECT_EQ(ExitCodeOf(InvalidArgument("x")), 2);
  const Status own = WithExitCode(InvalidArgument("x"), 130);
  EXPECT_EQ(ExitCodeOf(own), 130);
  EXPECT_EQ(Message(own), "x");
}

TEST(CommandLineTest, RunAndChatRefuseWhatContradictsItself) {
  const auto error = [](const Words& words) {
    CommandLine sluice("0");
    AddCommands(sluice);
    const Status status = sluice.Run(words);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    return Message(status);
  };
  EXPECT_THAT(error({"run"}), HasSubstr("MODEL"));
  EXPECT_THAT(error({"chat", "--keep"}), HasSubstr("name MODEL"));
  EXPECT_THAT(error({"chat", "--", "--stages", "2"}), HasSubstr("name MODEL"));
  EXPECT_THAT(error({"chat", "m", "--url", "http://a:1"}),
              HasSubstr("http://a:1"));
  EXPECT_THAT(error({"chat", "m", "--", "--run-dir=/tmp/x"}),
              HasSubstr("--run-dir cannot stand behind --"));
  EXPECT_THAT(error({"stop", "a", "--all"}), HasSubstr("--all"));
}

TEST(CommandLineTest, AnEmptyValueIsRefusedUnlessItMeansSomething) {
  for (const Words& words :
       {Words{"ask", "--url", ""}, Words{"ask", "--url=", "hi"},
        Words{"--run-dir", "", "ask"}}) {
    EXPECT_THAT(ErrorOf(words), HasSubstr(" needs a value"));
  }
  const Variable key("SLUICE_API_KEY", "of the environment");
  Given given;
  const Status parsed = given.Parse({"ask", "--api-key", "", "hi"});
  ASSERT_TRUE(parsed.ok()) << parsed;
  EXPECT_EQ(given.api_key, "") << "the line is over the environment";
  EXPECT_EQ(given.prompt, "hi");
}

TEST(CompletionTest, EveryShellKnowsEveryCommandAndOption) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = Printed({"completion", shell});
    for (const char* part : {"chat", "top-k", "inspect", "sums", "slo"}) {
      EXPECT_THAT(script, HasSubstr(part)) << shell;
    }
    EXPECT_THAT(script, Not(HasSubstr("PROMPT"))) << shell;
    // Commands for programs alone are not offered; what they list is.
    EXPECT_THAT(script, HasSubstr("sluice words models")) << shell;
    EXPECT_THAT(script, HasSubstr("sluice words clusters")) << shell;
    EXPECT_THAT(script, Not(HasSubstr("words:"))) << shell;
    EXPECT_THAT(script, AnyOf(HasSubstr("'bash' 'zsh' 'fish'"),
                              HasSubstr("-a 'bash zsh fish'")))
        << shell;
  }
  CommandLine sluice("0");
  AddCommands(sluice);
  EXPECT_EQ(sluice.Run({"completion", "csh"}).code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::cli
