// Texts that end the process in which they are tried, and no other. The bridge
// is that of tests/testing/crashing_gateway: marked texts crash it.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/retry_after.h"
#include "common/grammar/compile_server.h"
#include "common/grammar/grammar_compiler.h"
#include "common/grammar/grammar_job.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

using Kind = GrammarSpec::Kind;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

GrammarSpec Marked(const std::string& fault) {
  return {Kind::kJsonSchema,
          "{\"title\":\"fault:" + fault + "\",\"type\":\"integer\"}"};
}

const GrammarSpec kPlain = {Kind::kJsonSchema, R"({"type":"integer"})"};

// Returns the children of process `pid`.
std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::vector<pid_t> children;
  DIR* const folder = opendir("/proc");
  while (const dirent* entry = readdir(folder)) {
    const pid_t child = std::atoi(entry->d_name);
    if (child <= 0) continue;
    std::ifstream file("/proc/" + std::string(entry->d_name) + "/stat");
    std::string stat;
    std::getline(file, stat);
    const size_t behind = stat.rfind(')');
    if (behind == std::string::npos || stat.size() < behind + 4) continue;
    const char state = stat[behind + 2];
    if (state != 'Z' && std::stoi(stat.substr(behind + 4)) == pid) {
      children.push_back(child);
    }
  }
  closedir(folder);
  return children;
}

// Waits until `holds` is true; false after 10 s.
template <typename Holds>
bool Soon(Holds holds) {
  const TimePoint end = Clock::now() + seconds(10);
  while (!holds()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

class CompileTrialTest : public ::testing::Test {
 protected:
  CompileTrialTest() : tokenizer_(TinyTokenizer()) { Make({}); }

  void Make(const GrammarLimits& limits) {
    compiler_ = nullptr;
    GrammarCompiler::Options options;
    options.limits = limits;
    options.trial_program = "/proc/self/exe";
    compiler_ = *GrammarCompiler::Create(
        *tokenizer_, tokenizer_->vocab_size(),
        std::vector<TokenId>{*tokenizer_->TokenToId("<|im_end|>")}, options);
  }

  Status Compile(const GrammarSpec& spec, GrammarPatience patience = {}) {
    return GrammarJob(*compiler_, "", std::move(patience))
        .Compile(spec)
        .status();
  }

  const TrialFailures& failures() { return *compiler_->trial_failures(); }

  const std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<GrammarCompiler> compiler_;
};

TEST_F(CompileTrialTest, WhatItSurvivesIsCompiledHere) {
  EXPECT_TRUE(Compile(kPlain).ok()) << Compile(kPlain);
  for (const GrammarSpec& spec :
       std::vector<GrammarSpec>{{Kind::kRegex, "[a-z]{3}"},
                                {Kind::kChoice, R"(["a","b"])"},
                                {Kind::kGbnf, "root ::= \"a\" [bc]+"},
                                {Kind::kLark, "start: \"a\" /[bc]+/"},
                                {Kind::kJsonObject, ""}}) {
    EXPECT_TRUE(Compile(spec).ok()) << spec.text << ": " << Compile(spec);
  }
  GrammarJob job(*compiler_, "");
  EXPECT_TRUE(job.CheckSchema(kPlain.text).ok());
  EXPECT_TRUE(job.LarkOfGbnf("root ::= \"a\"").ok());
  EXPECT_THAT(Message(job.CheckSchema(R"({"type":"strin"})").status()),
              HasSubstr("type"));
  EXPECT_THAT(Message(job.LarkOfGbnf("root =").status()), HasSubstr("GBNF"));
}

TEST_F(CompileTrialTest, ARefusalSaysWhatItSaysWithoutATrial) {
  const auto untried = *GrammarCompiler::Create(
      *tokenizer_, tokenizer_->vocab_size(),
      std::vector<TokenId>{*tokenizer_->TokenToId("<|im_end|>")}, {});
  for (const GrammarSpec& spec : std::vector<GrammarSpec>{
           {Kind::kJsonSchema, R"({"type":"strin"})"},
           {Kind::kJsonSchema, R"({"properties":{"a":{"not":{}}}})"},
           {Kind::kRegex, "(a"},
           {Kind::kLark, "start: nothing"},
           {Kind::kGbnf, "root ::= x"}}) {
    EXPECT_EQ(Compile(spec), untried->Compile(spec, "").status()) << spec.text;
  }
}

TEST_F(CompileTrialTest, ACrashIsTheTextsOwn) {
  uint64_t crashes = 0;
  for (const std::string fault :
       {"crash:compile", "crash:mask:1", "crash:mask:2", "overflow:compile",
        "overflow:mask:1"}) {
    const Status status = Compile(Marked(fault));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(Message(status), "schema: the compiler crashed") << fault;
    EXPECT_EQ(failures().crashed, ++crashes) << fault;
    EXPECT_TRUE(Compile(kPlain).ok()) << fault;
  }
}

TEST_F(CompileTrialTest, IntegersAtTheEndOfTheirRangeEndNothing) {
  for (const char* text :
       {R"({"const":-9223372036854775808})",
        R"({"enum":[-9223372036854775808]})",
        R"({"type":"integer","minimum":-9223372036854775808,
            "maximum":-9223372036854775808})",
        R"({"type":"integer","minimum":-9223372036854775808})",
        R"({"const":9223372036854775807})"}) {
    Compile({Kind::kJsonSchema, text}).IgnoreError();
    EXPECT_TRUE(Compile({Kind::kJsonSchema, R"({"const":"a"})"}).ok()) << text;
  }
}

