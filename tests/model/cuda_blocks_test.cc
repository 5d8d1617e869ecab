// Models of quantised blocks and of FP8 in fast numerics: close to the same
// weights in F32, and one hash however requests, ranks and stages are cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "tests/device/cuda/device_backends.h"
#include "tests/model/expect_same.h"
#include "tests/model/pipeline.h"
#include "tests/model/random_fp8_llama.h"
#include "tests/model/random_llama.h"

namespace sluice::testing {
namespace {

using kernels::BlockFormat;

struct BlockModel {
  const char* name;
  // Of matrices in turn; none: FP8 in runs of 128 codes.
  std::vector<BlockFormat> formats;
  // Of the FP8 model. Where it is not 128, o_proj is not FP8, and its shards
  // end where those of down_proj cannot.
  int64_t head_dim = 128;
};

std::ostream& operator<<(std::ostream& out, const BlockModel& model) {
  return out << model.name;
}

PipelineOptions OptionsOf(const std::string& path, WeightsMode weights) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.threads = 1;
  options.stage.weights = weights;
  options.stage.kv_blocks = 64;
  options.stage.max_context = 512;
  options.stage.max_step_tokens = 64;
  options.stage.max_sequences = 4;
  return options;
}

// A prompt of more tokens than fast/products_few_tokens.h takes, and a short
// one whose tokens are drawn.
std::vector<Ask> BlockModelAsks() {
  std::vector<Ask> asks(2);
  for (size_t i = 0; i < 2; ++i) {
    for (size_t t = 0; t < (i == 0 ? 19 : 3); ++t) {
      asks[i].prompt.push_back(
          static_cast<TokenId>((i * 31 + t * t * 7 + t) % kRandomVocab));
    }
    asks[i].max_tokens = 3;
    asks[i].sampling.seed = 100 + i;
    asks[i].sampling.temperature = i == 0 ? 0.0f : 0.8f;
    asks[i].sampling.logprobs = 3;
    asks[i].sampling.return_logits = i == 0;
    asks[i].prompt_logits = i == 0;
  }
  return asks;
}

std::vector<Answer> BlockAnswersOf(const PipelineOptions& options,
                                   const std::vector<Ask>& asks,
                                   const Drive& drive = {}) {
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  return (*pipeline)->Generate(asks, drive);
}

class CudaBlocksTest : public ::testing::TestWithParam<BlockModel> {};

TEST_P(CudaBlocksTest, AnswersAreCloseToF32AndOneHashHoweverTheyAreCut) {
  SLUICE_REQUIRE_DEVICE();
  const TempDir dir;
  std::string path = dir.path();
  if (GetParam().formats.empty()) {
    WriteFp8Llama(dir, kRandomVocab, GetParam().head_dim);
  } else {
    path = dir.Write("model.gguf",
                     RandomLlama(GetParam().formats, -1, /*layers=*/1).Build());
  }
  const auto asks = BlockModelAsks();
  PipelineOptions options = OptionsOf(path, WeightsMode::kAuto);
  options.stage.make_backends =
      DeviceBackends(Turns::kForward, Numerics::kFast);
  const auto fast = BlockAnswersOf(options, asks);
  const auto wide = BlockAnswersOf(OptionsOf(path, WeightsMode::kF32), asks);
  ASSERT_EQ(fast.size(), 2u);
  ASSERT_EQ(wide.size(), 2u);
  ASSERT_TRUE(fast[0].status.ok()) << fast[0].status;
  const size_t count = asks[0].prompt.size() * kRandomVocab;
  ASSERT_GE(fast[0].logits.size(), count);
  double errors = 0;
  double squares = 0;
  for (size_t i = 0; i < count; ++i) {
    const double want = wide[0].logits[i];
    errors += std::pow(double{fast[0].logits[i]} - want, 2);
    squares += want * want;
  }
  const double relative = std::sqrt(errors / squares);
  RecordProperty("rms_error", std::to_string(relative));
  std::cout << GetParam() << ": logits differ from F32's by " << relative
            << " of their length\n";
  // Activations are rounded to eight bits' precision, weights are not.
  EXPECT_LT(relative, 0.02);
  EXPECT_GT(relative, 0.0);

  ExpectSame(BlockAnswersOf(options, asks, {5, 2}), fast);
  options.stage.ranks = options.stage.threads = 2;
  options.stage.make_backends =
      DeviceBackends(Turns::kBackward, Numerics::kFast);
  ExpectSame(BlockAnswersOf(options, asks, {16, 1}), fast);
}

INSTANTIATE_TEST_SUITE_P(
    , CudaBlocksTest,
    ::testing::Values(
        BlockModel{"Q4_K_M", {BlockFormat::kQ4K, BlockFormat::kQ6K}},
        BlockModel{"Q5_K", {BlockFormat::kQ5K}},
        BlockModel{"Q3_K_Q2_K", {BlockFormat::kQ3K, BlockFormat::kQ2K}},
        BlockModel{"Short",
                   {BlockFormat::kQ4_1, BlockFormat::kQ5_0, BlockFormat::kQ5_1,
                    BlockFormat::kQ8_0, BlockFormat::kQ4_0}},
        BlockModel{"Fp8", {}}, BlockModel{"Fp8BesideNarrow", {}, 80}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace sluice::testing
