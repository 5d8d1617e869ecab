// One open model, many readers: a binary of its own, since ThreadSanitizer need
// not see the rest.
#include <gtest/gtest.h>

#include <string_view>
#include <thread>
#include <vector>

#include "common/model_config/open_model.h"
#include "common/weights/model_file.h"
#include "tests/weights/model_files.h"

namespace sluice::weights {
namespace {

using sluice::testing::TempDir;
using sluice::testing::TinyLlama;

TEST(ModelThreadsTest, ManyThreadsReadAtOnce) {
  const TempDir dir;
  const auto model =
      sluice::OpenModel(dir.Write("tiny.gguf", TinyLlama().Build()));
  ASSERT_TRUE(model.ok()) << model.status();
  constexpr std::string_view kName = "model.layers.1.self_attn.q_proj.weight";
  const TensorInfo* info = (*model)->Find(kName);
  ASSERT_NE(info, nullptr);
  const auto read = [&] {
    std::vector<float> values(static_cast<size_t>(info->elements()));
    const Status status =
        (*model)->ReadF32(kName, Slice::All(*info), values.data());
    EXPECT_TRUE(status.ok()) << status;
    return values;
  };
  const std::vector<float> expected = read();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) EXPECT_EQ(read(), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace sluice::weights
