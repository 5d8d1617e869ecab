// Attention against its contract written out, for every type of keys and
// values.
//
// Size: the contract's plain code and its cases stand together.
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
#include "tests/testing/representative.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kBlock = 16;

// One sequence's keys and values in a paged cache, its blocks shuffled among
// foreign ones that hold NaN.
struct Case {
  int64_t positions = 1;
  int64_t num_heads = 4;
  int64_t num_kv_heads = 2;
  int64_t head_dim = 64;
  int32_t window = 0;
  bool sinks = false;
  uint64_t seed = 1;
  WeightType type = WeightType::kF32;  // of keys and values
};

uint16_t UpperHalf(float x) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
}
float FromUpperHalf(uint16_t half) {
  return std::bit_cast<float>(uint32_t{half} << 16);
}

// The nearer of the two values of BF16 around a finite x, the even one of two
// that are as near.
float NearestBf16(float x) {
  const uint16_t low = UpperHalf(x);
  const double below = FromUpperHalf(low);
  const double above = FromUpperHalf(static_cast<uint16_t>(low + 1));
  const double to_below = std::fabs(x - below);
  const double to_above = std::fabs(above - x);
  const bool up = to_above < to_below || (to_above == to_below && low % 2 == 1);
  return static_cast<float>(up ? above : below);
}

// Codes and scale of 32 elements by the definition, in double precision where
// it rounds.
struct Q8Block {
  int codes[32];
  float scale;
};
Q8Block NearestQ8(const float* x) {
  float most = 0;
  for (int i = 0; i < 32; ++i) most = std::max(most, std::fabs(x[i]));
  Q8Block block = {};
  if (most < 0x1p-100f) return block;
  block.scale = most / 127.0f;
  const float inverse = 127.0f / most;
  for (int i = 0; i < 32; ++i) {
    // One rounding to F32, then half to even in double.
    const float turned = x[i] * inverse;
    block.codes[i] = static_cast<int>(std::nearbyint(double{turned}));
  }
  return block;
}
// The nearest value of F16's grid to x >= 0, by search.
float NearestF16(float x) {
  if (x == 0) return 0;
  int exponent = 0;
  std::frexp(x, &exponent);
  const double step = std::ldexp(1.0, std::max(exponent - 11, -24));
  return static_cast<float>(std::nearbyint(x / step) * step);
}

class PagedSequence {
 public:
  explicit PagedSequence(const Case& c) : case_(c) {
    const int64_t used = (c.positions + kBlock - 1) / kBlock;
    const int64_t blocks = 2 * used + 1;
    blocks_ = blocks;
    const int64_t size = blocks * c.num_kv_heads * kBlock * c.head_dim;
    // NaN in either type.
    keys_.assign(size * sizeof(float), 0xFF);
    values_.assign(size * sizeof(float), 0xFF);
    // An odd stride visits the blocks in a scattered order.
    for (int64_t i = 0; i < used; ++i) {
      table_.push_back(static_cast<int32_t>((i * 7 + 3) % blocks));
    }
    std::sort(table_.begin(), table_.end());
    table_.erase(std::unique(table_.begin(), table_.end()), table_.end());
    for (int32_t b = 0; static_cast<int64_t>(table_.size()) < used; ++b) {
      if (std::find(table_.begin(), table_.end(), b) == table_.end()) {
        table_.push_back(b);
      }
    }
    std::reverse(table_.begin(), table_.end());
    const int64_t cols = c.num_kv_heads * c.head_dim;
    k_ = RandomFloats(c.seed, c.positions * cols, 2.0f);
    v_ = RandomFloats(c.seed + 100, c.positions * cols);
    const OwnedMatrix k(c.positions, cols, k_);
    const OwnedMatrix v(c.positions, cols, v_);
    std::vector<int64_t> slots;
    for (int64_t p = 0; p < c.positions; ++p) {
      slots.push_back(table_[p / kBlock] * kBlock + p % kBlock);
    }
    StoreKv(Context{}, k.view(), v.view(), slots.data(), view());
    if (c.type == WeightType::kBf16) {
      for (float& x : k_) x = NearestBf16(x);
      for (float& x : v_) x = NearestBf16(x);
    } else if (c.type == WeightType::kQ8_0) {
      for (size_t i = 0; i < v_.size(); i += 32) {
        const Q8Block block = NearestQ8(&v_[i]);
        for (size_t j = 0; j < 32; ++j) {
          v_[i + j] =
              static_cast<float>(block.codes[j]) * NearestF16(block.scale);
        }
      }
    }
    for (int64_t h = 0; h < c.num_heads; ++h) {
      kv_heads_.push_back(
          static_cast<int32_t>(h * c.num_kv_heads / c.num_heads));
    }
    sinks_ = RandomFloats(c.seed + 200, c.num_heads, 4.0f);
  }

