#include "common/service/read_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/service/describe_options.h"
#include "common/service/options_file.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReadOptionsTest : public ::testing::Test {
 protected:
  ReadOptionsTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "sf-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~ReadOptionsTest() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
    std::filesystem::remove_all(folder_);
  }

  std::string File(const std::string& text) const {
    std::ofstream(folder_ + "/o.toml") << text;
    return folder_ + "/o.toml";
  }
  void Set(const std::string& name, const std::string& value) {
    set_.push_back(name);
    setenv(name.c_str(), value.c_str(), 1);
  }
  Status Parse(const std::vector<std::string>& words) {
    SLUICE_ASSIGN_OR_RETURN(const GivenOptions given,
                            ReadOptions(program_, words));
    asked_ = given.asked;
    return ApplyOptions(program_, given);
  }
  std::string Error(const std::vector<std::string>& words) {
    return Message(Parse(words));
  }

  int32_t kv_blocks_ = 7;
  std::string model_;
  std::vector<std::string> stages_;
  bool insecure_ = false;
  bool prefix_cache_ = true;
  Duration drain_timeout_ = std::chrono::seconds(60);
  size_t memory_ = size_t{512} << 20;
  std::string config_;
  std::string print_;
  const ServiceProgram program_ = {
      "test",
      "serves tests",
      "sluice-test --model PATH",
      {{"kv-blocks", {&kv_blocks_, 0, 1000}, "KV blocks"},
       {"model", &model_, "model folder"},
       {"stages", &stages_, "addresses"},
       {"insecure", &insecure_, "plain text"},
       {"no-prefix-cache", option::Off(&prefix_cache_), "no cache"},
       {"drain-timeout", option::Seconds(&drain_timeout_, 0, 100), "seconds"},
       {"memory", option::Mebibytes(&memory_, 1, 1024), "MiB"},
       {"config", &config_, "file"},
       {"print", &print_, "what is written"}}};
  std::string asked_;

 private:
  std::string folder_;
  std::vector<std::string> set_;
};

TEST_F(ReadOptionsTest, AFileSetsOptionsOfEveryKind) {
  const std::string file = File(
      "# a comment\n"
      "model = \"/srv/a model\"\n"
      "kv-blocks = 64\n"
      "stages = [\"a:1\", \"unix:/run/b\"]\n"
      "insecure = true\n"
      "no-prefix-cache = true\n"
      "drain-timeout = 2.5\n"
      "memory = 3\n");
  ASSERT_TRUE(Parse({"--config", file}).ok());
  EXPECT_EQ(model_, "/srv/a model");
  EXPECT_EQ(kv_blocks_, 64);
  EXPECT_THAT(stages_, ElementsAre("a:1", "unix:/run/b"));
  EXPECT_TRUE(insecure_);
  EXPECT_FALSE(prefix_cache_);
  EXPECT_EQ(drain_timeout_, std::chrono::milliseconds(2500));
  EXPECT_EQ(memory_, size_t{3} << 20);
}

TEST_F(ReadOptionsTest, OneDashNamesTheFileToo) {
  const std::string file = File("kv-blocks = 64\n");
  ASSERT_TRUE(Parse({"-config", file}).ok());
  EXPECT_EQ(kv_blocks_, 64);
  kv_blocks_ = 7;
  ASSERT_TRUE(Parse({"-config=" + file}).ok());
  EXPECT_EQ(kv_blocks_, 64);
}

TEST_F(ReadOptionsTest, TheCommandLineGoesBeforeTheEnvironmentBeforeTheFile) {
  Set("SLUICE_TEST_CONFIG", File("kv_blocks = 1\nmodel = 'm'\n"
                                 "drain-timeout = 3\n"));
  Set("SLUICE_TEST_KV_BLOCKS", "2");
  Set("SLUICE_TEST_DRAIN_TIMEOUT", "4");
  Set("SLUICE_TEST_STAGES", "");  // sets nothing
  Set("SLUICE_OTHER_INSECURE", "true");
  ASSERT_TRUE(Parse({"--kv-blocks=5"}).ok());
  EXPECT_EQ(kv_blocks_, 5);
  EXPECT_EQ(drain_timeout_, std::chrono::seconds(4));
  EXPECT_EQ(model_, "m");
  EXPECT_TRUE(stages_.empty());
  EXPECT_FALSE(insecure_);
}

