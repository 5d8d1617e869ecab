// Positions that an indexer chooses against their scores written out, and
// attention over them against attention over a sequence of these alone.
#include "kernels/chosen_attention.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "gtest/gtest.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kTokens = 16;  // of a block
constexpr int64_t kPositions = 700;
constexpr int64_t kBlocks = (kPositions + kTokens - 1) / kTokens;
constexpr int64_t kHeads = 5;
constexpr int64_t kDim = 20;
constexpr float kScale = 0.25f;
constexpr float kWeightScale = 0.5f;

// The blocks of one sequence, in an order of their own.
std::vector<int32_t> TableOf() {
  std::vector<int32_t> table;
  for (int64_t i = 0; i < kBlocks; ++i) {
    table.push_back(static_cast<int32_t>((i * 7 + 3) % kBlocks));
  }
  return table;
}
int64_t SlotOf(const std::vector<int32_t>& table, int64_t position) {
  return table[position / kTokens] * kTokens + position % kTokens;
}

class Indexer {
 public:
  explicit Indexer(std::vector<float> keys, WeightType type = WeightType::kF32)
      : keys_(std::move(keys)), type_(type), table_(TableOf()) {
    memory_.assign(kBlocks * kTokens * kDim, 0.0f);
    std::vector<int64_t> slots;
    for (int64_t p = 0; p < kPositions; ++p) slots.push_back(SlotOf(table_, p));
    const OwnedMatrix rows(kPositions, kDim, keys_);
    StoreIndexKeys(rows.view(), slots.data(), view());
  }
  IndexKeys view() { return {memory_.data(), kBlocks, kTokens, kDim, type_}; }

  std::vector<int32_t> Choose(const Context& context,
                              const std::vector<float>& q,
                              const std::vector<float>& weights,
                              const std::vector<int32_t>& positions,
                              int64_t count) {
    const auto tokens = static_cast<int64_t>(positions.size());
    const OwnedMatrix queries(tokens, kHeads * kDim, q);
    const OwnedMatrix of_heads(tokens, kHeads, weights);
    const std::vector<int64_t> offsets(positions.size(), 0);
    std::vector<int32_t> chosen(static_cast<size_t>(tokens * count), -7);
    IndexQueries all;
    all.q = queries.view();
    all.weights = of_heads.view();
    all.positions = positions.data();
    all.block_tables = table_.data();
    all.table_offsets = offsets.data();
    all.num_heads = kHeads;
    all.scale = kScale;
    all.weight_scale = kWeightScale;
    ChoosePositions(context, all, view(), count, chosen.data());
    return chosen;
  }

  // The contract, written out.
  std::vector<int32_t> Written(const float* q, const float* weights,
                               int32_t position, int64_t count) const {
    std::vector<std::pair<float, int32_t>> order;
    for (int32_t p = 0; p <= position; ++p) {
      float sum = 0;
      for (int64_t h = 0; h < kHeads; ++h) {
        const float score =
            CanonicalDot(q + h * kDim, &keys_[p * kDim], kDim) * kScale;
        const float seen = std::max(0.0f, score);
        const float weight = weights[h] * kWeightScale;
        const float product = weight * seen;
        sum += product;
      }
      order.push_back({-sum, p});
    }
    std::sort(order.begin(), order.end());
    order.resize(std::min<size_t>(order.size(), static_cast<size_t>(count)));
    std::vector<int32_t> chosen;
    for (const auto& [score, p] : order) chosen.push_back(p);
    std::sort(chosen.begin(), chosen.end());
    chosen.resize(static_cast<size_t>(count), -1);
    return chosen;
  }

 private:
  const std::vector<float> keys_;
  const WeightType type_;
  const std::vector<int32_t> table_;
  std::vector<float> memory_;
};

class ChosenAttentionTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!HasIsa(GetParam())) {
      GTEST_SKIP() << "this machine has no " << ToString(GetParam());
    }
  }
  Context context() const { return {.executor = nullptr, .isa = GetParam()}; }
};

TEST_P(ChosenAttentionTest, ChoosesByTheContractInAnyBatchAndTeam) {
  const std::vector<int32_t> positions = {0, 22, 23, 24, 255, 256, 500, 699};
  const auto tokens = static_cast<int64_t>(positions.size());
  const auto q = RandomFloats(3, tokens * kHeads * kDim, 2.0f);
  const auto weights = RandomFloats(4, tokens * kHeads);
  ThreadTeam team({.num_threads = 3});
  for (const WeightType type : {WeightType::kF32, WeightType::kBf16}) {
    Indexer indexer(RandomBf16(5, kPositions * kDim), type);
    const auto all = indexer.Choose(context(), q, weights, positions, 24);
    EXPECT_EQ(indexer.Choose({&team, GetParam()}, q, weights, positions, 24),
              all);
    for (int64_t t = 0; t < tokens; ++t) {
      const std::vector<int32_t> got(all.begin() + t * 24,
                                     all.begin() + (t + 1) * 24);
      EXPECT_EQ(got, indexer.Written(&q[t * kHeads * kDim],
                                     &weights[t * kHeads], positions[t], 24))
          << "position " << positions[t];
      const std::vector<float> own_q(q.begin() + t * kHeads * kDim,
                                     q.begin() + (t + 1) * kHeads * kDim);
      const std::vector<float> own(weights.begin() + t * kHeads,
                                   weights.begin() + (t + 1) * kHeads);
      EXPECT_EQ(
          indexer.Choose({&team, GetParam()}, own_q, own, {positions[t]}, 24),
          got);
    }
  }
}

