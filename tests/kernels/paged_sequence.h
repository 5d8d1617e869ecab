#ifndef SLUICE_TESTS_KERNELS_PAGED_SEQUENCE_H_
#define SLUICE_TESTS_KERNELS_PAGED_SEQUENCE_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention.h"
#include "kernels/block_matmul.h"
#include "kernels/exp_log.h"
#include "kernels/reduction_tree.h"
#include "tests/kernels/block_tester.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {

inline constexpr int64_t kBlock = 16;

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
  int64_t value_dim = 0;  // above 0: values are the ends of the keys
  int64_t value_size() const { return value_dim > 0 ? value_dim : head_dim; }
};

inline uint16_t UpperHalf(float x) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
}
inline float FromUpperHalf(uint16_t half) {
  return std::bit_cast<float>(uint32_t{half} << 16);
}

// The nearer of the two values of BF16 around a finite x, the even one of two
// that are as near.
inline float NearestBf16(float x) {
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
inline Q8Block NearestQ8(const float* x) {
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
inline float NearestF16(float x) {
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
            .values = case_.value_dim > 0 ? nullptr : values_.data(),
            .num_blocks = blocks_,
            .num_kv_heads = case_.num_kv_heads,
            .block_tokens = kBlock,
            .head_dim = case_.head_dim,
            .type = case_.type,
            .blocks = ops_,
            .value_dim = case_.value_dim};
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
    OwnedMatrix out(tokens, case_.num_heads * case_.value_size(), 5);
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
    if (case_.value_dim > 0) {
      return Key(p, h) + case_.head_dim - case_.value_dim;
    }
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
    partial.acc.assign(case_.value_size(), 0.0f);
    float lanes[16] = {};
    for (int32_t p = begin; p < end; ++p) {
      const float weight = Exp(scores[p - begin] - partial.m);
      lanes[p % 16] += weight;
      for (int64_t d = 0; d < case_.value_size(); ++d) {
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
      sink.acc.assign(case_.value_size(), 0.0f);
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

}  // namespace sluice::kernels

#endif  // SLUICE_TESTS_KERNELS_PAGED_SEQUENCE_H_
