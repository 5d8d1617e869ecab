#include "kernels/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "common/tensor/buffer.h"
#include "common/tensor/weight_format.h"
#include "gtest/gtest.h"
#include "kernels/block_pack.h"
#include "tests/kernels/block_reference.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kHidden = 64;
constexpr int64_t kMlp = 32;

// A random weight of any type.
struct OwnWeight {
  std::unique_ptr<OwnedWeight> plain;
  std::unique_ptr<CodedWeight> coded;
  Buffer packed;
  std::vector<float> values;
  ExpertWeight view;
};

// A layer of random experts, and rows that ask them.
struct Layer {
  Layer(int32_t num_experts, int32_t k, int64_t num_tokens, WeightType type,
        bool gpt_oss)
      : experts(num_experts), per_row(k), tokens(num_tokens) {
    for (int32_t e = 0; e < experts; ++e) {
      const auto seed = static_cast<uint64_t>(100 + 2 * e);
      gate_up.push_back(Make(type, seed, 2 * kMlp, kHidden));
      // An expert's two weights may differ in their types.
      down.push_back(Make(type == WeightType::kQ4_1 ? WeightType::kMxfp4 : type,
                          seed + 1, kHidden, kMlp));
    }
    for (const OwnWeight& w : gate_up) gate_up_views.push_back(w.view);
    for (const OwnWeight& w : down) down_views.push_back(w.view);
    if (gpt_oss) {
      limit = 0.7f;
      gate_up_bias = RandomFloats(5, experts * 2 * kMlp, 0.3f);
      down_bias = RandomFloats(6, experts * kHidden, 0.3f);
    }
    x = RandomFloats(7, tokens * kHidden);
    const auto picks = RandomFloats(8, tokens * experts);
    weights = RandomFloats(9, tokens * k);
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<std::pair<float, int32_t>> order;
      for (int32_t e = 0; e < experts; ++e) {
        order.push_back({picks[t * experts + e], e});
      }
      std::sort(order.begin(), order.end());
      std::set<int32_t> chosen;
      for (int32_t j = 0; j < k; ++j) chosen.insert(order[j].second);
      ids.insert(ids.end(), chosen.begin(), chosen.end());
    }
  }

  static OwnWeight Make(WeightType type, uint64_t seed, int64_t rows,
                        int64_t cols) {
    OwnWeight made;
    if (IsFp8(type)) {
      made.coded = std::make_unique<CodedWeight>(type, seed, rows, cols);
      made.values = made.coded->values();
      made.view.plain = made.coded->view();
      return made;
    }
    if (FormatOf(type).is_plain()) {
      made.values = RandomBf16(seed, rows * cols, 0.3f);
      made.plain = std::make_unique<OwnedWeight>(type, rows, cols, made.values);
      made.view.plain = made.plain->view();
      return made;
    }
    const BlockFormat format = BlockFormatOf(type);
    const auto stored = RandomBlockRows(format, seed, rows, cols);
    made.values.resize(static_cast<size_t>(rows * cols));
    WidenBlocks(format, stored.data(), rows * cols / BlockElements(format),
                made.values.data());
    made.packed = Buffer(static_cast<size_t>(PackedBytes(format, rows, cols)));
    PackRows({format, stored.data(), rows, cols, StoredRowBytes(format, cols)},
             made.packed.as<uint8_t>());
    made.view.blocks = {format, made.packed.as<uint8_t>(), rows, cols};
    return made;
  }

  // The nodes of experts [begin, end), for rows [first, first + count).
  std::vector<std::vector<float>> Nodes(const Context& context, int32_t begin,
                                        int32_t end, int64_t first,
                                        int64_t count) const {
    const auto nodes = AlignedNodes(begin, end, experts);
    ExpertsView view;
    view.first = begin;
    view.gate_up = std::span(gate_up_views).subspan(begin, end - begin);
    view.down = std::span(down_views).subspan(begin, end - begin);
    if (!gate_up_bias.empty()) {
      view.gate_up_bias = gate_up_bias.data() + begin * 2 * kMlp;
      view.down_bias = down_bias.data() + begin * kHidden;
    }
    if (limit > 0) {
      view.activation = {Activation::Kind::kClampedSwiGlu, limit};
    }
    const OwnedMatrix rows(
        count, kHidden,
        {x.begin() + first * kHidden, x.begin() + (first + count) * kHidden});
    std::vector<OwnedMatrix> out(nodes.size(), OwnedMatrix(count, kHidden, 2));
    std::vector<Matrix> parts;
    for (OwnedMatrix& part : out) parts.push_back(part.view());
    const DotIsa dot_isa = DotIsaFor(context.isa);
    ExpertNodes(context, {context.executor, &BlockOpsFor(dot_isa)}, view,
                {rows.view(), ids.data() + first * per_row,
                 weights.data() + first * per_row, per_row},
                nodes, parts);
    std::vector<std::vector<float>> values;
    for (const OwnedMatrix& part : out) {
      EXPECT_TRUE(part.MarkIntact());
      values.push_back(part.values());
    }
    return values;
  }

  // Nodes of experts cut at `cuts`, joined.
  std::vector<float> Joined(const Context& context,
                            const std::vector<int32_t>& cuts) const {
    std::vector<TreeNode> nodes;
    std::vector<std::vector<float>> sums;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const auto own = AlignedNodes(cuts[i], cuts[i + 1], experts);
      const auto values = Nodes(context, cuts[i], cuts[i + 1], 0, tokens);
      nodes.insert(nodes.end(), own.begin(), own.end());
      sums.insert(sums.end(), values.begin(), values.end());
    }
    return Join(nodes, sums, {0, experts});
  }

  static std::vector<float> Join(const std::vector<TreeNode>& nodes,
                                 const std::vector<std::vector<float>>& sums,
                                 TreeNode node) {
    const auto at = std::find(nodes.begin(), nodes.end(), node);
    if (at != nodes.end()) return sums[at - nodes.begin()];
    const int32_t middle = node.begin + SplitPoint(node.end - node.begin);
    auto left = Join(nodes, sums, {node.begin, middle});
    const auto right = Join(nodes, sums, {middle, node.end});
    for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
    return left;
  }

  int32_t experts;
  int32_t per_row;
  int64_t tokens;
  std::vector<OwnWeight> gate_up;
  std::vector<OwnWeight> down;
  std::vector<ExpertWeight> gate_up_views;
  std::vector<ExpertWeight> down_views;
  std::vector<float> gate_up_bias;
  std::vector<float> down_bias;
  float limit = 0.0f;
  std::vector<float> x;
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