TEST_F(ReadOptionsTest, WhatDoesNotFitIsNamedWithItsSource) {
  const auto error = [this](const std::string& text) {
    return Error({"--config", File(text)});
  };
  EXPECT_THAT(error("kv-blobs = 3\n"),
              HasSubstr("o.toml: there is no option --kv-blobs"));
  EXPECT_THAT(error("kv-blocks = 'many'\n"),
              HasSubstr("o.toml: --kv-blocks 'many': must be a whole number"));
  EXPECT_THAT(error("[stage]\nkv-blocks = 3\n"), HasSubstr("has no tables"));
  EXPECT_THAT(error("config = 'x'\n"), HasSubstr("there is no option"));
  EXPECT_THAT(error("print = \"man\"\n"),
              HasSubstr("there is no option --print"));
  EXPECT_THAT(Error({"--config=/nowhere/o.toml"}),
              HasSubstr("/nowhere/o.toml"));
  EXPECT_THAT(Error({"stray"}), HasSubstr("unknown argument 'stray'"));
  EXPECT_EQ(Error({"--insecure=off"}),
            "--insecure 'off': must be true or false");
  EXPECT_EQ(Error({"--drain-timeout=x"}),
            "--drain-timeout 'x': must be a number");
  EXPECT_EQ(Error({"--kv-blocks=1001"}),
            "--kv-blocks must be between 0 and 1000, got 1001");
  EXPECT_EQ(Error({"--drain-timeout=nan"}),
            "--drain-timeout must be between 0 and 100, got nan");
  Set("SLUICE_TEST_KV_BLOCKS", "x");
  EXPECT_THAT(Error({}), HasSubstr("SLUICE_TEST_KV_BLOCKS: --kv-blocks 'x'"));
}

TEST_F(ReadOptionsTest, ARangeIsThatOfTheValueThatCounts) {
  ASSERT_TRUE(Parse({"--kv-blocks=-1", "--kv-blocks=8"}).ok());
  EXPECT_EQ(kv_blocks_, 8);
  EXPECT_FALSE(Parse({"--kv-blocks=x", "--kv-blocks=8"}).ok());
}

TEST_F(ReadOptionsTest, AMistypedOptionIsToldTheNearestOne) {
  EXPECT_EQ(
      Error({"--kv-block=3"}),
      "unknown option --kv-block (did you mean --kv-blocks?); see --help");
  EXPECT_EQ(Error({"--elsewhere"}), "unknown option --elsewhere; see --help");
}

TEST_F(ReadOptionsTest, ATextThatIsAskedForReadsNoFile) {
  for (const auto& [word, text] : {std::pair{"--help", "help"},
                                   {"-help=true", "help"},
                                   {"--helpshort", "help"},
                                   {"--helpon=main", "help"},
                                   {"--version", "version"},
                                   {"--print=man", "man"}}) {
    ASSERT_TRUE(Parse({"--config=/nowhere", word}).ok()) << word;
    EXPECT_EQ(asked_, text);
  }
  EXPECT_FALSE(Parse({"--config=/nowhere", "--print=options"}).ok());
}

TEST_F(ReadOptionsTest, TheLastTextThatIsAskedForCounts) {
  ASSERT_TRUE(Parse({"--print", "man", "--print", "bash"}).ok());
  EXPECT_EQ(asked_, "bash");
  ASSERT_TRUE(Parse({"--print=man", "--help"}).ok());
  EXPECT_EQ(asked_, "help");
  ASSERT_TRUE(Parse({"--version", "--print=options"}).ok());
  EXPECT_EQ(asked_, "options");
}

TEST_F(ReadOptionsTest, WordsLikeHelpAskForNothing) {
  EXPECT_EQ(Error({"--help=false"}), "--help takes no value, got 'false'");
  EXPECT_EQ(Error({"--version=false"}),
            "--version takes no value, got 'false'");
  EXPECT_EQ(Error({"--helpfoo"}), "unknown option --helpfoo; see --help");
  EXPECT_EQ(Error({"--helper=1"}), "unknown option --helper; see --help");
}

