// Which steps have norms, rotary positions and stored keys and values within
// attention's launch: the bits are the same either way.
#include "common/device/cuda/cuda_attention.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/device/cuda/step_memory.h"

namespace sluice {
namespace {

namespace cuda = kernels::cuda;
using kernels::WeightType;

constexpr int64_t kHeads = 4;
constexpr int32_t kBlocks = 64;

class CudaAttentionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string error;
    runtime_ = cuda::Runtime::Open(0, &error);
    if (runtime_ == nullptr) GTEST_SKIP() << error;
    if (!runtime_->facts().asked.Has(cuda::Unconfirmed::kRopeAttention)) {
      GTEST_SKIP() << "SLUICE_UNCONFIRMED does not name rope_attention";
    }
  }

  // `sequences` with a chunk each, of one token or of a prompt.
  struct Chunks {
    int32_t sequences = 1;
    int32_t tokens = 1;  // of each
  };
  // Whether a step's rotations and attention over two kv heads are one launch.
  bool IsOne(const Chunks& chunks, int64_t head_dim = 64, bool fast = true,
             int32_t last_kv_head = 1) {
    StepInputs step(StepLimits{
        .max_step_tokens = 64, .max_sequences = 64, .max_context = 64});
    step.num_tokens = chunks.sequences * chunks.tokens;
    for (int32_t t = 0; t < step.num_tokens; ++t) {
      const int32_t sequence = t / chunks.tokens;
      step.positions[t] = t % chunks.tokens;
      step.kv_groups[0].table_offsets[t] = sequence;
      step.kv_groups[0].slots[t] =
          int64_t{sequence} * kBlockTokens + step.positions[t];
      step.kv_groups[0].block_tables[sequence] = sequence;
    }
    StepMemory inputs(runtime_.get());
    AttentionSpec spec;
    spec.num_heads = kHeads;
    spec.num_kv_heads = 2;
    spec.head_dim = head_dim;
    spec.kv_heads = {0, 0, 0, last_kv_head};
    spec.rope = inputs.AddRope({.inv_freq = std::vector<double>(
                                    static_cast<size_t>(head_dim / 2), 0.5),
                                .positions = 64});
    inputs.Begin(step);
    inputs.Place();
    CudaAttention attention(runtime_.get(), &inputs, WeightType::kF32, fast);
    const int64_t columns = (kHeads + 2 * 2) * head_dim;
    GrowingMemory qkv(runtime_.get()), out(runtime_.get()),
        keys(runtime_.get()), values(runtime_.get());
    const int64_t cached = kBlocks * 2 * kBlockTokens * head_dim;
    const kernels::Matrix rows = {qkv.AtLeast<float>(step.num_tokens * columns),
                                  step.num_tokens, columns, columns};
    const kernels::Matrix heads = {
        out.AtLeast<float>(step.num_tokens * kHeads * head_dim),
        step.num_tokens, kHeads * head_dim, kHeads * head_dim};
    const LayerKv kv = {keys.AtLeast<float>(cached),
                        values.AtLeast<float>(cached), ElementType::kF32,
                        kBlocks, 0};
    const bool is_one =
        attention.RopeAttention(spec, {}, rows, nullptr, kv, heads);
    runtime_->Sync();
    return is_one;
  }

  std::unique_ptr<cuda::Runtime> runtime_;
};

TEST_F(CudaAttentionTest, ADecodesLaunchRotatesAndStores) {
  EXPECT_TRUE(IsOne({.sequences = 1}));
  EXPECT_TRUE(IsOne({.sequences = 2}));
  EXPECT_TRUE(IsOne({.sequences = 1}, /*head_dim=*/128));
}

TEST_F(CudaAttentionTest, OthersHaveLaunchesOfTheirOwn) {
  EXPECT_FALSE(IsOne({.sequences = 1, .tokens = 3})) << "they read each other";
  EXPECT_FALSE(IsOne({.sequences = 1}, /*head_dim=*/32));
  EXPECT_FALSE(IsOne({.sequences = 1}, 64, /*fast=*/false));
  EXPECT_FALSE(IsOne({.sequences = 1}, 64, true, /*last_kv_head=*/0))
      << "a kv head that no query reads is stored all the same";
}

// A GPU of the emulation has two multiprocessors, of which each takes four
// blocks; a sequence has two.
TEST_F(CudaAttentionTest, ManyBlocksHaveLaunchesOfTheirOwn) {
  if (runtime_->facts().name != "a block as fibres") {
    GTEST_SKIP() << "a GPU has more multiprocessors";
  }
  EXPECT_TRUE(IsOne({.sequences = 4}));
  EXPECT_FALSE(IsOne({.sequences = 5}));
}

}  // namespace
}  // namespace sluice