class ExpertsTest : public testing::TestWithParam<std::tuple<Isa, WeightType>> {
 protected:
  void SetUp() override {
    if (!HasIsa(isa())) {
      GTEST_SKIP() << "this machine has no " << ToString(isa());
    }
  }
  Isa isa() const { return std::get<0>(GetParam()); }
  WeightType type() const { return std::get<1>(GetParam()); }
  Context context() const { return {.executor = nullptr, .isa = isa()}; }
};

double LargestOf(const float* x, int64_t n) {
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::abs(double{x[i]}));
  }
  return largest;
}

double AbsSum(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::abs(double{x[i]});
  return sum;
}

// One output of one expert in double, and its tolerance.
struct Approximate {
  double value;
  double bound;
};

std::vector<Approximate> ExpertInDouble(const Layer& layer, int32_t e,
                                        const float* x) {
  const auto& up = layer.gate_up[e].values;
  const auto& down = layer.down[e].values;
  // Codes of activations are off by half a step at most.
  const bool coded = !layer.gate_up[e].view.is_plain();
  const auto off = [coded](double largest, const float* w, int64_t n) {
    return coded ? largest / 254 * AbsSum(w, n) : 0.0;
  };
  const double largest = LargestOf(x, kHidden);
  std::vector<double> middle;
  std::vector<double> errors;
  const bool clamped = layer.limit > 0;
  const double limit = layer.limit;
  const double gamma = Gamma(kHidden / 16 + 6);
  for (int64_t i = 0; i < kMlp; ++i) {
    double v[2];
    double error[2];
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t r = i + half * kMlp;
      const double bias =
          clamped ? double{layer.gate_up_bias[e * 2 * kMlp + r]} : 0.0;
      v[half] = DotInDouble(x, up.data() + r * kHidden, kHidden) + bias;
      error[half] = gamma * (AbsDot(x, up.data() + r * kHidden, kHidden) +
                             std::abs(bias)) +
                    off(largest, up.data() + r * kHidden, kHidden);
    }
    double gate = v[0];
    double other = v[1];
    if (clamped) {
      gate = std::min(gate, limit);
      other = std::clamp(other, -limit, limit) + 1;
    }
    const double slope = clamped ? 1.702 : 1.0;
    const double act = gate / (1 + std::exp(-slope * gate));
    middle.push_back(act * other);
    // The activation's slope is below 1.2.
    errors.push_back(1.2 * error[0] * std::abs(other) +
                     error[1] * std::abs(act) +
                     0x1p-20 * std::abs(act * other));
  }
  double widest = 0;
  for (int64_t i = 0; i < kMlp; ++i) {
    widest = std::max(widest, std::abs(middle[i]) + errors[i]);
  }
  std::vector<Approximate> out;
  for (int64_t h = 0; h < kHidden; ++h) {
    double sum = clamped ? double{layer.down_bias[e * kHidden + h]} : 0.0;
    double bound =
        std::abs(sum) * gamma + off(widest, down.data() + h * kMlp, kMlp);
    for (int64_t i = 0; i < kMlp; ++i) {
      const double w = down[h * kMlp + i];
      sum += w * middle[i];
      bound += std::abs(w) * (errors[i] + gamma * std::abs(middle[i]));
    }
    out.push_back({sum, bound});
  }
  return out;
}

