#include "common/tools/eval/logits_file.h"

#include <gtest/gtest.h>

#include "tests/testing/test_data.h"

namespace sluice::eval {
namespace {

TEST(LogitsFileTest, HoldsIdsAndLogitsAsSafetensors) {
  const std::string path = ::testing::TempDir() + "/cli_logits.safetensors";
  ASSERT_TRUE(WriteLogitsFile(path, {7, 9}, {3, {1, 2, 3, 4, 5, 6}}).ok());
  const std::string bytes = sluice::testing::ReadFileOrDie(path);
  uint64_t header_bytes = 0;
  ASSERT_GT(bytes.size(), sizeof(header_bytes));
  bytes.copy(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  EXPECT_EQ(header_bytes % 8, 0u);
  ASSERT_EQ(bytes.size(), 8 + header_bytes + 2 * 8 + 6 * 4);
  EXPECT_NE(bytes.find(R"("logits":{"dtype":"F32","shape":[2,3],)"
                       R"("data_offsets":[16,40]})"),
            std::string::npos);
  float last = 0;
  bytes.copy(reinterpret_cast<char*>(&last), 4, bytes.size() - 4);
  EXPECT_EQ(last, 6.0f);
}

TEST(LogitsFileTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_EQ(WriteLogitsFile("/nowhere/x", {}, {}).code(),
            StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice::eval
