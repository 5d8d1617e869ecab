// A decode step's norms, rotary positions and stored keys and values in the
// launch of its attention: the bits of launches of their own.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/block_matmul.h"
#include "kernels/cuda/fast/attention.h"
#include "kernels/cuda/shared/row_ops.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

constexpr WeightType kRopeTypes[] = {WeightType::kF32, WeightType::kBf16,
                                     WeightType::kQ8_0};

// A decode step's attention, a sequence per position.
struct Step {
  int64_t head_dim = 64;
  WeightType type = WeightType::kBf16;
  std::vector<int32_t> kv_heads = {0, 0, 1, 1};
  std::vector<int32_t> positions = {0, 15, 16, 255, 256, 257, 3000};
  RopeStyle style = RopeStyle::kHalfSplit;
  int64_t half = 0;  // pairs of a head that rotate; 0: all
  bool q_norm = false;
  bool k_norm = false;
  int32_t window = 0;
  bool sinks = false;
  int32_t more_chunks = 0;  // than the longest sequence has
  int64_t pad = 4;          // of the rows
  float strange = 0.0f;     // an element of each row's key and value, unless 0
};

// Its inputs, and what calls with them do.
class Stepped {
 public:
  explicit Stepped(const Step& step)
      : step_(step),
        tokens_(static_cast<int64_t>(step.positions.size())),
        num_heads_(static_cast<int64_t>(step.kv_heads.size())),
        num_kv_heads_(
            *std::max_element(step.kv_heads.begin(), step.kv_heads.end()) + 1),
        half_(step.half > 0 ? step.half : step.head_dim / 2),
        q_norm_(RandomFloats(3, step.head_dim, 2.0f)),
        k_norm_(RandomFloats(4, step.head_dim, 2.0f)),
        sinks_(RandomFloats(5, num_heads_, 3.0f)),
        qkv_(tokens_, (num_heads_ + 2 * num_kv_heads_) * step.head_dim,
             step.pad) {
    AddTables();
    AddCache();
    AddRopes();
    const auto values = RandomFloats(6, tokens_ * qkv_.view().cols, 2.0f);
    for (int64_t t = 0; t < tokens_; ++t) {
      const Matrix rows = qkv_.view();
      std::copy_n(values.begin() + t * rows.cols, rows.cols, rows.row(t));
      if (step.strange == 0.0f) continue;
      for (const int64_t head : {num_heads_, num_heads_ + num_kv_heads_}) {
        rows.row(t)[head * step.head_dim + 5] = step.strange;
      }
    }
    runs_ = HeadRunsOf(step.kv_heads);
    cut.runs = runs_.data();
    cut.num_runs = static_cast<int32_t>(runs_.size());
    for (const HeadRun& run : runs_) {
      cut.most_heads = std::max(cut.most_heads, run.count);
    }
    cut.kv_heads = static_cast<int32_t>(num_kv_heads_);
  }

  // The output, and the keys and values behind it.
  std::vector<float> InOneLaunch(Stream stream) {
    bool done = false;
    OwnedMatrix qkv = qkv_;
    auto result = Run(stream, qkv, [&](const AttentionCall& call) {
      done = TileRopeAttention(stream, QueriesOf(call.queries), call.kv, cut,
                               call.memory, call.out);
    });
    EXPECT_TRUE(done);
    EXPECT_TRUE(SameBits(qkv.values(), qkv_.values()));
    return result;
  }
  std::vector<float> InLaunchesOfTheirOwn(Stream stream) {
    OwnedMatrix qkv = qkv_;
    return Run(stream, qkv, [&](const AttentionCall& call) {
      StoreRows(stream, qkv.view(), call.kv);
      TilePagedAttention(stream, call.queries, call.kv, cut, call.memory,
                         call.out);
    });
  }
  // Whether a launch of both begins; it may change nothing if it does not.
  bool Begins() {
    Machine machine(Schedule::kForward);
    machine.Limit(limits);
    bool done = true;
    OwnedMatrix qkv = qkv_;
    const auto result = Run(&machine, qkv, [&](const AttentionCall& call) {
      done = TileRopeAttention(&machine, QueriesOf(call.queries), call.kv, cut,
                               call.memory, call.out);
    });
    EXPECT_THAT(machine.faults(), testing::IsEmpty());
    if (done) return true;
    const auto cache = result.begin() + tokens_ * num_heads_ * step_.head_dim;
    EXPECT_TRUE(SameBits({cache, cache + std::ssize(keys_)}, keys_));
    EXPECT_TRUE(SameBits({cache + std::ssize(keys_), result.end()}, values_));
    EXPECT_TRUE(std::all_of(result.begin(), cache,
                            [](float x) { return std::isnan(x); }));
    return false;
  }

