#include "tests/device/cuda/row_bits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/cat.h"
#include "common/tensor/weight_format.h"
#include "tests/device/cuda/random_weight.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::testing {
namespace {

using kernels::RandomFloats;
using kernels::WeightType;

// Signed powers of two, from 2^-24 to 2^24, times up to 2. A number in four is
// what its left neighbour is, with the other sign; one in fifty is a zero.
std::vector<float> WideFloats(uint64_t seed, int64_t n, bool cancel) {
  const std::vector<float> powers = RandomFloats(seed, n, 24.0f);
  std::vector<float> values = RandomFloats(seed + 1, n, 2.0f);
  for (int64_t i = 0; i < n; ++i) {
    values[i] = std::ldexp(values[i], static_cast<int>(powers[i]));
    if (i % 4 == 3) values[i] = cancel ? -values[i - 1] : values[i - 1];
    if (i % 50 == 7) values[i] = i % 100 == 7 ? 0.0f : -0.0f;
  }
  return values;
}

HostWeight WideBf16(uint64_t seed, int64_t rows, int64_t cols) {
  HostWeight weight(WeightType::kBf16, rows, cols);
  const std::vector<float> values = WideFloats(seed, rows * cols, false);
  auto* const to = weight.data.as<uint16_t>();
  for (int64_t i = 0; i < rows * cols; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &values[i], sizeof(bits));
    to[i] = static_cast<uint16_t>(bits >> 16);
  }
  return weight;
}

std::unique_ptr<Weight> Pack(Backend& backend, HostWeight weight) {
  std::vector<HostWeight> parts;
  parts.push_back(std::move(weight));
  return backend.Pack(std::move(parts));
}

// An operation on rows [cols] whose results are rows [rows] again.
class RowOp {
 public:
  RowOp(Backend& backend, int64_t tokens, int64_t cols, int64_t rows)
      : backend_(backend),
        cols_(cols),
        rows_(rows),
        from_(WideFloats(21, tokens * cols, true)),
        x_(backend.Allocate(static_cast<size_t>(tokens * cols) * 4)),
        y_(backend.Allocate(static_cast<size_t>(tokens * rows) * 4)) {}
  virtual ~RowOp() = default;
  RowOp(const RowOp&) = delete;
  RowOp& operator=(const RowOp&) = delete;

  int64_t rows() const { return rows_; }
  // Of tokens [begin, begin + tokens), in one step.
  std::vector<float> Of(int64_t begin, int64_t tokens) {
    StepInputs step(
        {static_cast<int32_t>(tokens), 1, static_cast<int32_t>(tokens), 1});
    step.num_tokens = static_cast<int32_t>(tokens);
    const DeviceMatrix x = {x_.data(), tokens, cols_, cols_};
    const DeviceMatrix y = {y_.data(), tokens, rows_, rows_};
    std::vector<float> got(static_cast<size_t>(tokens * rows_));
    backend_.BeginStep(step);
    backend_.CopyIn(from_.data() + begin * cols_, x);
    Run(x, y);
    backend_.CopyOut(y, got.data());
    backend_.EndStep();
    return got;
  }

 protected:
  virtual void Run(DeviceMatrix x, DeviceMatrix y) = 0;

  Backend& backend_;

 private:
  const int64_t cols_;
  const int64_t rows_;
  const std::vector<float> from_;
  const DeviceMemory x_;
  const DeviceMemory y_;
};

// A norm's weights, or none.
class RowNorm {
 public:
  RowNorm(Backend& backend, int64_t cols, bool is_there) {
    if (!is_there) return;
    memory_ = backend.Allocate(static_cast<size_t>(cols) * 4);
    const std::vector<float> weights = RandomFloats(31, cols, 2.0f);
    backend.CopyIn(weights.data(), {memory_.data(), 1, cols, cols});
  }
  NormSpec spec() const { return {memory_.data(), 1e-5f}; }

 private:
  DeviceMemory memory_;
};