TEST_F(ReadOptionsTest, AHashInQuotesBeginsNoComment) {
  const std::string file = File(
      "# it's a \"comment\n"
      "model = \"/srv/a#b\"  # the \"model\"\n"
      "kv-blocks = 64# blocks\n"
      "stages = ['a#1', # first\n"
      "  \"b#'2\"] # second\n"
      "insecure # switch\n");
  ASSERT_TRUE(Parse({"--config", file}).ok());
  EXPECT_EQ(model_, "/srv/a#b");
  EXPECT_EQ(kv_blocks_, 64);
  EXPECT_THAT(stages_, ElementsAre("a#1", "b#'2"));
  EXPECT_TRUE(insecure_);
  ASSERT_TRUE(Parse({"--config", File("model = it's # here\n")}).ok());
  EXPECT_EQ(model_, "it's");
}

TEST_F(ReadOptionsTest, ThePageHasTheServicesOptions) {
  const auto page = DescribeOptions(program_, "man");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(*page, HasSubstr("\\fB\\-\\-kv\\-blocks\\fR \\fIN\\fR"));
  EXPECT_THAT(*page, HasSubstr("(0 to 1000; default: 7)"));
  EXPECT_THAT(*page, HasSubstr("\\fB\\-\\-insecure\\fR\n"));
  EXPECT_THAT(*DescribeOptions(program_, "bash"), HasSubstr("--print"));
  EXPECT_THAT(Message(DescribeOptions(program_, "csh").status()),
              HasSubstr("--print must be"));
  EXPECT_THAT(*DescribeOptions(program_, "markdown"),
              HasSubstr("| `--memory` MIB | `512` | 1 to 1024 | MiB |\n"));
  EXPECT_THAT(HelpText(program_),
              HasSubstr("  --drain-timeout SECONDS\n"
                        "      seconds (0 to 100; default: 60)\n"));
}

TEST_F(ReadOptionsTest, ALimitIsToldHoweverLarge) {
  int32_t count = 3;
  int64_t bytes = 5;
  const ServiceProgram program = {
      "test",
      "",
      "",
      {{"count", {&count, 0, option::kNoLimit}, "count"},
       {"bytes", {&bytes, 1, double{int64_t{1} << 40}}, "bytes"}}};
  EXPECT_THAT(HelpText(program), HasSubstr("count (at least 0; default: 3)"));
  EXPECT_THAT(HelpText(program),
              HasSubstr("bytes (1 to 1099511627776; default: 5)"));
}

TEST_F(ReadOptionsTest, TheOptionsFileHasThePresentValues) {
  ASSERT_TRUE(Parse({"--stages=a:1,b:2", "--model=a\"b"}).ok());
  const auto file = OptionsFile(program_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file,
            "drain-timeout = 60\ninsecure = false\nkv-blocks = 7\n"
            "memory = 512\nmodel = 'a\"b'\nno-prefix-cache = false\n"
            "stages = [\"a:1\", \"b:2\"]\n");
  kv_blocks_ = 9;
  ASSERT_TRUE(Parse({"--config", File(*file)}).ok());
  EXPECT_EQ(*OptionsFile(program_), *file);
}

TEST_F(ReadOptionsTest, ATextThatIsReadAsAnotherIsNotWritten) {
  for (const std::string text :
       {"", "#", "a#b", "'#'", "a \"#\"", "a, 'b#", "C:\\a b#", "a'\"b", "[a]",
        " a ", "a = b", "`a`, b"}) {
    model_ = text;
    const auto file = OptionsFile(program_);
    ASSERT_TRUE(file.ok()) << file.status();
    model_ = "another";
    ASSERT_TRUE(Parse({"--config", File(*file)}).ok());
    EXPECT_EQ(model_, text);
  }
  for (const std::string text :
       {"a\nb", "'a b'", "a '\" b", "a, '\"", "'\"#", "C:\\a b\\"}) {
    model_ = text;
    EXPECT_EQ(
        Message(OptionsFile(program_).status()),
        "--model '" + text + "': a file of options cannot have this text");
  }
}

}  // namespace
}  // namespace sluice
