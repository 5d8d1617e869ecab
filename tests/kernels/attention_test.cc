// Attention against its contract written out, for every type of keys and
// values.
#include "kernels/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "gtest/gtest.h"
#include "kernels/block_matmul.h"
#include "kernels/exp_log.h"
#include "kernels/reduction_tree.h"
#include "tests/kernels/block_tester.h"
#include "tests/kernels/kernel_tester.h"
#include "tests/kernels/paged_sequence.h"
#include "tests/testing/representative.h"

namespace sluice::kernels {
namespace {

class AttentionTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!HasIsa(GetParam())) {
      GTEST_SKIP() << "this machine has no " << ToString(GetParam());
    }
  }
  Context context() const { return {.executor = nullptr, .isa = GetParam()}; }

  // Every token at `positions` against the written-out contract.
  void ExpectReference(const Case& c, const std::vector<int32_t>& positions) {
    PagedSequence sequence(c);
    const int64_t cols = c.num_heads * c.head_dim;
    const auto q =
        RandomFloats(77, static_cast<int64_t>(positions.size()) * cols, 2.0f);
    const auto out = sequence.Attend(context(), q, positions);
    for (size_t t = 0; t < positions.size(); ++t) {
      for (int64_t h = 0; h < c.num_heads; ++h) {
        const auto row = static_cast<int64_t>(t);
        const auto at = row * cols + h * c.head_dim;
        const auto want = sequence.Reference(q.data() + at, h, positions[t]);
        const auto begin =
            out.begin() + (row * c.num_heads + h) * c.value_size();
        const std::vector<float> got(begin, begin + c.value_size());
        ASSERT_TRUE(SameBits(got, want))
            << "position " << positions[t] << " head " << h << " dim "
            << c.head_dim << " window " << c.window;
      }
    }
  }

  // A step's tokens on teams of some sizes against the calling thread alone.
  void ExpectSameOnThreads(const Case& c) {
    PagedSequence sequence(c);
    const int64_t cols = c.num_heads * c.head_dim;
    const std::vector<std::vector<int32_t>> steps = {
        {2999}, {2047}, {2048}, {5, 6, 7, 8, 9, 1200, 1201, 2999}};
    for (const auto& positions : steps) {
      const auto q =
          RandomFloats(7, static_cast<int64_t>(positions.size()) * cols);
      const auto alone = sequence.Attend(context(), q, positions);
      for (int threads : {2, 3, 4}) {
        ThreadTeam team({.num_threads = threads});
        const Context with_team = {.executor = &team, .isa = GetParam()};
        EXPECT_TRUE(SameBits(sequence.Attend(with_team, q, positions), alone))
            << threads << " threads, " << positions.size() << " tokens";
      }
    }
  }
};

TEST_P(AttentionTest, EqualsTheContractAroundChunkBoundaries) {
  ExpectReference({.positions = 1100}, {0, 1, 15, 16, 254, 255, 256, 257, 511,
                                        512, 513, 767, 768, 1023, 1024, 1099});
}

TEST_P(AttentionTest, EqualsTheContractForEveryHeadDimension) {
  for (int64_t head_dim : {1, 4, 8, 15, 16, 17, 40, 64, 80, 96, 128, 130}) {
    ExpectReference({.positions = 300, .head_dim = head_dim},
                    {3, 100, 255, 256, 299});
  }
}

// Latent attention: few and many heads on one kv head, whole vectors and not.
TEST_P(AttentionTest, EqualsTheContractWithValuesInTheKeys) {
  for (const WeightType type : {WeightType::kF32, WeightType::kBf16}) {
    for (int64_t heads : {3, 20, 50}) {
      for (int64_t head_dim : {28, 48, 80}) {
        for (int64_t value_dim : {20, 32}) {
          if (value_dim > head_dim) continue;
          ExpectReference({.positions = 600,
                           .num_heads = heads,
                           .num_kv_heads = 1,
                           .head_dim = head_dim,
                           .type = type,
                           .value_dim = value_dim},
                          {0, 17, 256, 257, 258, 599});
        }
      }
    }
  }
}

