#include "common/weights/quantize.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/block_fit.h"

namespace sluice::weights {
namespace {

using ::testing::HasSubstr;

std::vector<float> Waves(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(0.37f * static_cast<float>(i)) *
                (1.0f + static_cast<float>(i % 7));
  }
  return values;
}

std::string Bytes(const Buffer& buffer) {
  return {buffer.as<char>(), buffer.size()};
}

TEST(QuantizeTest, EachRowHasTheImportanceOfItsColumns) {
  constexpr int64_t kCols = 512;
  constexpr int64_t kRows = 300;  // several tasks
  const std::vector<float> x = Waves(kRows * kCols);
  std::vector<float> importance(kCols);
  for (size_t k = 0; k < importance.size(); ++k) {
    importance[k] = k % 5 == 0 ? 30.0f : 1.0f;
  }
  const auto made =
      Quantize(DType::kQ4K, x.data(), kRows * kCols, {importance});
  ASSERT_TRUE(made.ok()) << made.status();
  std::string rows;
  std::string row(static_cast<size_t>(2 * 144), '\0');
  for (int64_t r = 0; r < kRows; ++r) {
    kernels::FitBlocks(kernels::BlockFormat::kQ4K, x.data() + r * kCols,
                       importance.data(), 2,
                       reinterpret_cast<uint8_t*>(row.data()));
    rows += row;
  }
  EXPECT_TRUE(Bytes(made->bytes) == rows);
  const auto without = Quantize(DType::kQ4K, x.data(), kRows * kCols);
  EXPECT_FALSE(Bytes(without->bytes) == rows);
  EXPECT_LT(without->relative_error, made->relative_error);
}

TEST(QuantizeTest, ThreadsGiveTheSameBytes) {
  const std::vector<float> x = Waves(1000 * 256);
  ThreadTeam team({.num_threads = 3});
  for (const DType type : {DType::kQ6K, DType::kQ8_0}) {
    const auto alone = Quantize(type, x.data(), 1000 * 256);
    const auto spread =
        Quantize(type, x.data(), 1000 * 256, {.executor = &team});
    EXPECT_TRUE(Bytes(alone->bytes) == Bytes(spread->bytes)) << type;
    EXPECT_EQ(alone->relative_error, spread->relative_error);
  }
}

TEST(QuantizeTest, AnElementThatIsNoNumberIsRefusedWhereBlocksAreFitted) {
  std::vector<float> x = Waves(512);
  x[300] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(Message(Quantize(DType::kMxfp4, x.data(), 512).status()),
              HasSubstr("element 300 of 512 is nan"));
  EXPECT_TRUE(Quantize(DType::kQ8_0, x.data(), 512).ok());
  const std::vector<float> ones(512, 1.0f);
  EXPECT_FALSE(Quantize(DType::kQ8_0, x.data(), 512, {ones}).ok());
  x[300] = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(Message(Quantize(DType::kQ2K, x.data(), 512).status()),
              HasSubstr("element 300 of 512 is -inf"));
}

}  // namespace
}  // namespace sluice::weights