  AttentionCut cut;
  MachineLimits limits = {227 * 1024, 1000, true};

 private:
  struct AttentionCall {
    AttentionQueries queries;
    KvView kv;
    AttentionMemory memory;
    Matrix out;
  };
  template <typename Op>
  std::vector<float> Run(Stream stream, OwnedMatrix& qkv, const Op& op) {
    stream->Limit(limits);
    std::vector<float> keys = keys_;
    std::vector<float> values = values_;
    kv_.keys = keys.data();
    kv_.values = values.data();
    const int32_t chunks =
        *std::max_element(step_.positions.begin(), step_.positions.end()) /
            256 +
        1 + step_.more_chunks;
    const int64_t cols = num_heads_ * step_.head_dim;
    OwnedMatrix out(tokens_, cols, 4);
    for (int64_t t = 0; t < tokens_; ++t) {
      std::fill_n(out.view().row(t), cols, NAN);
    }
    std::vector<float> floats(
        tokens_ * TileAttentionFloats(num_heads_, kv_, cut, chunks), NAN);
    const Matrix rows = qkv.view();
    AttentionQueries queries;
    queries.q = {rows.data, tokens_, cols, rows.stride};
    queries.positions = step_.positions.data();
    queries.block_tables = tables_.data();
    queries.table_offsets = offsets_.data();
    queries.num_heads = num_heads_;
    queries.kv_heads = step_.kv_heads.data();
    queries.scale = 0.3f;
    queries.window = step_.window;
    queries.sinks = step_.sinks ? sinks_.data() : nullptr;
    op(AttentionCall{queries, kv_, {floats.data(), chunks}, out.view()});
    EXPECT_TRUE(out.MarkIntact());
    std::vector<float> all = out.values();
    all.insert(all.end(), keys.begin(), keys.end());
    all.insert(all.end(), values.begin(), values.end());
    return all;
  }
  RopeTable Table() const { return {cos_.data(), sin_.data(), 3001, half_}; }
  RopeQueries QueriesOf(const AttentionQueries& queries) const {
    RopeQueries all = {queries, {}, {}, step_.style, Table()};
    if (step_.q_norm) all.q_norm = {q_norm_.data(), 1e-5f};
    if (step_.k_norm) all.k_norm = {k_norm_.data(), 1e-3f};
    return all;
  }
  void StoreRows(Stream stream, Matrix qkv, const KvView& kv) {
    const int64_t dim = step_.head_dim;
    const auto heads = [&](int64_t begin, int64_t count) {
      return Matrix{qkv.data + begin * dim, qkv.rows, count * dim, qkv.stride};
    };
    const Matrix q = heads(0, num_heads_);
    const Matrix k = heads(num_heads_, num_kv_heads_);
    if (step_.q_norm) RmsNormHeads(stream, q, dim, q_norm_.data(), 1e-5f);
    if (step_.k_norm) RmsNormHeads(stream, k, dim, k_norm_.data(), 1e-3f);
    if (step_.type != WeightType::kQ8_0) {
      return RopeStoreKv(stream, qkv,
                         {num_heads_, step_.style, Table(),
                          step_.positions.data(), slots_.data()},
                         kv);
    }
    Rope(stream, heads(0, num_heads_ + num_kv_heads_), dim, step_.style,
         Table(), step_.positions.data());
    StoreKv(stream, k, heads(num_heads_ + num_kv_heads_, num_kv_heads_),
            slots_.data(), kv);
  }

