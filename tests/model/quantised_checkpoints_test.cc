// Models from checkpoints of GPTQ, AWQ, compressed-tensors and FP8: the answers
// of their elements, over every cut.

#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/weights/model_file.h"
#include "tests/device/apart_backend.h"
#include "tests/model/expect_same.h"
#include "tests/model/pipeline.h"
#include "tests/model/random_fp8_llama.h"
#include "tests/testing/golden_model.h"
#include "tests/weights/model_files.h"
#include "tests/weights/quantised_matrix.h"

namespace sluice::testing {
namespace {

using weights::TensorInfo;

bool IsF8(CheckpointKind kind) {
  return kind == CheckpointKind::kF8Channel ||
         kind == CheckpointKind::kF8Blocks;
}

// The quantised checkpoint of a model, and the F32 checkpoint of its elements.
class Twins {
 public:
  Twins(const std::string& from, CheckpointKind kind, int bits,
        bool symmetric) {
    const auto model = weights::OpenModel(from);
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return;
    SafetensorsBuilder quantised;
    SafetensorsBuilder wide;
    QuantisedMatrix matrix;
    for (const TensorInfo& info : (*model)->tensors()) {
      std::vector<float> values(static_cast<size_t>(info.elements()));
      EXPECT_TRUE(
          (*model)
              ->ReadF32(info.name, weights::Slice::All(info), values.data())
              .ok());
      if (info.name.ends_with("_proj.weight")) {
        const bool whole_rows = kind == CheckpointKind::kInt8 || IsF8(kind);
        const int64_t cols = info.cols();
        const int64_t group = whole_rows ? cols : cols % 32 == 0 ? 32 : cols;
        matrix = Quantised(values, info.rows(), cols, group, bits, symmetric);
        if (IsF8(kind)) {
          // Codes with seven bits set are no numbers.
          for (int& code : matrix.codes) code = code % 128 == 127 ? 9 : code;
        }
        const std::string stem = info.name.substr(0, info.name.size() - 7);
        AddQuantised(kind, stem, matrix, quantised);
        ++num_matrices_;
        for (int64_t r = 0; r < info.rows(); ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            values[static_cast<size_t>(r * cols + c)] = matrix.At(r, c);
          }
        }
      } else {
        quantised.Tensor(info.name, "F32", info.shape, BytesOf(values));
      }
      wide.Tensor(info.name, "F32", info.shape, BytesOf(values));
    }
    Json config = (*model)->config();
    wide_.Write("config.json", DumpJson(config));
    wide_.Write("model.safetensors", wide.Build());
    config["quantization_config"] =
        *ParseJson(QuantisationConfig(kind, matrix));
    quantised_.Write("config.json", DumpJson(config));
    quantised_.Write("model.safetensors", quantised.Build());
  }

  int num_matrices() const { return num_matrices_; }
  const std::string& quantised() const { return quantised_.path(); }
  const std::string& wide() const { return wide_.path(); }

 private:
  const TempDir quantised_;
  const TempDir wide_;
  int num_matrices_ = 0;
};

std::vector<Ask> CheckpointAsks() {
  std::vector<Ask> asks;
  for (int i = 0; i < 4; ++i) {
    Ask ask;
    for (int t = 0; t < 2 + 9 * i; ++t) {
      ask.prompt.push_back(static_cast<TokenId>((i * 37 + t * 11) % 250));
    }
    ask.sampling.temperature = i % 2 == 0 ? 0.0f : 0.7f;
    ask.sampling.seed = 40 + static_cast<uint64_t>(i);
    ask.sampling.logprobs = 2;
    ask.max_tokens = 6;
    asks.push_back(ask);
  }
  return asks;
}

struct CheckpointCut {
  int32_t stages = 1;
  int32_t ranks = 1;
  WeightsMode weights = WeightsMode::kAuto;
  Drive drive;
  Device device = Device::kCpu;
  KvChoice kv_type = kernels::WeightType::kF32;
};

std::vector<Answer> CheckpointAnswers(const std::string& path,
                                      const CheckpointCut& cut) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.ranks = cut.ranks;
  options.stage.threads = 1;
  options.stage.weights = cut.weights;
  options.stage.kv_blocks = 64;
  options.stage.kv_type = cut.kv_type;
  options.stage.make_backends = FactoryOf(cut.device);
  options.stages = cut.stages;
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  return (*pipeline)->Generate(CheckpointAsks(), cut.drive);
}

using Written = std::tuple<const char*, CheckpointKind, int, bool>;
class QuantisedCheckpointsTest : public ::testing::TestWithParam<Written> {};

TEST_P(QuantisedCheckpointsTest, F32HasTheAnswersOfTheElements) {
  const auto& [name, kind, bits, symmetric] = GetParam();
  const std::string path = GoldenModel("qwen3_moe");
  const Twins twins(path, kind, bits, symmetric);
  EXPECT_GT(twins.num_matrices(), 3 * 8 * 3);
  const CheckpointCut f32 = {1, 1, WeightsMode::kF32};
  ExpectSame(CheckpointAnswers(twins.quantised(), f32),
             CheckpointAnswers(twins.wide(), f32));
}