  KvView view() {
    return {.keys = keys_.data(),
            .values = values_.data(),
            .num_blocks = blocks_,
            .num_kv_heads = case_.num_kv_heads,
            .block_tokens = kBlock,
            .head_dim = case_.head_dim,
            .type = case_.type,
            .blocks = ops_};
  }

  // Writes the key of every head at `position` again, element 1 being `x`.
  void SpoilKey(int32_t position, float x) {
    const int64_t cols = case_.num_kv_heads * case_.head_dim;
    std::vector<float> k(k_.begin() + position * cols,
                         k_.begin() + (position + 1) * cols);
    k[1] = x;
    const OwnedMatrix key(1, cols, k);
    const OwnedMatrix value(
        1, cols,
        {v_.begin() + position * cols, v_.begin() + (position + 1) * cols});
    const int64_t slot = table_[position / kBlock] * kBlock + position % kBlock;
    StoreKv(Context{}, key.view(), value.view(), &slot, view());
  }

  // Attends with these from now on.
  void UseBlocks(const cpu::BlockOps* ops) {
    ops_ = ops;
    is_set_ = true;
  }

  // Attends with q [T, num_heads * head_dim] at `positions`.
  std::vector<float> Attend(const Context& context, const std::vector<float>& q,
                            const std::vector<int32_t>& positions) {
    const auto tokens = static_cast<int64_t>(positions.size());
    const int64_t cols = case_.num_heads * case_.head_dim;
    const OwnedMatrix queries(tokens, cols, q);
    OwnedMatrix out(tokens, cols, 5);
    if (!is_set_) ops_ = &BlockOpsFor(DotIsaFor(context.isa));
    const std::vector<int64_t> offsets(positions.size(), 0);
    PagedAttention(context,
                   {.q = queries.view(),
                    .positions = positions.data(),
                    .block_tables = table_.data(),
                    .table_offsets = offsets.data(),
                    .num_heads = case_.num_heads,
                    .kv_heads = kv_heads_.data(),
                    .scale = 0.25f,
                    .window = case_.window,
                    .sinks = case_.sinks ? sinks_.data() : nullptr},
                   view(), out.view());
    EXPECT_TRUE(out.MarkIntact());
    return out.values();
  }

  int32_t First(int32_t position) const {
    return case_.window > 0 ? std::max(0, position - case_.window + 1) : 0;
  }
  const float* Key(int32_t p, int64_t h) const {
    return k_.data() + (p * case_.num_kv_heads + kv_heads_[h]) * case_.head_dim;
  }
  const float* Value(int32_t p, int64_t h) const {
    return v_.data() + (p * case_.num_kv_heads + kv_heads_[h]) * case_.head_dim;
  }

  double InDouble(const float* q, const float* k) const {
    if (case_.type != WeightType::kQ8_0) {
      return DotInDouble(q, k, case_.head_dim);
    }
    double sum = 0;
    for (int64_t b = 0; b < case_.head_dim; b += 32) {
      const Q8Block query = NearestQ8(q + b);
      const Q8Block key = NearestQ8(k + b);
      for (int i = 0; i < 32; ++i) {
        sum += double{query.scale} * query.codes[i] *
               (double{NearestF16(key.scale)} * key.codes[i]);
      }
    }
    return sum;
  }
  // q.k, of Q8_0 as exact integers per block.
  float Dot(const float* q, const float* k) const {
    if (case_.type != WeightType::kQ8_0) {
      return CanonicalDot(q, k, case_.head_dim);
    }
    float sum = 0;
    for (int64_t b = 0; b < case_.head_dim; b += 32) {
      const Q8Block query = NearestQ8(q + b);
      const Q8Block key = NearestQ8(k + b);
      int whole = 0;
      for (int i = 0; i < 32; ++i) whole += query.codes[i] * key.codes[i];
      sum = std::fma(static_cast<float>(whole),
                     NearestF16(key.scale) * query.scale, sum);
    }
    return sum;
  }

