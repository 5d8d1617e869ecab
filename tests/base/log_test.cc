// The log: its lines, and that nothing waits for whoever reads them.
#include "common/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/base/log_line.h"
#include "common/base/log_writer.h"
#include "tests/testing/captured_stderr.h"

namespace sluice {
namespace {

using ::testing::EndsWith;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::KilledBySignal;
using ::testing::Not;

constexpr int kLines = 100000;

class LogTest : public testing::Test {
 protected:
  LogTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  ~LogTest() override { EXPECT_TRUE(SetUpLog("text", "info").ok()); }
};

struct Pipe {
  Pipe() { EXPECT_EQ(pipe(ends), 0); }
  ~Pipe() {
    for (int end : ends) close(end);
  }
  int reader() const { return ends[0]; }
  int writer() const { return ends[1]; }
  int ends[2] = {-1, -1};
};

void LogMany() {
  for (int i = 0; i < kLines; ++i) LogInfo("line ", i, " of many");
}

// Reads lines until one of them ends with `last`.
std::vector<std::string> ReadUntil(int fd, const std::string& last) {
  std::string text;
  while (text.find(last + "\n") == std::string::npos) {
    char piece[4096];
    const ssize_t bytes = read(fd, piece, sizeof(piece));
    if (bytes <= 0) break;
    text.append(piece, static_cast<size_t>(bytes));
  }
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The count in a line that tells of dropped lines; 0 in any other line.
uint64_t DropsTold(const std::string& line) {
  static const std::regex told(
      ".* ([0-9]+) lines of the log were dropped: stderr did not take them, or "
      "there was too little memory");
  std::smatch match;
  return std::regex_match(line, match, told) ? std::stoull(match[1]) : 0;
}

// The writer may get further between two losses: they are told one by one.
TEST_F(LogTest, AStderrThatNobodyReadsHoldsUpNobodyAndDropsAreTold) {
  Pipe pipe;
  const uint64_t before = LogLinesDropped();
  ReplacedStderr replaced(pipe.writer());
  LogMany();  // 5 MB: it would block after 64 KiB
  const uint64_t dropped = LogLinesDropped() - before;
  EXPECT_GT(dropped, uint64_t{kLines} / 2);
  EXPECT_FALSE(FlushLog(std::chrono::milliseconds(1)));
  // Somebody reads again.
  std::thread more([] {
    EXPECT_TRUE(FlushLog(std::chrono::seconds(60)));
    LogInfo("and on");
  });
  const auto lines = ReadUntil(pipe.reader(), "and on");
  more.join();
  uint64_t told = 0;
  size_t written = 0;
  int64_t last = -1;
  const std::regex one_of_many(".* I line ([0-9]+) of many");
  for (const std::string& line : lines) {
    std::smatch match;
    if (std::regex_match(line, match, one_of_many)) {
      EXPECT_GT(std::stoll(match[1]), last);
      last = std::stoll(match[1]);
      ++written;
    } else if (DropsTold(line) > 0) {
      told += DropsTold(line);
    } else {
      EXPECT_THAT(line, EndsWith(" I and on"));
    }
  }
  EXPECT_EQ(told, dropped);
  EXPECT_EQ(written + dropped, size_t{kLines});
  EXPECT_EQ(LogLinesDropped() - before, dropped);
}

TEST_F(LogTest, AClosedPipeCountsItsLinesAndIsNoEnd) {
  const uint64_t before = LogLinesDropped();
  {
    Pipe pipe;
    ReplacedStderr replaced(pipe.writer());
    close(std::exchange(pipe.ends[0], -1));
    LogInfo("into the void");
    EXPECT_TRUE(FlushLog(std::chrono::seconds(10)));
    EXPECT_EQ(LogLinesDropped() - before, 1u);
  }
  CapturedStderr captured;
  LogInfo("heard again");
  const std::string text = captured.Text();
  EXPECT_THAT(text, HasSubstr("heard again\n"));
  EXPECT_THAT(text, HasSubstr("1 lines of the log were dropped"));
}

TEST_F(LogTest, LinesOfSeveralThreadsStayWhole) {
  CapturedStderr captured;
  const auto log = [](int who) {
    for (int i = 0; i < 500; ++i) LogInfo("thread ", who, " says ", i, ".");
  };
  std::thread one(log, 1), two(log, 2);
  one.join();
  two.join();
  std::istringstream in(captured.Text());
  const std::regex whole("[-0-9T:.]+Z I thread [12] says [0-9]+\\.");
  int lines = 0;
  for (std::string line; std::getline(in, line); ++lines) {
    ASSERT_TRUE(std::regex_match(line, whole)) << line;
  }
  EXPECT_EQ(lines, 1000);
}

TEST_F(LogTest, LevelsLeaveOutWhatIsBelowThem) {
  CapturedStderr captured;
  ASSERT_TRUE(SetUpLog("text", "warning").ok());
  LogInfo("an info");
  LogWarning("a warning");
  LogError("an error");
  LogFields("asked for", {});
  EXPECT_THAT(captured.Text(), Not(HasSubstr("an info")));
  EXPECT_THAT(captured.Text(), HasSubstr("Z W a warning\n"));
  EXPECT_THAT(captured.Text(), HasSubstr("Z E an error\n"));
  EXPECT_THAT(captured.Text(), HasSubstr("Z I asked for\n"));
}

TEST_F(LogTest, OtherWordsForFormatAndLevelAreRefusedByFlag) {
  EXPECT_THAT(std::string(SetUpLog("xml", "info").message()),
              HasSubstr("--log-format must be text or json, got 'xml'"));
  EXPECT_THAT(std::string(SetUpLog("json", "loud").message()),
              HasSubstr("--log-level must be debug, info, warning or error, "
                        "got 'loud'"));
}

TEST_F(LogTest, TextEscapesControlCharactersAndQuotesWhatIsNotPlain) {
  const std::string line = FormatLogLine(LogLevel::kInfo, "a\nb\x7f",
                                         {{"path", "/v1/chat"},
                                          {"key", "it's \"mine\" \\\r\n"},
                                          {"empty", ""},
                                          {"tokens", int64_t{17}},
                                          {"ms", 2.5}});
  EXPECT_THAT(line,
              EndsWith("Z I a\\nb\\x7f path=/v1/chat key=\"it's \\\"mine\\\" "
                       "\\\\\\x0d\\n\" empty=\"\" tokens=17 ms=2.5\n"));
}

TEST_F(LogTest, JsonIsOneObjectPerLineOfAsciiAlone) {
  ASSERT_TRUE(SetUpLog("json", "info").ok());
  const std::string line =
      FormatLogLine(LogLevel::kWarning, "a\nb\x7f \xff \u00e9",
                    {{"key", "k\"\x01"}, {"tokens", int64_t{17}}, {"ms", 2.5}});
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  for (char c : line.substr(0, line.size() - 1)) {
    ASSERT_TRUE(c >= 0x20 && c < 0x7f) << line;
  }
  const auto json = ParseJson(line);
  ASSERT_TRUE(json.ok()) << line;
  EXPECT_EQ((*json)["level"], "warning");
  EXPECT_EQ((*json)["message"], "a\nb\x7f \uFFFD \u00e9");
  EXPECT_EQ((*json)["key"], "k\"\x01");
  EXPECT_EQ((*json)["tokens"], 17);
  EXPECT_EQ((*json)["ms"], 2.5);
  EXPECT_TRUE(std::regex_match(
      (*json)["ts"].get<std::string>(),
      std::regex("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z")));
}

TEST_F(LogTest, ALongTextIsCut) {
  EXPECT_EQ(
      FormatLogLine(LogLevel::kInfo, std::string(1 << 20, 'x')).size(),
      (16u << 10) + std::string("2026-01-31T12:00:00.123Z I ...\n").size());
}

TEST_F(LogTest, ExitWritesWhatWaits) {
  EXPECT_EXIT(
      {
        for (int i = 0; i < 100; ++i) LogInfo("line ", i);
        LogInfo("last words");
        exit(0);
      },
      ExitedWithCode(0), "line 99(.|\n)*last words");
}

TEST_F(LogTest, AFailedCheckIsTheLastLine) {
  EXPECT_DEATH(
      {
        LogInfo("before it");
        SLUICE_CHECK(1 == 2);
      },
      "before it(.|\n)*log_test.cc:[0-9]+: check failed: 1 == 2");
}

TEST_F(LogTest, AFailedCheckEndsTheProcessAlsoIfNobodyReads) {
  Pipe pipe;
  EXPECT_EXIT(
      {
        dup2(pipe.writer(), STDERR_FILENO);
        LogMany();
        SLUICE_CHECK(1 == 2);
      },
      KilledBySignal(SIGABRT), "");
}

}  // namespace
}  // namespace sluice
