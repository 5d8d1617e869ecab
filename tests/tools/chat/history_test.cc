#include "common/tools/chat/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "common/base/text_file.h"

namespace sluice::chat {
namespace {

using ::testing::ElementsAre;

class HistoryTest : public ::testing::Test {
 protected:
  ~HistoryTest() override { std::filesystem::remove_all(folder_); }

  const std::string folder_ = ::testing::TempDir() + "history_test";
  const std::string path_ = folder_ + "/state/chat_history";
};

TEST_F(HistoryTest, PromptsOfSeveralLinesComeBackInAPrivateFile) {
  {
    auto history = History::Open(path_);
    ASSERT_TRUE(history.ok()) << history.status();
    EXPECT_TRUE(history->Add("one\ntwo").ok());
    EXPECT_TRUE(history->Add("one\ntwo").ok());
    EXPECT_TRUE(history->Add("\"é\"").ok());
  }
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const auto history = History::Open(path_);
  ASSERT_TRUE(history.ok());
  EXPECT_THAT(history->entries(), ElementsAre("one\ntwo", "\"é\""));
}

TEST_F(HistoryTest, AFileThatOthersCanReadIsMadePrivate) {
  std::filesystem::create_directories(folder_ + "/state");
  ASSERT_TRUE(WriteTextFile(path_, "\"a\"\n\"cut\nno JSON\n7\n").ok());
  ASSERT_EQ(::chmod(path_.c_str(), 0644), 0);
  const auto history = History::Open(path_);
  ASSERT_TRUE(history.ok());
  EXPECT_THAT(history->entries(), ElementsAre("a"));
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(HistoryTest, TheFileIsBounded) {
  std::filesystem::create_directories(folder_ + "/state");
  std::string text;
  for (size_t i = 0; i < 2 * History::kMaxEntries; ++i) {
    text += "\"" + std::to_string(i) + "\"\n";
  }
  ASSERT_TRUE(WriteTextFile(path_, text).ok());
  auto history = History::Open(path_);
  ASSERT_TRUE(history.ok());
  ASSERT_EQ(history->entries().size(), History::kMaxEntries);
  EXPECT_EQ(history->entries()[0], std::to_string(History::kMaxEntries));
  const auto kept = ReadTextFile(path_);
  ASSERT_TRUE(kept.ok());
  EXPECT_LT(kept->size(), text.size() / 2 + 10 * History::kMaxEntries);
  const std::string large(History::kMaxEntryBytes + 1, 'x');
  EXPECT_TRUE(history->Add(large).ok());
  EXPECT_EQ(history->entries().back(), large);
  EXPECT_EQ(ReadTextFile(path_)->size(), kept->size());
}

TEST_F(HistoryTest, AFileThatCannotBeIsAnError) {
  EXPECT_EQ(History::Open("/proc/none/x").status().code(),
            StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice::chat