TEST_P(ExpertsTest, SumsAreCloseToDouble) {
  for (bool gpt_oss : {false, true}) {
    const Layer layer(8, 3, 9, type(), gpt_oss);
    const auto got = layer.Nodes(context(), 0, 8, 0, layer.tokens);
    ASSERT_EQ(got.size(), 1u);
    for (int64_t t = 0; t < layer.tokens; ++t) {
      std::vector<double> want(kHidden, 0.0);
      std::vector<double> bound(kHidden, 0.0);
      for (int32_t j = 0; j < layer.per_row; ++j) {
        const double weight = layer.weights[t * layer.per_row + j];
        const auto out = ExpertInDouble(layer, layer.ids[t * layer.per_row + j],
                                        layer.x.data() + t * kHidden);
        for (int64_t h = 0; h < kHidden; ++h) {
          want[h] += weight * out[h].value;
          bound[h] += std::abs(weight) *
                      (out[h].bound + Gamma(4) * std::abs(out[h].value));
        }
      }
      for (int64_t h = 0; h < kHidden; ++h) {
        ASSERT_NEAR(got[0][t * kHidden + h], want[h], bound[h])
            << "token " << t << " column " << h;
      }
    }
  }
}

TEST_P(ExpertsTest, WhoeverOwnsWhichExpertsTheSumHasTheSameBits) {
  for (int32_t experts : {1, 2, 3, 8, 11, 16}) {
    const int32_t k = std::min(experts, 4);
    const Layer layer(experts, k, 6, type(), /*gpt_oss=*/true);
    const auto whole = layer.Joined(context(), {0, experts});
    for (int32_t a = 0; a <= experts; ++a) {
      for (int32_t b = a; b <= experts; b += 2) {
        EXPECT_TRUE(
            SameBits(layer.Joined(context(), {0, a, b, experts}), whole))
            << experts << " experts cut at " << a << " and " << b;
      }
    }
  }
}

TEST_P(ExpertsTest, ARowAloneHasTheBitsOfTheRowInABatchOnAnyIsaAndTeam) {
  ThreadTeam team({.num_threads = 3});
  const Layer layer(16, 4, 37, type(), /*gpt_oss=*/false);
  const auto all = layer.Nodes(context(), 0, 16, 0, layer.tokens)[0];
  const Context teamed = {.executor = &team, .isa = isa()};
  EXPECT_TRUE(SameBits(layer.Nodes(teamed, 0, 16, 0, layer.tokens)[0], all));
  EXPECT_TRUE(SameBits(layer.Nodes({}, 0, 16, 0, layer.tokens)[0], all));
  for (int64_t t = 0; t < layer.tokens; ++t) {
    const std::vector<float> want(all.begin() + t * kHidden,
                                  all.begin() + (t + 1) * kHidden);
    EXPECT_TRUE(SameBits(layer.Nodes(context(), 0, 16, t, 1)[0], want)) << t;
  }
}

TEST_P(ExpertsTest, ANodeThatNobodyAsksIsMinusZero) {
  Layer layer(4, 1, 1, type(), /*gpt_oss=*/true);
  layer.ids = {3};
  const auto nodes = layer.Nodes(context(), 0, 3, 0, 1);  // [0, 2) and [2, 3)
  ASSERT_EQ(nodes.size(), 2u);
  const std::vector<float> nothing(kHidden, -0.0f);
  EXPECT_TRUE(SameBits(nodes[0], nothing));
  EXPECT_TRUE(SameBits(nodes[1], nothing));
}

TEST_P(ExpertsTest, ARowThatIsNotFiniteIsNanAndNoOtherRowChanges) {
  Layer layer(4, 2, 3, type(), /*gpt_oss=*/false);
  const auto before = layer.Nodes(context(), 0, 4, 0, 3)[0];
  layer.x[kHidden + 5] = std::numeric_limits<float>::infinity();
  const auto after = layer.Nodes(context(), 0, 4, 0, 3)[0];
  for (int64_t t : {0, 2}) {
    for (int64_t h = 0; h < kHidden; ++h) {
      ASSERT_EQ(after[t * kHidden + h], before[t * kHidden + h]);
    }
  }
  bool failed = false;
  for (int64_t h = 0; h < kHidden; ++h) {
    failed = failed || !std::isfinite(after[kHidden + h]);
  }
  EXPECT_TRUE(failed);
}

INSTANTIATE_TEST_SUITE_P(
    IsasAndTypes, ExpertsTest,
    testing::Combine(testing::ValuesIn(kAllIsas),
                     testing::Values(WeightType::kF32, WeightType::kBf16,
                                     WeightType::kE4m3, WeightType::kQ8_0,
                                     WeightType::kQ4_1)),
    [](const auto& tested) {
      const WeightType type = std::get<1>(tested.param);
      return std::string(ToString(std::get<0>(tested.param))) +
             std::string(FormatOf(type).name);
    });

}  // namespace
}  // namespace sluice::kernels