  // Pages are scattered; a sequence has its own.
  void AddTables() {
    for (const int32_t position : step_.positions) {
      offsets_.push_back(std::ssize(tables_));
      tables_.resize(tables_.size() + position / 16 + 1);
    }
    std::vector<int32_t> pages(tables_.size());
    std::iota(pages.begin(), pages.end(), 0);
    num_pages_ = std::ssize(pages);
    const int64_t stride = num_pages_ % 37 == 0 ? 41 : 37;
    for (int64_t i = 0; i < num_pages_; ++i) {
      tables_[i] = pages[i * stride % num_pages_];
    }
    for (int64_t t = 0; t < tokens_; ++t) {
      const int32_t position = step_.positions[t];
      slots_.push_back(int64_t{tables_[offsets_[t] + position / 16]} * 16 +
                       position % 16);
    }
  }
  // All slots hold numbers, those of the step's positions too.
  void AddCache() {
    kv_ = {
        nullptr, nullptr,        num_pages_, num_kv_heads_,
        16,      step_.head_dim, step_.type, &BlockOpsFor(DotIsa::kPortable)};
    const int64_t cols = num_kv_heads_ * step_.head_dim;
    const int64_t rows = num_pages_ * 16;
    const OwnedMatrix k(rows, cols, RandomFloats(1, rows * cols, 2.0f));
    const OwnedMatrix v(rows, cols, RandomFloats(2, rows * cols));
    keys_.resize(static_cast<size_t>(kv_.bytes(rows * cols) / 4));
    values_.resize(keys_.size());
    kv_.keys = keys_.data();
    kv_.values = values_.data();
    std::vector<int64_t> slots(static_cast<size_t>(rows));
    std::iota(slots.begin(), slots.end(), 0);
    kernels::StoreKv({}, k.view(), v.view(), slots.data(), kv_);
  }
  void AddRopes() {
    std::vector<double> inv_freq(static_cast<size_t>(half_));
    for (int64_t i = 0; i < half_; ++i) {
      inv_freq[i] = std::pow(10.0, static_cast<double>(-i) / 8.0);
    }
    cos_.resize(3001 * half_);
    sin_.resize(3001 * half_);
    MakeRopeTable(inv_freq, {0, 3001}, 1.25, cos_.data(), sin_.data());
  }

  const Step step_;
  const int64_t tokens_;
  const int64_t num_heads_;
  const int64_t num_kv_heads_;
  const int64_t half_;
  const std::vector<float> q_norm_;
  const std::vector<float> k_norm_;
  const std::vector<float> sinks_;
  OwnedMatrix qkv_;
  std::vector<float> cos_;
  std::vector<float> sin_;
  std::vector<int32_t> tables_;
  std::vector<int64_t> offsets_;
  std::vector<int64_t> slots_;
  int64_t num_pages_ = 0;
  std::vector<float> keys_;  // bytes
  std::vector<float> values_;
  KvView kv_;
  std::vector<HeadRun> runs_;
};

void ExpectTheSameBits(const Step& step) {
  Stepped stepped(step);
  Machine machine(Schedule::kForward);
  const auto want = stepped.InLaunchesOfTheirOwn(&machine);
  EXPECT_THAT(machine.faults(), testing::IsEmpty());
  EXPECT_TRUE(SameBits(
      BothWays([&](Stream stream) { return stepped.InOneLaunch(stream); }),
      want))
      << "type " << static_cast<int>(step.type) << ", heads of "
      << step.head_dim << ", " << step.kv_heads.size() << " of them, half "
      << step.half << ", window " << step.window;
}

// So many query heads of each of `kv_heads`.
std::vector<int32_t> Groups(int32_t kv_heads, int32_t each) {
  std::vector<int32_t> heads;
  for (int32_t i = 0; i < kv_heads * each; ++i) heads.push_back(i / each);
  return heads;
}

TEST(TileAttentionRopeTest, HasTheBitsOfTwoLaunchesInEveryType) {
  for (const WeightType type : kRopeTypes) {
    for (const int64_t dim : {64, 128}) {
      Step step;
      step.type = type;
      step.head_dim = dim;
      ExpectTheSameBits(step);
      step.kv_heads = Groups(2, 1);
      step.q_norm = step.k_norm = true;
      ExpectTheSameBits(step);
    }
  }
}

