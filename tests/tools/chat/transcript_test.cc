#include "common/tools/chat/transcript.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <string>

#include "common/base/text_file.h"

namespace sluice::chat {
namespace {

using ::testing::HasSubstr;

class TranscriptTest : public ::testing::Test {
 protected:
  ~TranscriptTest() override { std::remove(path_.c_str()); }

  Status LoadOf(const std::string& text) {
    EXPECT_TRUE(WriteTextFile(path_, text).ok());
    return LoadTranscript(path_).status();
  }

  const std::string path_ = ::testing::TempDir() + "transcript_test.json";
};

TEST_F(TranscriptTest, WhatIsSavedIsLoaded) {
  const Transcript said{"Answer in rhyme.",
                        {{"temperature", 0.5}, {"stop", "\n"}},
                        {{true, "a\nb"}, {false, "\x1b[2J"}}};
  ASSERT_TRUE(SaveTranscript(said, path_).ok());
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const auto loaded = LoadTranscript(path_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->system, said.system);
  EXPECT_EQ(loaded->settings, said.settings);
  EXPECT_EQ(loaded->messages, said.messages);
  EXPECT_TRUE(SaveTranscript({}, path_).ok());  // in the place of a chat
  EXPECT_TRUE(LoadTranscript(path_)->messages.empty());
}

TEST_F(TranscriptTest, AFileThatIsNoChatIsLeftAsItIs) {
  ASSERT_TRUE(WriteTextFile(path_, "precious").ok());
  const Status saved = SaveTranscript({}, path_);
  EXPECT_EQ(saved.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(saved), HasSubstr(path_));
  EXPECT_EQ(*ReadTextFile(path_), "precious");
}

TEST_F(TranscriptTest, ABodyOfAClientIsLoadedWithoutItsStream) {
  ASSERT_TRUE(LoadOf(R"({"stream": true, "seed": 1, "messages": [
      {"role": "developer", "content": "s"},
      {"role": "user", "content": [{"type": "text", "text": "a"},
                                   {"type": "text", "text": "b"}]}]})")
                  .ok());
  const auto loaded = LoadTranscript(path_);
  EXPECT_EQ(loaded->system, "s");
  EXPECT_EQ(loaded->messages, (std::vector<ChatMessage>{{true, "ab"}}));
  EXPECT_EQ(loaded->settings, (Json{{"seed", 1}}));
}

TEST_F(TranscriptTest, WhatAChatHasNotIsRefusedByItsPlace) {
  EXPECT_THAT(Message(LoadOf("{}")), HasSubstr("messages"));
  EXPECT_THAT(Message(LoadOf("no")), HasSubstr(path_));
  EXPECT_THAT(Message(LoadOf(R"({"messages": [7]})")),
              HasSubstr("messages[0]"));
  EXPECT_THAT(
      Message(LoadOf(R"({"messages": [{"role": "tool", "content": "x"}]})")),
      HasSubstr("messages[0].role is 'tool'"));
  EXPECT_THAT(Message(LoadOf(R"({"messages": [{"role": "user", "content": "x"},
                  {"role": "system", "content": "x"}]})")),
              HasSubstr("messages[1].role is 'system'"));
  EXPECT_THAT(Message(LoadOf(R"({"messages": [{"role": "user", "content":
                  [{"type": "image_url"}]}]})")),
              HasSubstr("'image_url'"));
  EXPECT_EQ(LoadTranscript("/no/such").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice::chat
