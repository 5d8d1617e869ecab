// Models on a GPU that does nothing unconfirmed, which is what a stage asks for
// unless it is told otherwise, and on one that does all of it.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/device/cuda/make_cuda_ranks.h"
#include "tests/cuda_machine/open_machine.h"
#include "tests/model/expect_same.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/model/random_llama.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

using kernels::BlockFormat;
using kernels::cuda::UnconfirmedSet;

// Two sequences decode together, then one alone.
std::vector<Answer> UnconfirmedAnswersOf(const std::string& path, bool fast,
                                         UnconfirmedSet asked) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.threads = 1;
  options.stage.kv_blocks = 64;
  options.stage.max_context = 512;
  options.stage.max_step_tokens = 64;
  options.stage.max_sequences = 4;
  options.stage.make_backends = [=](const BackendOptions& backend) {
    std::vector<std::unique_ptr<kernels::cuda::Runtime>> runtimes;
    runtimes.push_back(kernels::cuda::OpenMachine({.asked = asked}));
    return MakeCudaRanks(std::move(runtimes), backend.kv_type, fast);
  };
  std::vector<Ask> asks(2);
  for (size_t i = 0; i < asks.size(); ++i) {
    for (size_t t = 0; t < 9 + i; ++t) {
      asks[i].prompt.push_back(static_cast<TokenId>((i * 31 + t * 7) % 60));
    }
    asks[i].max_tokens = 2 + static_cast<int32_t>(i);
    asks[i].sampling.temperature = 0;
    asks[i].sampling.return_logits = true;
  }
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  return (*pipeline)->Generate(asks, {});
}

void ExpectSameUnasked(const std::string& path, bool fast) {
  const auto all = UnconfirmedAnswersOf(path, fast, UnconfirmedSet::All());
  const auto unasked = UnconfirmedAnswersOf(path, fast, UnconfirmedSet());
  ASSERT_EQ(all.size(), 2u);
  ExpectSame(unasked, all);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_FALSE(all[i].logits.empty());
    EXPECT_EQ(unasked[i].logits, all[i].logits);
  }
}

TEST(CudaUnconfirmedTest, FastAnswersAreTheSame) {
  ExpectSameUnasked(GoldenModel("llama3-tied"), /*fast=*/true);
  ExpectSameUnasked(GoldenModel("qwen3_moe"), /*fast=*/true);
}

TEST(CudaUnconfirmedTest, CanonicalAnswersAreTheSame) {
  ExpectSameUnasked(GoldenModel("qwen3_moe"), /*fast=*/false);
  const TempDir dir;
  ExpectSameUnasked(
      dir.Write("model.gguf",
                RandomLlama({BlockFormat::kQ8_0, BlockFormat::kQ4K}, -1,
                            /*layers=*/2)
                    .Build()),
      /*fast=*/false);
}

}  // namespace
}  // namespace sluice::testing
