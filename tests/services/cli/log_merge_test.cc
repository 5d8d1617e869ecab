#include "services/cli/log_merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/base/cat.h"

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;

class LogMergeTest : public ::testing::Test {
 protected:
  LogMergeTest() { std::filesystem::create_directories(folder_); }
  ~LogMergeTest() override { std::filesystem::remove_all(folder_); }

  std::string PathOf(const std::string& name) const {
    return Cat(folder_, "/", name, ".log");
  }
  void Write(const std::string& name, const std::string& text,
             std::ios::openmode mode = std::ios::trunc) const {
    std::ofstream(PathOf(name), std::ios::out | mode) << text;
  }
  static std::vector<std::string> TextsOf(const std::vector<LogLine>& lines) {
    std::vector<std::string> texts;
    for (const LogLine& line : lines) texts.push_back(line.text);
    return texts;
  }
  static std::vector<std::string> New(LogFile& file) {
    std::vector<LogLine> lines;
    file.ReadNew(lines);
    return TextsOf(lines);
  }

  const std::string folder_ = Cat(::testing::TempDir(), "logs-", getpid());
};

std::string At(int second, const std::string& text) {
  return Cat("2026-01-02T03:04:0", second, ".000Z I ", text, "\n");
}

TEST_F(LogMergeTest, LinesOfTwoLogsAreInTheOrderOfTheirTimes) {
  Write("stage-0", At(1, "a") + "  more of a\n" + At(4, "d"));
  Write("gateway", At(2, "b") + At(3, "c"));
  std::vector<LogLine> lines;
  for (const char* name : {"gateway", "stage-0"}) {
    LogFile(PathOf(name)).ReadLast(10, true, lines);
  }
  MergeByTime(lines);
  std::vector<std::string> logs;
  for (const LogLine& line : lines) logs.push_back(line.log);
  EXPECT_THAT(
      logs, ElementsAre("stage-0", "stage-0", "gateway", "gateway", "stage-0"));
  EXPECT_EQ(lines[1].text, "  more of a");
}

TEST_F(LogMergeTest, TheTimeIsTakenFromTextAndFromJson) {
  EXPECT_EQ(TimeOf("2026-01-02T03:04:05.678Z I ready"),
            "2026-01-02T03:04:05.678Z");
  EXPECT_EQ(TimeOf(R"({"ts":"2026-01-02T03:04:05.678Z","level":"info"})"),
            "2026-01-02T03:04:05.678Z");
  for (const char* line :
       {"", "ready", "2026-01-02T03:04:05.678", "2026-01-02 03:04:05.678Z I"}) {
    EXPECT_EQ(TimeOf(line), "") << line;
  }
}

TEST_F(LogMergeTest, TheLastLinesOfALongFileAreFound) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += Cat("line ", i, "\n");
  Write("stage-0", text + "open");
  LogFile file(PathOf("stage-0"));
  std::vector<LogLine> lines;
  file.ReadLast(2, false, lines);
  EXPECT_THAT(TextsOf(lines), ElementsAre("line 19998", "line 19999"));
  Write("stage-0", "ed\n", std::ios::app);
  EXPECT_THAT(New(file), ElementsAre("opened"));
  lines.clear();
  file.ReadLast(100000, true, lines);
  EXPECT_EQ(lines.size(), 20001);
}

// Read from the end in chunks, each copied once: 64 MB would take minutes where
// every chunk copies what is behind it.
TEST_F(LogMergeTest, AllLinesOfALargeFileAreRead) {
  constexpr size_t kLines = 32'000;
  const std::string line(2000, 'x');
  std::string text;
  for (size_t i = 0; i < kLines; ++i) text += Cat(i, line, "\n");
  Write("stage-0", text);
  LogFile file(PathOf("stage-0"));
  std::vector<LogLine> lines;
  file.ReadLast(1'000'000'000, true, lines);
  ASSERT_EQ(lines.size(), kLines);
  for (const size_t i : {size_t{0}, size_t{1}, kLines / 2, kLines - 1}) {
    EXPECT_EQ(lines[i].text, Cat(i, line));
  }
}

TEST_F(LogMergeTest, ALineThatIsLongerThanAChunkIsOneLine) {
  const std::string long_line(300'000, 'x');
  Write("stage-0", "first\n" + long_line + "\nlast\n");
  LogFile file(PathOf("stage-0"));
  std::vector<LogLine> lines;
  file.ReadLast(2, true, lines);
  EXPECT_THAT(TextsOf(lines), ElementsAre(long_line, "last"));
  Write("stage-0", "more" + long_line, std::ios::app);
  EXPECT_THAT(New(file), ElementsAre());
  Write("stage-0", "end\n", std::ios::app);
  EXPECT_THAT(New(file), ElementsAre("more" + long_line + "end"));
}

TEST_F(LogMergeTest, AFileThatIsCutOrReplacedIsReadFromItsBeginning) {
  Write("stage-0", "one\ntwo\n");
  LogFile file(PathOf("stage-0"));
  EXPECT_THAT(New(file), ElementsAre("one", "two"));
  EXPECT_THAT(New(file), ElementsAre());
  Write("stage-0", "cut\n");
  EXPECT_THAT(New(file), ElementsAre("cut"));
  std::filesystem::rename(PathOf("stage-0"), PathOf("stage-0") + ".1");
  Write("stage-0", "another file\n");
  EXPECT_THAT(New(file), ElementsAre("another file"));
  std::filesystem::remove(PathOf("stage-0"));
  EXPECT_THAT(New(file), ElementsAre());
}

}  // namespace
}  // namespace sluice::cli
