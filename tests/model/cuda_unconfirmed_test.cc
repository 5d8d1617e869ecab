// Models on a GPU that does nothing unconfirmed, which is what a stage asks for
// unless it is told otherwise, and on one that does all of it.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
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
using kernels::cuda::Unconfirmed;
using kernels::cuda::UnconfirmedSet;

struct Run {
  std::vector<Answer> answers;
  std::map<const void*, int> launches;  // by kernel
};

// Two sequences decode together, then one alone.
Run RunWith(const std::string& path, bool fast, UnconfirmedSet asked) {
  Run run;
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.threads = 1;
  options.stage.kv_blocks = 64;
  options.stage.max_context = 512;
  options.stage.max_step_tokens = 64;
  options.stage.max_sequences = 4;
  options.stage.make_backends = [=, &run](const BackendOptions& backend) {
    std::vector<std::unique_ptr<kernels::cuda::Runtime>> runtimes;
    runtimes.push_back(kernels::cuda::OpenMachine(
        {.asked = asked, .launches = &run.launches}));
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
  if (pipeline.ok()) run.answers = (*pipeline)->Generate(asks, {});
  return run;
}

UnconfirmedSet AllBut(Unconfirmed row) {
  UnconfirmedSet asked = UnconfirmedSet::All();
  asked.Remove(row);
  return asked;
}

// The whole table has the same answers as nothing of it, and every row of
// `rows` changes what is launched.
void ExpectSameUnasked(const std::string& path, bool fast,
                       const std::vector<Unconfirmed>& rows) {
  const Run all = RunWith(path, fast, UnconfirmedSet::All());
  const Run unasked = RunWith(path, fast, UnconfirmedSet());
  ASSERT_EQ(all.answers.size(), 2u);
  ExpectSame(unasked.answers, all.answers);
  for (size_t i = 0; i < all.answers.size(); ++i) {
    EXPECT_FALSE(all.answers[i].logits.empty());
    EXPECT_EQ(unasked.answers[i].logits, all.answers[i].logits);
  }
  for (const Unconfirmed row : rows) {
    EXPECT_NE(RunWith(path, fast, AllBut(row)).launches, all.launches)
        << kernels::cuda::kUnconfirmed[static_cast<int>(row)].name;
  }
  // No step is long enough for this row: nothing else changes launches.
  EXPECT_EQ(RunWith(path, fast, AllBut(Unconfirmed::kWgmma)).launches,
            all.launches);
}

TEST(CudaUnconfirmedTest, FastAnswersAreTheSame) {
  ExpectSameUnasked(GoldenModel("qwen3_moe"), /*fast=*/true,
                    {Unconfirmed::kNormRoute});
  // Heads of 64 elements.
  const TempDir dir;
  ExpectSameUnasked(
      dir.Write("model.gguf",
                RandomLlama({BlockFormat::kQ8_0}, -1, /*layers=*/1).Build()),
      /*fast=*/true,
      {Unconfirmed::kNormedProduct, Unconfirmed::kRopeAttention});
}

TEST(CudaUnconfirmedTest, CanonicalAnswersAreTheSame) {
  ExpectSameUnasked(GoldenModel("qwen3_moe"), /*fast=*/false,
                    {Unconfirmed::kRouterProduct});
  const TempDir dir;
  ExpectSameUnasked(
      dir.Write("model.gguf",
                RandomLlama({BlockFormat::kQ8_0, BlockFormat::kQ4K}, -1,
                            /*layers=*/2)
                    .Build()),
      /*fast=*/false,
      {Unconfirmed::kTokenProduct, Unconfirmed::kHeadAttention});
}

}  // namespace
}  // namespace sluice::testing
