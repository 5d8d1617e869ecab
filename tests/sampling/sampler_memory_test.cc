// Drawing takes no memory once a sampler has seen its first rows.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <vector>

#include "common/sampling/sampler.h"

namespace {

std::atomic<int64_t> allocations = 0;

}  // namespace

// Counts every allocation of this test program. Not inlined: the compiler
// would take them for an allocation and a release that do not belong together.
__attribute__((noinline)) void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void* operator new(std::size_t size,
                                             const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size > 0 ? size : 1);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory,
                                               std::size_t) noexcept {
  std::free(memory);
}

namespace sluice {
namespace {

SamplingParams Asked(float top_p, float min_p, int32_t top_k) {
  SamplingParams params;
  params.top_p = top_p;
  params.min_p = min_p;
  params.top_k = top_k;
  return params;
}

TEST(SamplerMemoryTest, ADrawnTokenAllocatesNothing) {
  std::mt19937 random(3);
  std::normal_distribution<float> logit(0, 3);
  std::vector<float> logits(49152);
  for (float& value : logits) value = logit(random);
  const std::vector<TokenId> history = {1, 2, 3, 4, 5, 3, 4, 3};
  const TokenCounts counts = TokenCounts::Of(history, 4);
  SamplingParams greedy;
  greedy.temperature = 0;
  SamplingParams penalties;
  penalties.presence_penalty = 1;
  penalties.repetition_penalty = 1.2f;
  penalties.logit_bias = {{7, 2.0f}};
  for (const SamplingParams& params :
       {Asked(1, 0, 0), Asked(0.95f, 0, 0), Asked(1, 0.05f, 0), Asked(1, 0, 40),
        Asked(0.9f, 0.01f, 500), greedy, penalties}) {
    Sampler sampler(kernels::DetectIsa());
    const auto draw = [&](int32_t position) {
      const SamplingPoint point = {position, history, 4, &counts};
      return sampler.Run({.logits = logits, .params = &params, .point = point})
          .ok();
    };
    ASSERT_TRUE(draw(0));
    const int64_t before = allocations;
    bool ok = true;
    for (int32_t position = 1; position < 50; ++position) ok &= draw(position);
    EXPECT_EQ(allocations - before, 0);
    EXPECT_TRUE(ok);
  }
}

}  // namespace
}  // namespace sluice