class ProductOp final : public RowOp {
 public:
  ProductOp(Backend& backend, int64_t tokens, HostWeight weight, bool normed)
      : RowOp(backend, tokens, weight.cols, weight.rows),
        norm_(backend, weight.cols, normed),
        weight_(Pack(backend, std::move(weight))) {}

 private:
  void Run(DeviceMatrix x, DeviceMatrix y) override {
    backend_.Linear(x, norm_.spec(), *weight_, nullptr, y);
  }
  const RowNorm norm_;
  const std::unique_ptr<Weight> weight_;
};

class GatedOp final : public RowOp {
 public:
  GatedOp(Backend& backend, int64_t tokens, HostWeight weight, bool normed)
      : RowOp(backend, tokens, weight.cols, weight.rows / 2),
        norm_(backend, weight.cols, normed),
        both_(backend.Allocate(static_cast<size_t>(tokens * weight.rows) * 4)),
        weight_(Pack(backend, std::move(weight))) {}

 private:
  void Run(DeviceMatrix x, DeviceMatrix y) override {
    backend_.GatedLinear(x, norm_.spec(), *weight_, nullptr, {},
                         {both_.data(), x.rows, 2 * rows(), 2 * rows()}, y);
  }
  const RowNorm norm_;
  const DeviceMemory both_;  // [tokens, 2 * rows]
  const std::unique_ptr<Weight> weight_;
};

// A norm, a router and its experts, whose sum is added to the row.
class ExpertOp final : public RowOp {
 public:
  static constexpr int64_t kInner = 256;  // of an expert
  ExpertOp(Backend& backend, int64_t tokens, WeightType type, int64_t cols,
           int32_t experts)
      : RowOp(backend, tokens, cols, cols),
        router_(
            Pack(backend, RandomWeight(WeightType::kF32, 5, experts, cols))),
        node_{{0, experts}} {
    rule_.score = kernels::RouterRule::Score::kSigmoid;
    rule_.num_experts = experts;
    rule_.per_token = 2;
    rule_.normalise = true;
    for (int32_t e = 0; e < experts; ++e) {
      const auto seed = static_cast<uint64_t>(10 + 2 * e);
      experts_.gate_up.push_back(
          Pack(backend, RandomWeight(type, seed, 2 * kInner, cols)));
      experts_.down.push_back(
          Pack(backend, RandomWeight(type, seed + 1, cols, kInner)));
    }
    const std::vector<float> ones(static_cast<size_t>(cols), 1.0f);
    norm_ = Room(1, cols);
    backend.CopyIn(ones.data(), norm_);
    normed_ = Room(tokens, cols);
    logits_ = Room(tokens, experts);
    ids_ = Room(tokens, rule_.per_token);
    ids_.type = ElementType::kInt32;
    weights_ = Room(tokens, rule_.per_token);
    sum_ = {Room(tokens, cols)};
  }

 private:
  void Run(DeviceMatrix x, DeviceMatrix y) override {
    const int64_t t = x.rows;
    const DeviceRouting routing = {ids_.Rows(0, t), weights_.Rows(0, t)};
    const DeviceMatrix normed = normed_.Rows(0, t);
    backend_.NormRoute(x, {norm_.data, 1e-5f},
                       {*router_, nullptr, rule_, nullptr}, normed,
                       logits_.Rows(0, t), routing);
    now_ = {sum_[0].Rows(0, t)};
    backend_.AddExperts(normed, routing, experts_, {}, {node_, now_, {}, x});
    backend_.Norm(x, {norm_.data, 1e-5f}, y);
  }
  DeviceMatrix Room(int64_t rows, int64_t cols) {
    memory_.push_back(backend_.Allocate(static_cast<size_t>(rows * cols) * 4));
    return {memory_.back().data(), rows, cols, cols};
  }

