#include "common/sampling/logits_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "common/sampling/candidates.h"

namespace sluice {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

LogitsRow Scanned(const std::vector<float>& logits) {
  LogitsRow row(kernels::DetectIsa());
  row.Reset(logits);
  row.Scan(PieceRange::Of(row.size(), 0, 1));
  return row;
}

// Few different values, so that there are ties everywhere.
std::vector<float> TiedLogits(int64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> logits(static_cast<size_t>(size));
  for (float& logit : logits) {
    logit = static_cast<float>(static_cast<int>(random() % 64) - 40) / 4;
    if (random() % 16 == 0) logit = -0.0f;
    if (random() % 32 == 0) logit = kNothing;
  }
  return logits;
}

TEST(LogitsRowTest, ArgMaxTakesTheLowerIdOnTiesWhereverTheyAre) {
  for (const int64_t n : {1, 16, 17, 255, 256, 257, 600}) {
    for (int64_t at = 0; at < n; ++at) {
      std::vector<float> logits(static_cast<size_t>(n), -3.0f);
      logits[at] = 2.0f;
      logits.back() = 2.0f;
      ASSERT_EQ(Scanned(logits).ArgMax(), at);
    }
  }
  EXPECT_EQ(Scanned({-0.0f, 0.0f}).ArgMax(), 0);
  EXPECT_EQ(Scanned({kNothing, -5.0f}).ArgMax(), 1);
}

TEST(LogitsRowTest, AnyPartWithNanOrInfinityMakesTheRowUnusable) {
  for (const float bad : {std::nanf(""), -kNothing}) {
    for (const size_t at : {0u, 300u, 999u}) {
      std::vector<float> logits(1000, 1.0f);
      logits[at] = bad;
      LogitsRow row(kernels::DetectIsa());
      row.Reset(logits);
      for (int part = 0; part < 3; ++part) {
        row.Scan(PieceRange::Of(row.size(), part, 3));
      }
      EXPECT_FALSE(row.is_finite()) << at;
    }
  }
}

TEST(LogitsRowTest, RanksAreThoseOfAPlainCount) {
  for (const int64_t n : {1, 16, 17, 257, 1000}) {
    const auto logits = TiedLogits(n, 4);
    const LogitsRow row = Scanned(logits);
    for (int64_t id = 0; id < n; ++id) {
      int64_t rank = 0;
      for (int64_t i = 0; i < n; ++i) {
        rank += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
      }
      ASSERT_EQ(row.RankOf(id), rank) << n << " " << id;
    }
  }
}

TEST(LogitsRowTest, AtLeastCountLogitsReachTheBoundOfTheLargest) {
  const auto logits = TiedLogits(5000, 8);
  LogitsRow row = Scanned(logits);
  for (int64_t count = 1; count <= 5000; count += 7) {
    const float least = row.LeastOfLargest(count);
    EXPECT_GE(std::count_if(logits.begin(), logits.end(),
                            [&](float logit) { return logit >= least; }),
              count);
  }
}

TEST(CandidatesTest, TheLikeliestAreThoseOfAStableSort) {
  for (const int64_t n : {1, 17, 300, 5000}) {
    const auto logits = TiedLogits(n, 6);
    LogitsRow row = Scanned(logits);
    std::vector<TokenId> order(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) order[i] = static_cast<TokenId>(i);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      return logits[a] > logits[b];
    });
    Candidates candidates(kernels::DetectIsa());
    for (int64_t count = 1; count <= n; count += 1 + count / 3) {
      candidates.Collect(row, row.LeastOfLargest(count));
      candidates.KeepLikeliest(count);
      std::vector<TokenId> want(order.begin(), order.begin() + count);
      std::sort(want.begin(), want.end());
      ASSERT_EQ(std::vector<TokenId>(candidates.ids().begin(),
                                     candidates.ids().end()),
                want);
      const auto places = candidates.Ordered(count);
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(candidates.ids()[places[i]], order[i]);
      }
    }
  }
}

}  // namespace
}  // namespace sluice