TEST_P(QuantisedCheckpointsTest, EveryCutHasTheBitsOfOneUncutRun) {
  const auto& [name, kind, bits, symmetric] = GetParam();
  const std::string path = GoldenModel("qwen3_moe");
  const Twins twins(path, kind, bits, symmetric);
  const WeightsMode kAuto = WeightsMode::kAuto;
  // Keys and values in F32, and as auto keeps them: in BF16.
  for (const KvChoice kv_type :
       {KvChoice(kernels::WeightType::kF32), KvChoice(std::nullopt)}) {
    CheckpointCut whole;
    whole.kv_type = kv_type;
    const auto uncut = CheckpointAnswers(twins.quantised(), whole);
    for (CheckpointCut cut :
         {CheckpointCut{2, 2, kAuto, {5, 3}},
          CheckpointCut{3, 1, kAuto, {1 << 20, 2}},
          CheckpointCut{1, 2, kAuto, {7, 4}, Device::kApart}}) {
      cut.kv_type = kv_type;
      ExpectSame(CheckpointAnswers(twins.quantised(), cut), uncut);
    }
  }
  // Told by its name, BF16 has the same bits.
  CheckpointCut named = {2, 1, kAuto, {9, 4}};
  named.kv_type = kernels::WeightType::kBf16;
  CheckpointCut chosen;
  chosen.kv_type = std::nullopt;
  ExpectSame(CheckpointAnswers(twins.quantised(), named),
             CheckpointAnswers(twins.quantised(), chosen));
}

// Where heads are whole runs of codes, sums are cut as those of F32: FP8 as it
// is stored has the bits of its elements as F32.
TEST(Fp8CheckpointsTest, StoredAndWidenedHaveTheSameBitsInAnyCut) {
  const std::string whole_heads = GoldenModel("glm4_moe-46");
  const std::string half_heads = GoldenModel("qwen3_moe");
  for (const auto& [path, mode] : {std::pair(whole_heads, WeightsMode::kF32),
                                   std::pair(half_heads, WeightsMode::kAuto)}) {
    for (const CheckpointKind kind :
         {CheckpointKind::kF8Channel, CheckpointKind::kF8Blocks}) {
      SCOPED_TRACE(path);
      const Twins twins(path, kind, 8, /*symmetric=*/true);
      const auto want = CheckpointAnswers(twins.quantised(), {1, 1, mode});
      const WeightsMode kAuto = WeightsMode::kAuto;
      for (const CheckpointCut& cut :
           {CheckpointCut{}, CheckpointCut{2, 2, kAuto, {5, 3}},
            CheckpointCut{1, 2, kAuto, {7, 4}, Device::kApart}}) {
        ExpectSame(CheckpointAnswers(twins.quantised(), cut), want);
      }
      StageOptions options;
      options.model_path = twins.quantised();
      options.kv_blocks = 64;
      const auto stage = Stage::Load(options);
      ASSERT_TRUE(stage.ok()) << stage.status();
      EXPECT_EQ((*stage)->info().weights_dtype, "f32+fp8");
    }
  }
}

// The same of runs of 128 codes, also beside an output of attention that is not
// FP8 and ends its shards elsewhere.
TEST(Fp8CheckpointsTest, WideRunsHaveTheSameBitsInAnyCut) {
  for (const int64_t head_dim : {128, 80}) {
    const TempDir dir;
    WriteFp8Llama(dir, /*vocab=*/250, head_dim);
    const auto want = CheckpointAnswers(dir.path(), {1, 1, WeightsMode::kF32});
    const WeightsMode kAuto = WeightsMode::kAuto;
    for (const CheckpointCut& cut :
         {CheckpointCut{}, CheckpointCut{1, 2, kAuto, {5, 3}},
          CheckpointCut{1, 4, kAuto, {7, 4}, Device::kApart}}) {
      ExpectSame(CheckpointAnswers(dir.path(), cut), want);
    }
    StageOptions options;
    options.model_path = dir.path();
    options.kv_blocks = 64;
    const auto stage = Stage::Load(options);
    ASSERT_TRUE(stage.ok()) << stage.status();
    EXPECT_EQ((*stage)->info().weights_dtype, "f32+fp8_128") << head_dim;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, QuantisedCheckpointsTest,
    ::testing::Values(Written{"Gptq", CheckpointKind::kGptq, 4, true},
                      Written{"Awq", CheckpointKind::kAwq, 4, false},
                      Written{"Packed", CheckpointKind::kPacked, 4, false},
                      Written{"Int8", CheckpointKind::kInt8, 8, true}),
    [](const auto& tested) { return std::string(std::get<0>(tested.param)); });

}  // namespace
}  // namespace sluice::testing
