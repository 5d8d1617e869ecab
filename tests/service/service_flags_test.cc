#include "common/service/service_flags.h"

#include <absl/flags/flag.h>
#include <absl/flags/reflection.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/service/describe_flags.h"

ABSL_FLAG(int32_t, kv_blocks, 7, "");
ABSL_FLAG(std::string, model, "", "");
ABSL_FLAG(std::vector<std::string>, stages, {}, "");
ABSL_FLAG(bool, insecure, false, "");
ABSL_FLAG(double, drain_timeout, 60, "");

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ServiceFlagsTest : public ::testing::Test {
 protected:
  ServiceFlagsTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "sf-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~ServiceFlagsTest() override {
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
  static Status Parse(std::vector<std::string> words) {
    words.insert(words.begin(), "sluice-test");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    return ParseServiceFlags("test", static_cast<int>(words.size()),
                             argv.data());
  }

 private:
  absl::FlagSaver saver_;
  std::string folder_;
  std::vector<std::string> set_;
};

TEST_F(ServiceFlagsTest, AFileSetsFlagsOfEveryKind) {
  const std::string file = File(
      "# a comment\n"
      "model = \"/srv/a model\"\n"
      "kv-blocks = 64\n"
      "stages = [\"a:1\", \"unix:/run/b\"]\n"
      "insecure = true\n"
      "drain-timeout = 2.5\n");
  ASSERT_TRUE(Parse({"--config", file}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_model), "/srv/a model");
  EXPECT_EQ(absl::GetFlag(FLAGS_kv_blocks), 64);
  EXPECT_THAT(absl::GetFlag(FLAGS_stages), ElementsAre("a:1", "unix:/run/b"));
  EXPECT_TRUE(absl::GetFlag(FLAGS_insecure));
  EXPECT_EQ(absl::GetFlag(FLAGS_drain_timeout), 2.5);
}

TEST_F(ServiceFlagsTest, OneDashNamesTheFileToo) {
  const std::string file = File("kv-blocks = 64\n");
  ASSERT_TRUE(Parse({"-config", file}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_kv_blocks), 64);
  absl::SetFlag(&FLAGS_kv_blocks, 7);
  ASSERT_TRUE(Parse({"-config=" + file}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_kv_blocks), 64);
}

TEST_F(ServiceFlagsTest, TheCommandLineGoesBeforeTheEnvironmentBeforeTheFile) {
  Set("SLUICE_TEST_CONFIG", File("kv_blocks = 1\nmodel = 'm'\n"
                                 "drain-timeout = 3\n"));
  Set("SLUICE_TEST_KV_BLOCKS", "2");
  Set("SLUICE_TEST_DRAIN_TIMEOUT", "4");
  Set("SLUICE_TEST_STAGES", "");  // counts as none
  Set("SLUICE_OTHER_INSECURE", "true");
  ASSERT_TRUE(Parse({"--kv-blocks=5"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_kv_blocks), 5);
  EXPECT_EQ(absl::GetFlag(FLAGS_drain_timeout), 4);
  EXPECT_EQ(absl::GetFlag(FLAGS_model), "m");
  EXPECT_FALSE(absl::GetFlag(FLAGS_insecure));
}

TEST_F(ServiceFlagsTest, WhatDoesNotFitIsNamedWithItsSource) {
  const auto error = [this](const std::string& text) {
    return Message(Parse({"--config", File(text)}));
  };
  EXPECT_THAT(error("kv-blobs = 3\n"),
              HasSubstr("o.toml: there is no option --kv-blobs"));
  EXPECT_THAT(error("kv-blocks = 'many'\n"),
              HasSubstr("o.toml: --kv-blocks 'many': "));
  EXPECT_THAT(error("[stage]\nkv-blocks = 3\n"), HasSubstr("has no tables"));
  EXPECT_THAT(error("config = 'x'\n"), HasSubstr("there is no option"));
  // Abseil's own flags are no options of a service.
  EXPECT_THAT(error("flagfile = '/etc/passwd'\n"),
              HasSubstr("there is no option"));
  EXPECT_THAT(Message(Parse({"--config=/nowhere/o.toml"})),
              HasSubstr("/nowhere/o.toml"));
  EXPECT_THAT(Message(Parse({"stray"})), HasSubstr("unknown argument 'stray'"));
  Set("SLUICE_TEST_KV_BLOCKS", "x");
  EXPECT_THAT(Message(Parse({})),
              HasSubstr("SLUICE_TEST_KV_BLOCKS: --kv-blocks 'x'"));
}

TEST_F(ServiceFlagsTest, ThePageHasTheServicesFlagsAndNoneOfAbseils) {
  const auto page = DescribeFlags("test", "man");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(*page, HasSubstr("\\fB\\-\\-kv\\-blocks\\fR \\fIN\\fR"));
  EXPECT_THAT(*page, HasSubstr("(default: 7)"));
  EXPECT_THAT(*page, HasSubstr("\\fB\\-\\-insecure\\fR\n"));
  EXPECT_THAT(*page, Not(HasSubstr("flagfile")));
  EXPECT_THAT(*DescribeFlags("test", "bash"), HasSubstr("--print"));
  EXPECT_THAT(Message(DescribeFlags("test", "csh").status()),
              HasSubstr("--print must be"));
}

TEST_F(ServiceFlagsTest, AFileAsksForNoPage) {
  EXPECT_THAT(Message(Parse({"--config", File("print = \"man\"\n")})),
              HasSubstr("there is no option --print"));
}

}  // namespace
}  // namespace sluice