TEST_P(AttentionTest, EqualsTheContractForEveryGroupOfHeads) {
  struct Heads {
    int64_t q;
    int64_t kv;
  };
  for (Heads heads : {Heads{1, 1}, Heads{3, 1}, Heads{9, 3}, Heads{5, 5},
                      Heads{7, 2}, Heads{30, 1}}) {
    ExpectReference({.positions = 280,
                     .num_heads = heads.q,
                     .num_kv_heads = heads.kv,
                     .head_dim = 32},
                    {0, 17, 256, 257, 258, 279});
  }
}

TEST_P(AttentionTest, EqualsTheContractWithWindowAndSinks) {
  for (int32_t window : {1, 7, 100, 256, 257, 600}) {
    for (bool sinks : {false, true}) {
      ExpectReference({.positions = 1400, .window = window, .sinks = sinks},
                      {0, 6, 255, 256, 300, 511, 767, 1023, 1025, 1399});
    }
  }
}

TEST_P(AttentionTest, EqualsTheContractWithKeysAndValuesInBf16) {
  for (int64_t head_dim : {1, 15, 16, 17, 64, 80, 128}) {
    for (int32_t window : {0, 100}) {
      ExpectReference({.positions = 600,
                       .head_dim = head_dim,
                       .window = window,
                       .sinks = window > 0,
                       .type = WeightType::kBf16},
                      {3, 100, 255, 256, 299, 511, 599});
    }
  }
}

TEST_P(AttentionTest, EqualsTheContractWithKeysAndValuesInQ8) {
  for (int64_t head_dim : {32, 64, 96, 128, 256}) {
    for (int32_t window : {0, 100}) {
      ExpectReference({.positions = 600,
                       .num_heads = 10,
                       .head_dim = head_dim,
                       .window = window,
                       .sinks = window > 0,
                       .type = WeightType::kQ8_0},
                      {3, 100, 255, 256, 299, 511, 599});
    }
  }
}

TEST_P(AttentionTest, EverySetOfBlockProductsGivesTheSameBits) {
  const Case c = {.positions = 300,
                  .num_heads = 14,
                  .head_dim = 96,
                  .window = 250,
                  .type = WeightType::kQ8_0};
  PagedSequence sequence(c);
  const auto q = RandomFloats(10, 2 * c.num_heads * c.head_dim);
  const auto want = sequence.Attend(context(), q, {298, 299});
  for (const DotSet& set : AllDotSets()) {
    sequence.UseBlocks(set.ops);
    EXPECT_TRUE(SameBits(sequence.Attend(context(), q, {298, 299}), want))
        << set.name;
  }
}

TEST_P(AttentionTest, AKeyThatIsNoNumberFailsTheQueriesThatSeeItAlone) {
  for (const auto type :
       {WeightType::kF32, WeightType::kBf16, WeightType::kQ8_0}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
      const Case c = {.positions = 300, .num_kv_heads = 1, .type = type};
      PagedSequence whole(c);
      PagedSequence broken(c);
      broken.SpoilKey(270, bad);
      const int64_t cols = c.num_heads * c.head_dim;
      const std::vector<int32_t> positions = {100, 269, 270, 299};
      const auto q = RandomFloats(9, 4 * cols);
      const auto want = whole.Attend(context(), q, positions);
      const auto got = broken.Attend(context(), q, positions);
      EXPECT_TRUE(SameBits({got.begin(), got.begin() + 2 * cols},
                           {want.begin(), want.begin() + 2 * cols}));
      // Of Q8_0 both make a scale of NaN; an infinity in F32 may weigh nothing.
      if (type != WeightType::kQ8_0) continue;
      for (auto x = got.begin() + 2 * cols; x != got.end(); ++x) {
        ASSERT_TRUE(std::isnan(*x));
      }
    }
  }
}

TEST_P(AttentionTest, AQueryThatIsNoNumberFailsAlone) {
  const Case c = {.positions = 300, .type = WeightType::kQ8_0};
  PagedSequence sequence(c);
  const int64_t cols = c.num_heads * c.head_dim;
  auto q = RandomFloats(9, 2 * cols);
  const auto want = sequence.Attend(context(), q, {298, 299});
  q[cols + 5] = std::numeric_limits<float>::infinity();
  const auto got = sequence.Attend(context(), q, {298, 299});
  for (int64_t i = 0; i < 2 * cols; ++i) {
    const bool hit = i >= cols && i < cols + c.head_dim;
    ASSERT_EQ(std::isnan(got[i]), hit) << i;
    if (!hit) {
      ASSERT_EQ(got[i], want[i]);
    }
  }
}