  // The contract of attention.h, written out for one query head.
  struct Partial {
    float m = 0;
    float l = 0;
    std::vector<float> acc;
    bool masked = true;
  };
  Partial ChunkPartial(const float* q, int64_t h, int32_t first, int32_t last,
                       int32_t chunk) const {
    const int32_t begin = std::max(first, chunk * kAttentionChunk);
    const int32_t end = std::min(last + 1, (chunk + 1) * kAttentionChunk);
    Partial partial;
    if (begin >= end) return partial;
    partial.masked = false;
    std::vector<float> scores;
    for (int32_t p = begin; p < end; ++p) {
      scores.push_back(Dot(q, Key(p, h)) * 0.25f);
    }
    partial.m = *std::max_element(scores.begin(), scores.end());
    partial.acc.assign(case_.head_dim, 0.0f);
    float lanes[16] = {};
    for (int32_t p = begin; p < end; ++p) {
      const float weight = Exp(scores[p - begin] - partial.m);
      lanes[p % 16] += weight;
      for (int64_t d = 0; d < case_.head_dim; ++d) {
        partial.acc[d] = std::fma(weight, Value(p, h)[d], partial.acc[d]);
      }
    }
    for (int half = 8; half >= 1; half /= 2) {
      for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    partial.l = lanes[0];
    return partial;
  }
  static Partial Join(const Partial& a, const Partial& b) {
    if (a.masked) return b;
    if (b.masked) return a;
    Partial sum;
    sum.masked = false;
    sum.m = std::max(a.m, b.m);
    const float ea = Exp(a.m - sum.m);
    const float eb = Exp(b.m - sum.m);
    sum.l = std::fma(b.l, eb, a.l * ea);
    for (size_t d = 0; d < a.acc.size(); ++d) {
      sum.acc.push_back(std::fma(b.acc[d], eb, a.acc[d] * ea));
    }
    return sum;
  }
  std::vector<float> Reference(const float* q, int64_t h,
                               int32_t position) const {
    Partial all = ReduceTree(
        0, position / kAttentionChunk + 1,
        [&](int32_t chunk) {
          return ChunkPartial(q, h, First(position), position, chunk);
        },
        Join);
    if (case_.sinks) {
      Partial sink;
      sink.masked = false;
      sink.m = sinks_[h];
      sink.l = 1;
      sink.acc.assign(case_.head_dim, 0.0f);
      all = Join(all, sink);
    }
    for (float& x : all.acc) x /= all.l;
    return all.acc;
  }
  std::vector<double> InDouble(const float* q, int64_t h,
                               int32_t position) const {
    std::vector<double> scores;
    for (int32_t p = First(position); p <= position; ++p) {
      scores.push_back(0.25 * InDouble(q, Key(p, h)));
    }
    double sum = case_.sinks ? std::exp(double{sinks_[h]}) : 0;
    std::vector<double> out(case_.head_dim, 0.0);
    for (size_t i = 0; i < scores.size(); ++i) {
      const double e = std::exp(scores[i]);
      sum += e;
      const float* v = Value(First(position) + static_cast<int32_t>(i), h);
      for (int64_t d = 0; d < case_.head_dim; ++d) out[d] += e * v[d];
    }
    for (double& x : out) x /= sum;
    return out;
  }

 private:
  const Case case_;
  const cpu::BlockOps* ops_ = &BlockOpsFor(DotIsa::kPortable);
  bool is_set_ = false;
  int64_t blocks_ = 0;
  std::vector<uint8_t> keys_;
  std::vector<uint8_t> values_;
  std::vector<int32_t> table_;
  std::vector<float> k_;
  std::vector<float> v_;
  std::vector<int32_t> kv_heads_;
  std::vector<float> sinks_;
};

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
        const auto at = static_cast<int64_t>(t) * cols + h * c.head_dim;
        const auto want = sequence.Reference(q.data() + at, h, positions[t]);
        const std::vector<float> got(out.begin() + at,
                                     out.begin() + at + c.head_dim);
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