TEST_P(ChosenAttentionTest, TiesGoToTheLowerPositionAndNoNumberIsWorst) {
  std::vector<float> keys(kPositions * kDim, 1.0f);
  std::fill_n(keys.begin() + 2 * kDim, kDim,
              std::numeric_limits<float>::quiet_NaN());
  Indexer indexer(keys);
  const auto chosen =
      indexer.Choose(context(), std::vector<float>(kHeads * kDim, 1.0f),
                     std::vector<float>(kHeads, 1.0f), {600}, 4);
  EXPECT_EQ(chosen, (std::vector<int32_t>{0, 1, 3, 4}));
}

// Rows of a cache of latent attention.
class ChosenRows {
 public:
  static constexpr int64_t kQueries = 6;  // heads
  static constexpr int64_t kRow = 28;
  static constexpr int64_t kValue = 20;

  ChosenRows(const std::vector<float>& rows, int64_t count, WeightType type,
             std::vector<int32_t> table)
      : type_(type), table_(std::move(table)) {
    memory_.assign(table_.size() * kTokens * kRow, 0.0f);
    std::vector<int64_t> slots;
    for (int64_t p = 0; p < count; ++p) slots.push_back(SlotOf(table_, p));
    const OwnedMatrix matrix(count, kRow, rows);
    StoreKv({}, matrix.view(), {}, slots.data(), view());
  }
  KvView view() {
    KvView view;
    view.keys = memory_.data();
    view.num_blocks = static_cast<int64_t>(table_.size());
    view.num_kv_heads = 1;
    view.block_tokens = kTokens;
    view.head_dim = kRow;
    view.type = type_;
    view.value_dim = kValue;
    return view;
  }
  std::vector<float> Attend(const Context& context, const std::vector<float>& q,
                            const std::vector<int32_t>& positions,
                            const std::vector<int32_t>* chosen, int64_t count) {
    const auto tokens = static_cast<int64_t>(positions.size());
    const OwnedMatrix queries(tokens, kQueries * kRow, q);
    OwnedMatrix out(tokens, kQueries * kValue, 3);
    const std::vector<int64_t> offsets(positions.size(), 0);
    const std::vector<int32_t> kv_heads(kQueries, 0);
    AttentionQueries all;
    all.q = queries.view();
    all.positions = positions.data();
    all.block_tables = table_.data();
    all.table_offsets = offsets.data();
    all.num_heads = kQueries;
    all.kv_heads = kv_heads.data();
    all.scale = 0.2f;
    if (chosen == nullptr) {
      PagedAttention(context, all, view(), out.view());
    } else {
      ChosenAttention(context, all, view(), chosen->data(), count, out.view());
    }
    EXPECT_TRUE(out.MarkIntact());
    return out.values();
  }

 private:
  const WeightType type_;
  const std::vector<int32_t> table_;
  std::vector<float> memory_;
};

TEST_P(ChosenAttentionTest, AttendsAsToASequenceOfTheChosenAlone) {
  constexpr int64_t kCount = 300;
  constexpr int64_t kRow = ChosenRows::kRow;
  const std::vector<int32_t> positions = {5, 299, 300, 450, 699};
  const auto tokens = static_cast<int64_t>(positions.size());
  const auto rows = RandomBf16(8, kPositions * kRow);
  const auto q = RandomFloats(9, tokens * ChosenRows::kQueries * kRow);
  std::vector<int32_t> chosen;
  for (const int32_t position : positions) {
    // Every position where there are not more, else all but a run.
    for (int32_t i = 0; i < kCount; ++i) {
      const int32_t at = i < 100 ? i : position - (kCount - 1) + i;
      chosen.push_back(position < kCount ? (i <= position ? i : -1) : at);
    }
  }
  ThreadTeam team({.num_threads = 2});
  for (const WeightType type : {WeightType::kF32, WeightType::kBf16}) {
    ChosenRows cache(rows, kPositions, type, TableOf());
    const auto all = cache.Attend(context(), q, positions, &chosen, kCount);
    EXPECT_TRUE(SameBits(
        cache.Attend({&team, GetParam()}, q, positions, &chosen, kCount), all));
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<float> own;
      int32_t seen = 0;
      for (int64_t i = 0; i < kCount; ++i) {
        const int32_t position = chosen[t * kCount + i];
        if (position < 0) break;
        ++seen;
        own.insert(own.end(), rows.begin() + position * kRow,
                   rows.begin() + (position + 1) * kRow);
      }
      std::vector<int32_t> table(static_cast<size_t>(seen + 15) / 16);
      std::iota(table.begin(), table.end(), 0);
      ChosenRows alone(own, seen, type, table);
      const int64_t cols = ChosenRows::kQueries * kRow;
      const auto want = alone.Attend(
          context(), {q.begin() + t * cols, q.begin() + (t + 1) * cols},
          {seen - 1}, nullptr, 0);
      const std::vector<float> got(
          all.begin() + t * static_cast<int64_t>(want.size()),
          all.begin() + (t + 1) * static_cast<int64_t>(want.size()));
      EXPECT_TRUE(SameBits(got, want)) << "position " << positions[t];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, ChosenAttentionTest,
                         ::testing::ValuesIn(kAllIsas), [](const auto& tested) {
                           return std::string(ToString(tested.param));
                         });

}  // namespace
}  // namespace sluice::kernels