TEST_P(AttentionTest, AGroupOfTokensHasTheBitsOfItsTokens) {
  // From one query on to more than share a walk.
  for (const auto type :
       {WeightType::kF32, WeightType::kBf16, WeightType::kQ8_0}) {
    for (int64_t heads : {1, 3, 8}) {
      // Portable kernels call a library for every element.
      const bool slow = GetParam() == Isa::kPortable && heads > 1;
      if (slow && sluice::testing::OnlyQuick()) continue;
      const Case c = {.positions = 530,
                      .num_heads = heads,
                      .num_kv_heads = 1,
                      .head_dim = type == WeightType::kQ8_0 ? 64 : 48,
                      .type = type};
      PagedSequence sequence(c);
      const int64_t cols = c.num_heads * c.head_dim;
      const auto q = RandomFloats(8, 60 * cols);
      std::vector<float> alone;
      for (int32_t t = 0; t < 60; ++t) {
        const auto one = sequence.Attend(
            context(), {q.begin() + t * cols, q.begin() + (t + 1) * cols},
            {470 + t});
        alone.insert(alone.end(), one.begin(), one.end());
      }
      std::vector<int32_t> positions;
      for (int32_t t = 0; t < 60; ++t) {
        positions.push_back(470 + t);
        // Every remainder of a tile's tokens, and the most.
        if (sluice::testing::OnlyQuick() && t % 7 != 0 && t != 59) continue;
        const int64_t floats = (t + 1) * cols;
        const std::vector<float> some(q.begin(), q.begin() + floats);
        EXPECT_TRUE(SameBits(sequence.Attend(context(), some, positions),
                             {alone.begin(), alone.begin() + floats}))
            << t + 1 << " tokens, " << heads << " heads";
      }
    }
  }
}

TEST_P(AttentionTest, IsCloseToDouble) {
  for (const auto type : {WeightType::kF32, WeightType::kQ8_0}) {
    const Case c = {.positions = 700, .sinks = true, .type = type};
    PagedSequence sequence(c);
    const auto q = RandomFloats(5, c.num_heads * c.head_dim);
    const auto out = sequence.Attend(context(), q, {699});
    for (int64_t h = 0; h < c.num_heads; ++h) {
      const auto want = sequence.InDouble(q.data() + h * c.head_dim, h, 699);
      for (int64_t d = 0; d < c.head_dim; ++d) {
        // Weights are off by the scores' error (sum of 64 products below 2, 8
        // roundings, of Q8_0 fewer) and Exp's; sums of 256 positions and the
        // joins follow. Values are at most 1.
        const double bound = 2 * (Gamma(9) * 0.25 * 128 + 0x1p-22 + Gamma(270));
        ASSERT_NEAR(out[h * c.head_dim + d], want[d], bound);
      }
    }
  }
}

TEST_P(AttentionTest, ATokenAloneHasTheBitsOfTheTokenInAPrefill) {
  for (int32_t window : {0, 90}) {
    const Case c = {.positions = 400, .window = window};
    PagedSequence sequence(c);
    std::vector<int32_t> positions;
    for (int32_t p = 0; p < 400; ++p) positions.push_back(p);
    const int64_t cols = c.num_heads * c.head_dim;
    const auto q = RandomFloats(6, 400 * cols);
    const auto all = sequence.Attend(context(), q, positions);
    for (int32_t p : {0, 1, 5, 6, 100, 255, 256, 257, 399}) {
      const std::vector<float> one(q.begin() + p * cols,
                                   q.begin() + (p + 1) * cols);
      const std::vector<float> want(all.begin() + p * cols,
                                    all.begin() + (p + 1) * cols);
      EXPECT_TRUE(SameBits(sequence.Attend(context(), one, {p}), want)) << p;
    }
  }
}

TEST_P(AttentionTest, AnyThreadCountGivesTheSameBits) {
  for (const auto type : {WeightType::kF32, WeightType::kQ8_0}) {
    ExpectSameOnThreads({.positions = 3000,
                         .num_heads = 9,
                         .num_kv_heads = 3,
                         .sinks = true,
                         .type = type});
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttentionTest, ::testing::ValuesIn(kAllIsas),
                         [](const auto& parameter) {
                           return std::string(ToString(parameter.param));
                         });

}  // namespace
}  // namespace sluice::kernels
