// The models that tests/testing/make_model.py makes are models.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/stop_ids.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/model_file.h"
#include "tests/weights/model_files.h"

namespace sluice {
namespace {

using sluice::testing::TempDir;

// Makes a model in `dir` and opens it.
std::unique_ptr<weights::ModelFile> Make(const TempDir& dir,
                                         std::string_view options) {
  const std::string command =
      Cat("python3 '", SLUICE_SOURCE_DIR, "/tests/testing/make_model.py' ",
          options, " --out '", dir.path(), "'");
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  auto model = OpenModel(dir.path());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

std::vector<float> Read(const weights::ModelFile& model,
                        const weights::TensorInfo& info) {
  std::vector<float> values(static_cast<size_t>(info.elements()));
  const Status status =
      model.ReadF32(info.name, weights::Slice::All(info), values.data());
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

TEST(MakeModelTest, EveryLayoutPassesTheChecksOfAStage) {
  for (const char* options :
       {"--preset tiny", "--dtype f32 --no-tie --shards 3",
        "--layers 3 --hidden 48 --heads 6 --kv-heads 3 --head-dim 10 "
        "--intermediate 100 --vocab 99 --llama3 --shards 2",
        "--preset glm-tiny --mtp --shards 2",
        "--preset glm-tiny --no-qk-norm --dtype f32 --shared-experts 0",
        "--preset qwen3moe-tiny --sparse-step 2 --mlp-only-layers 1,9",
        "--preset gptoss-tiny", "--preset gptoss-tiny --experts-dtype bf16"}) {
    const TempDir dir;
    const auto model = Make(dir, options);
    ASSERT_NE(model, nullptr);
    const auto config = ParseModelConfig(model->config());
    ASSERT_TRUE(config.ok()) << config.status();
    const Status status = CheckTensors(*config, *model);
    EXPECT_TRUE(status.ok()) << status;
    const auto stops = StopIds(model->config(), model->generation_config(),
                               config->vocab_size);
    EXPECT_EQ(stops, (std::vector<TokenId>{2, 3}));
    for (const auto& info : model->tensors()) {
      if (info.dtype == weights::DType::kU8) continue;  // MXFP4
      double squares = 0;
      for (const float value : Read(*model, info)) {
        ASSERT_TRUE(std::isfinite(value)) << info.name;
        squares += double{value} * value;
      }
      const double rms = std::sqrt(squares / double(info.elements()));
      EXPECT_GT(rms, 0.01) << info.name;
      EXPECT_LT(rms, 1.1) << info.name;
    }
  }
}

TEST(MakeModelTest, ShardingDoesNotChangeAWeightAndTheSeedDoes) {
  const TempDir whole_dir, sharded_dir, other_dir;
  const auto whole = Make(whole_dir, "--seed 5");
  const auto sharded = Make(sharded_dir, "--seed 5 --shards 4");
  const auto other = Make(other_dir, "--seed 6");
  ASSERT_TRUE(whole && sharded && other);
  EXPECT_EQ(*weights::ComputeIdentity(*whole),
            *weights::ComputeIdentity(*sharded));
  for (const auto& info : whole->tensors()) {
    EXPECT_EQ(Read(*whole, info), Read(*sharded, info)) << info.name;
    EXPECT_NE(Read(*whole, info), Read(*other, info)) << info.name;
  }
}

}  // namespace
}  // namespace sluice
