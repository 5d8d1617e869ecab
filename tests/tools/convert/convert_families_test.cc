// Folders of many families as GGUFs and back: every tensor is the same.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/tools/convert/convert_model.h"
#include "common/weights/model_file.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/test_data.h"
#include "tests/tools/convert/golden_folder.h"

namespace sluice::testing {
namespace {

using weights::DType;
using weights::Slice;
using weights::TensorInfo;

std::vector<float> Values(const weights::ModelFile& model,
                          const std::string& name) {
  const TensorInfo* info = model.Find(name);
  if (info == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(info->elements()));
  EXPECT_TRUE(model.ReadF32(name, Slice::All(*info), values.data()).ok());
  return values;
}

class ConvertFromGgufFamiliesTest
    : public ::testing::TestWithParam<const char*> {};

// Experts' names, q and k as they were, norms without the 1, shapes.
TEST_P(ConvertFromGgufFamiliesTest, EveryTensorIsTheFoldersAgain) {
  const std::string path = GoldenModel(GetParam());
  GoldenFolder folder(path);
  const bool is_gemma = std::string(GetParam()).starts_with("gemma");
  if (is_gemma) folder.config()["query_pre_attn_scalar"] = 24;
  folder.WriteConfig();
  const TempDir dir;
  const std::string gguf = dir.path() + "/model.gguf";
  const std::string out = dir.path() + "/out";
  ASSERT_EQ(
      Message(Convert(folder.path(), gguf, DType::kF32, {{"", DType::kF32}})
                  .status()),
      "");
  ASSERT_EQ(Message(Convert(gguf, out, std::nullopt).status()), "");
  const auto from = *OpenModel(folder.path());
  const auto to = *OpenModel(out);
  for (const TensorInfo& info : from->tensors()) {
    const TensorInfo* found = to->Find(info.name);
    ASSERT_NE(found, nullptr) << info.name;
    EXPECT_EQ(found->shape, info.shape) << info.name;
    const std::vector<float> wanted = Values(*from, info.name);
    const std::vector<float> values = Values(*to, info.name);
    ASSERT_EQ(values.size(), wanted.size());
    const bool has_one = is_gemma && info.name.ends_with("norm.weight");
    for (size_t i = 0; i < values.size(); ++i) {
      // The 1 costs some of a small weight's bits.
      ASSERT_NEAR(values[i], wanted[i], has_one ? 0x1p-22 : 0.0) << info.name;
    }
  }
  auto config = *ParseModelConfig(to->config());
  const auto its = *ParseModelConfig((*OpenModel(gguf))->config());
  EXPECT_EQ(config.norms_add_one, is_gemma);
  config.norms_add_one = its.norms_add_one;
  EXPECT_EQ(config, its);
}

INSTANTIATE_TEST_SUITE_P(
    Goldens, ConvertFromGgufFamiliesTest,
    ::testing::Values("mixtral", "ministral3", "qwen2_moe", "granitemoe",
                      "ernie4_5_moe", "hunyuan_v1_moe", "glm", "phi3",
                      "cohere2", "olmo3", "olmoe", "exaone4", "gemma2",
                      "gemma3_text", "minimax_m2", "dots1"),
    [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace sluice::testing