// Heads of a run, and the key and the value behind them, are taken eight at
// once, or sixteen; two runs of one kv head both have its key and value.
TEST(TileAttentionRopeTest, HasThemWithAnyNumberOfHeads) {
  for (const WeightType type : kRopeTypes) {
    for (const int64_t dim : {64, 128}) {
      for (const int32_t each : {4, 6, 7, 8, 9, 16}) {
        Step step;
        step.type = type;
        step.head_dim = dim;
        step.kv_heads = Groups(each == 4 ? 3 : 1, each);
        step.positions = {5, 262};
        step.k_norm = each % 2 == 0;
        ExpectTheSameBits(step);
      }
    }
  }
}

TEST(TileAttentionRopeTest, HasThemWithRotationsOfAnyKind) {
  for (const auto style : {RopeStyle::kHalfSplit, RopeStyle::kInterleaved}) {
    for (const int64_t dim : {64, 128}) {
      for (const int64_t half : {int64_t{4}, int64_t{20}, dim / 2}) {
        for (const int norms : {0, 1, 2, 3}) {
          Step step;
          step.style = style;
          step.head_dim = dim;
          step.half = half;
          step.type = kRopeTypes[(norms + half / 4) % 3];
          step.q_norm = norms % 2 == 1;
          step.k_norm = norms / 2 == 1;
          step.positions = {33, 1, 256};
          step.pad = norms * 4;
          ExpectTheSameBits(step);
        }
      }
    }
  }
}

TEST(TileAttentionRopeTest, HasThemUnderWindowsAndSinks) {
  for (const WeightType type : kRopeTypes) {
    for (const int32_t window : {1, 16, 128, 300}) {
      Step step;
      step.type = type;
      step.head_dim = window == 128 ? 64 : 128;
      step.kv_heads = Groups(1, 8);
      step.window = window;
      step.sinks = window > 1;
      ExpectTheSameBits(step);
    }
  }
}

// One piece is not joined by another kernel.
TEST(TileAttentionRopeTest, HasThemInOnePieceAndInMore) {
  for (const int64_t dim : {64, 128}) {
    for (const int32_t more : {0, 3}) {
      Step step;
      step.head_dim = dim;
      step.positions = {255, 0, 15, 16};
      step.more_chunks = more;
      step.sinks = true;
      ExpectTheSameBits(step);
    }
  }
}

TEST(TileAttentionRopeTest, KeysAndValuesMayBeNoNumbers) {
  for (const WeightType type : kRopeTypes) {
    for (const float strange : {NAN, INFINITY, 3e38f, 1e-42f}) {
      Step step;
      step.type = type;
      step.strange = strange;
      step.positions = {20, 256};
      ExpectTheSameBits(step);
    }
  }
}

TEST(TileAttentionRopeTest, LeavesOthersToTwoLaunches) {
  Step step;
  step.positions = {20, 256};
  EXPECT_TRUE(Stepped(step).Begins());
  const auto expect_none = [](const Step& other) {
    EXPECT_FALSE(Stepped(other).Begins());
  };
  Step other = step;
  other.half = 6;
  expect_none(other);
  other = step;
  other.head_dim = 32;
  expect_none(other);
  other = step;
  other.pad = 1;
  expect_none(other);
  Stepped prompt(step);
  prompt.cut.tokens = 2;
  EXPECT_FALSE(prompt.Begins());
  Stepped unasked(step);
  unasked.limits.asked.Remove(Unconfirmed::kRopeAttention);
  EXPECT_FALSE(unasked.Begins());
  // A kv head that no run reads would not be stored.
  Stepped unread(step);
  unread.cut.kv_heads = 1;
  EXPECT_FALSE(unread.Begins());
  // Two tokens, two runs, two pieces.
  Stepped many(step);
  many.limits.multiprocessors = 2;
  EXPECT_TRUE(many.Begins());
  many.limits.multiprocessors = 1;
  EXPECT_FALSE(many.Begins());
}

}  // namespace
}  // namespace sluice::kernels::cuda