  const std::unique_ptr<Weight> router_;
  const std::vector<kernels::TreeNode> node_;
  kernels::RouterRule rule_;
  ExpertWeights experts_;
  std::vector<DeviceMemory> memory_;
  DeviceMatrix norm_;
  DeviceMatrix normed_;
  DeviceMatrix logits_;
  DeviceMatrix ids_;
  DeviceMatrix weights_;
  std::vector<DeviceMatrix> sum_;
  std::vector<DeviceMatrix> now_;  // the step's rows of sum_
};

// Compares and adds an entry for each number of tokens.
bool Compare(RowOp& op, const std::vector<int64_t>& tokens, const Json& entry,
             Json& to) {
  const int64_t most = *std::max_element(tokens.begin(), tokens.end());
  std::vector<float> alone;
  for (int64_t t = 0; t < most; ++t) {
    const std::vector<float> row = op.Of(t, 1);
    alone.insert(alone.end(), row.begin(), row.end());
  }
  // Else nothing is compared.
  const bool is_finite = std::all_of(alone.begin(), alone.end(),
                                     [](float y) { return std::isfinite(y); });
  bool all = is_finite && std::any_of(alone.begin(), alone.end(),
                                      [](float y) { return y != 0; });
  to.push_back(entry);
  to.back()["finite"] = all;
  for (const int64_t n : tokens) {
    const bool same = kernels::SameBits(
        op.Of(0, n),
        std::vector<float>(alone.begin(), alone.begin() + n * op.rows()));
    Json& one = to.emplace_back(entry);
    one["tokens"] = n;
    one["same_bits"] = same;
    all = all && same;
  }
  return all;
}

}  // namespace

RowBitsSizes LargeRowBits() {
  RowBitsSizes sizes;
  sizes.tokens = {2, 8, 9, 33, 65, 128, 129, 300};
  // Norms have two chains a thread above 4,096 columns, and not all their
  // weights in shared memory at 8,192.
  sizes.plain_cols = {8192, 5120, 4096, 1056, 1037, 20};
  sizes.block_cols = {8192, 5120, 4096, 1280};
  for (int i = 0; i < kernels::kNumWeightTypes; ++i) {
    const auto type = static_cast<WeightType>(i);
    // The others are computed canonically in fast numerics, too.
    const bool has_tiles = type != WeightType::kF32 &&
                           type != WeightType::kIq4Nl &&
                           type != WeightType::kIq4Xs;
    if (has_tiles) sizes.types.push_back(type);
  }
  return sizes;
}

bool RowsHaveTheirOwnBits(Backend& backend, const RowBitsSizes& sizes,
                          Json& to) {
  const int64_t most =
      *std::max_element(sizes.tokens.begin(), sizes.tokens.end());
  bool all = true;
  for (const WeightType type : sizes.types) {
    const bool plain = type == WeightType::kBf16;
    const std::string_view name = FormatOf(type).name;
    for (const int64_t cols : plain ? sizes.plain_cols : sizes.block_cols) {
      const auto weight = [&](int64_t rows) {
        return plain ? WideBf16(11, rows, cols)
                     : RandomWeight(type, 11, rows, cols);
      };
      // A token's gated product is one launch for whole pairs of tiles alone.
      const int64_t gated_rows = sizes.rows / 32 * 32;
      const auto compare = [&](RowOp&& op, const std::string& what) {
        const Json entry = {{"op", Cat(name, " ", what, ", rows alone")},
                            {"cols", cols}};
        all = Compare(op, sizes.tokens, entry, to) && all;
      };
      for (const bool normed : {false, true}) {
        const char* const norm = normed ? "norm, " : "";
        compare(ProductOp(backend, most, weight(sizes.rows), normed),
                Cat(norm, "product"));
        compare(GatedOp(backend, most, weight(gated_rows), normed),
                Cat(norm, "gated product"));
      }
      if (cols % ExpertOp::kInner != 0) continue;
      compare(ExpertOp(backend, most, type, cols, sizes.experts), "experts");
    }
  }
  return all;
}

}  // namespace sluice::testing