TEST_F(CompileTrialTest, TheTimeLimitEndsWhatRunsForEver) {
  GrammarLimits limits;
  limits.max_compile_ms = 200;
  Make(limits);
  uint64_t times = 0;
  for (const std::string fault : {"loop:compile", "loop:mask:1"}) {
    const Status status = Compile(Marked(fault));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(Message(status), HasSubstr("limit is 200")) << fault;
    EXPECT_EQ(failures().time, ++times) << fault;
  }
  EXPECT_TRUE(Compile(kPlain).ok());
}

TEST_F(CompileTrialTest, TheMemoryLimitEndsWhatGrowsForEver) {
  const Status status = Compile(Marked("memory:compile"));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(Message(status), HasSubstr("256 MiB of memory"));
  EXPECT_EQ(failures().memory, 1u);
  EXPECT_TRUE(Compile(kPlain).ok());
}

TEST_F(CompileTrialTest, WhoLeavesTakesTheirTrialAlong) {
  ASSERT_TRUE(Compile(kPlain).ok());  // the process is there
  GrammarLimits limits;
  limits.max_compile_ms = 60'000;
  Make(limits);
  ASSERT_TRUE(Compile(kPlain).ok());
  const std::vector<pid_t> processes = ChildrenOf(getpid());
  ASSERT_EQ(processes.size(), 1u);
  ASSERT_TRUE(Soon([&] { return ChildrenOf(processes[0]).empty(); }));
  std::atomic<bool> wanted{true};
  Status status;
  std::thread waits([&] {
    status =
        Compile(Marked("loop:compile"), {[&] { return wanted.load(); }, {}});
  });
  EXPECT_TRUE(Soon([&] { return ChildrenOf(processes[0]).size() == 1; }));
  wanted = false;
  waits.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status;
  EXPECT_TRUE(Soon([&] { return ChildrenOf(processes[0]).empty(); }));
  EXPECT_EQ(failures().time + failures().crashed + failures().memory, 0u);
}

TEST_F(CompileTrialTest, ADeadlineEndsAWait) {
  GrammarLimits limits;
  limits.max_compile_ms = 60'000;
  Make(limits);
  ASSERT_TRUE(Compile(kPlain).ok());
  const Status status = Compile(Marked("loop:compile"),
                                {nullptr, Clock::now() + milliseconds(100)});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(RetryAfterSeconds(status).has_value());
}

TEST_F(CompileTrialTest, StoppingEndsTrialsAtOnce) {
  GrammarLimits limits;
  limits.max_compile_ms = 60'000;
  Make(limits);
  ASSERT_TRUE(Compile(kPlain).ok());
  const std::vector<pid_t> processes = ChildrenOf(getpid());
  ASSERT_EQ(processes.size(), 1u);
  Status status;
  std::thread waits([&] { status = Compile(Marked("loop:compile")); });
  EXPECT_TRUE(Soon([&] { return ChildrenOf(processes[0]).size() == 1; }));
  const std::vector<pid_t> trials = ChildrenOf(processes[0]);
  compiler_->StopTrials();
  waits.join();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_TRUE(ChildrenOf(getpid()).empty());
  for (const pid_t trial : trials) {
    EXPECT_TRUE(Soon([&] { return kill(trial, 0) != 0; }));
  }
  // What is in the cache needs no trial.
  EXPECT_TRUE(Compile(kPlain).ok());
  EXPECT_EQ(Compile({Kind::kRegex, "a"}).code(), StatusCode::kUnavailable);
}

TEST_F(CompileTrialTest, AProcessThatEndsIsStartedAgain) {
  ASSERT_TRUE(Compile(kPlain).ok());
  const std::vector<pid_t> processes = ChildrenOf(getpid());
  ASSERT_EQ(processes.size(), 1u);
  kill(processes[0], SIGTERM);  // of a terminal: it is for this process
  EXPECT_TRUE(Compile({Kind::kRegex, "a"}).ok());
  kill(processes[0], SIGKILL);
  EXPECT_TRUE(Compile({Kind::kRegex, "ab"}).ok());
  EXPECT_NE(ChildrenOf(getpid()), processes);
}

TEST_F(CompileTrialTest, WithoutAProcessWorkIsRefusedInTime) {
  GrammarCompiler::Options options;
  options.trial_program = "/no/such/program";
  compiler_ = *GrammarCompiler::Create(
      *tokenizer_, tokenizer_->vocab_size(),
      std::vector<TokenId>{*tokenizer_->TokenToId("<|im_end|>")}, options);
  const Status status =
      Compile(kPlain, {nullptr, Clock::now() + milliseconds(100)});
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_TRUE(RetryAfterSeconds(status).has_value());
}

TEST_F(CompileTrialTest, ATrialHasNoDescriptorsOfTheProcess) {
  ASSERT_TRUE(Compile(kPlain).ok());
  const std::vector<pid_t> processes = ChildrenOf(getpid());
  ASSERT_EQ(processes.size(), 1u);
  const auto num_open = [&] {
    DIR* const folder =
        opendir(("/proc/" + std::to_string(processes[0]) + "/fd").c_str());
    int count = 0;
    while (const dirent* entry = readdir(folder)) {
      if (entry->d_name[0] != '.') ++count;
    }
    closedir(folder);
    return count;
  };
  // stdin, stdout, stderr, its own socket and /dev/null.
  EXPECT_TRUE(Soon([&] { return num_open() == 5; })) << num_open();
}

}  // namespace
}  // namespace sluice::testing

int main(int argc, char** argv) {
  if (sluice::IsCompileProcess(argc, argv)) return sluice::RunCompileProcess();
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
