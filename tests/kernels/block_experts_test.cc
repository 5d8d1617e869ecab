// Grouped products of quantised experts: the bits of the arithmetic written
// out, for every format, instruction set, batch, cut and number of threads.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <variant>

#include "common/concurrency/thread_team.h"
#include "gtest/gtest.h"
#include "kernels/elementwise.h"
#include "kernels/experts.h"
#include "tests/kernels/block_reference.h"
#include "tests/kernels/block_tester.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

using WeightKind = std::variant<WeightType, BlockFormat>;

std::string NameOfKind(WeightKind kind) {
  if (const auto* format = std::get_if<BlockFormat>(&kind)) {
    return NameOf(*format);
  }
  const WeightType type = std::get<WeightType>(kind);
  return type == WeightType::kF32 ? "F32" : "Bf16";
}

// An expert's weight of either kind, and its products written out.
class TestWeight {
 public:
  TestWeight(WeightKind kind, uint64_t seed, int64_t rows, int64_t cols)
      : rows_(rows), cols_(cols) {
    if (const auto* format = std::get_if<BlockFormat>(&kind)) {
      stored_ = RandomBlockRows(*format, seed, rows, cols);
      blocks_ = std::make_unique<OwnedBlocks>(*format, stored_, rows, cols);
    } else {
      plain_ =
          std::make_unique<OwnedWeight>(std::get<WeightType>(kind), rows, cols,
                                        RandomBf16(seed, rows * cols, 0.3f));
    }
  }
  ExpertWeight view() const {
    ExpertWeight view;
    if (blocks_ != nullptr) view.blocks = blocks_->view();
    if (plain_ != nullptr) view.plain = plain_->view();
    return view;
  }
  std::vector<float> Times(const std::vector<float>& x) const {
    std::vector<float> y;
    if (plain_ != nullptr) {
      const auto values = plain_->values();
      for (int64_t r = 0; r < rows_; ++r) {
        y.push_back(CanonicalDot(x.data(), values.data() + r * cols_, cols_));
      }
      return y;
    }
    const BlockFormat format = blocks_->view().format;
    const int64_t blocks = cols_ / BlockElements(format);
    const auto row = QuantizeReference(x, BlockElements(format));
    for (int64_t r = 0; r < rows_; ++r) {
      y.push_back(CanonicalBlockDot(
          format, stored_.data() + r * blocks * BlockBytes(format), row, 0,
          blocks));
    }
    return y;
  }

 private:
  int64_t rows_;
  int64_t cols_;
  std::vector<uint8_t> stored_;
  std::unique_ptr<OwnedBlocks> blocks_;
  std::unique_ptr<OwnedWeight> plain_;
};

struct Shape {
  int32_t experts = 8;
  int32_t per_row = 3;
  int64_t tokens = 9;
  bool gpt_oss = false;
  int64_t hidden = 256;
  int64_t mlp = 256;
};

using NodeRows = std::vector<std::vector<float>>;

// A layer of random experts, and rows that ask them.
class TestLayer {
 public:
  TestLayer(WeightKind gate_up, WeightKind down, Shape shape) : shape_(shape) {
    for (int32_t e = 0; e < shape.experts; ++e) {
      const auto seed = static_cast<uint64_t>(300 + 2 * e);
      gate_up_.emplace_back(gate_up, seed, 2 * shape.mlp, shape.hidden);
      down_.emplace_back(down, seed + 1, shape.hidden, shape.mlp);
      gate_up_views_.push_back(gate_up_.back().view());
      down_views_.push_back(down_.back().view());
    }
    if (shape.gpt_oss) {
      gate_up_bias_ = RandomFloats(5, shape.experts * 2 * shape.mlp, 0.3f);
      down_bias_ = RandomFloats(6, shape.experts * shape.hidden, 0.3f);
    }
    x = RandomFloats(7, shape.tokens * shape.hidden);
    weights_ = RandomFloats(9, shape.tokens * shape.per_row);
    const auto picks = RandomFloats(8, shape.tokens * shape.experts);
    for (int64_t t = 0; t < shape.tokens; ++t) {
      std::vector<std::pair<float, int32_t>> order;
      for (int32_t e = 0; e < shape.experts; ++e) {
        order.push_back({picks[t * shape.experts + e], e});
      }
      std::sort(order.begin(), order.end());
      std::set<int32_t> chosen;
      for (int32_t j = 0; j < shape.per_row; ++j) {
        chosen.insert(order[j].second);
      }
      ids_.insert(ids_.end(), chosen.begin(), chosen.end());
    }
  }

  // The nodes of experts [begin, end), for rows [first, first + count).
  NodeRows Nodes(const Context& context, const DotContext& dot, int32_t begin,
                 int32_t end, int64_t first, int64_t count) const {
    const int64_t hidden = shape_.hidden;
    const auto nodes = AlignedNodes(begin, end, shape_.experts);
    ExpertsView view;
    view.first = begin;
    view.gate_up = std::span(gate_up_views_).subspan(begin, end - begin);
    view.down = std::span(down_views_).subspan(begin, end - begin);
    if (shape_.gpt_oss) {
      view.gate_up_bias = gate_up_bias_.data() + begin * 2 * shape_.mlp;
      view.down_bias = down_bias_.data() + begin * hidden;
      view.activation = {Activation::Kind::kClampedSwiGlu, 0.7f};
    }
    std::vector<OwnedMatrix> out(nodes.size(), OwnedMatrix(count, hidden, 2));
    std::vector<Matrix> parts;
    for (OwnedMatrix& part : out) parts.push_back(part.view());
    ExpertNodes(context, dot, view,
                {{x.data() + first * hidden, count, hidden, hidden},
                 ids_.data() + first * shape_.per_row,
                 weights_.data() + first * shape_.per_row,
                 shape_.per_row},
                nodes, parts);
    NodeRows got;
    for (const OwnedMatrix& part : out) {
      EXPECT_TRUE(part.MarkIntact());
      got.push_back(part.values());
    }
    return got;
  }
  NodeRows All(const Context& context, const DotContext& dot) const {
    return Nodes(context, dot, 0, shape_.experts, 0, shape_.tokens);
  }

  // What Nodes must give for all rows.
  std::vector<std::vector<float>> Want(int32_t begin, int32_t end) const {
    std::vector<std::vector<std::vector<float>>> outputs;  // by token, expert
    for (int64_t t = 0; t < shape_.tokens; ++t) {
      outputs.emplace_back(shape_.experts,
                           std::vector<float>(shape_.hidden, -0.0f));
      for (int64_t i = t * shape_.per_row; i < (t + 1) * shape_.per_row; ++i) {
        auto row = Output(t, ids_[i]);
        for (float& value : row) value *= weights_[i];
        outputs.back()[ids_[i]] = row;
      }
    }
    std::vector<std::vector<float>> want;
    for (const TreeNode node : AlignedNodes(begin, end, shape_.experts)) {
      want.emplace_back();
      for (int64_t t = 0; t < shape_.tokens; ++t) {
        for (int64_t h = 0; h < shape_.hidden; ++h) {
          want.back().push_back(ReduceTree(
              node.begin, node.end, [&](int32_t e) { return outputs[t][e][h]; },
              [](float a, float b) { return a + b; }));
        }
      }
    }
    return want;
  }

  std::vector<float> x;

 private:
  std::vector<float> Output(int64_t t, int32_t e) const {
    const int64_t mlp = shape_.mlp;
    const auto begin = x.begin() + t * shape_.hidden;
    auto both = gate_up_[e].Times({begin, begin + shape_.hidden});
    std::vector<float> middle(static_cast<size_t>(mlp));
    const Matrix to = {middle.data(), 1, mlp, mlp};
    if (!shape_.gpt_oss) {
      SiluMul({}, {both.data(), 1, 2 * mlp, 2 * mlp}, to);
      return down_[e].Times(middle);
    }
    for (int64_t i = 0; i < 2 * mlp; ++i) {
      both[i] += gate_up_bias_[e * 2 * mlp + i];
    }
    ClampedSwiGlu({}, {both.data(), 1, 2 * mlp, 2 * mlp}, 0.7f, to);
    auto row = down_[e].Times(middle);
    for (int64_t h = 0; h < shape_.hidden; ++h) {
      row[h] += down_bias_[e * shape_.hidden + h];
    }
    return row;
  }

  const Shape shape_;
  std::vector<TestWeight> gate_up_;
  std::vector<TestWeight> down_;
  std::vector<ExpertWeight> gate_up_views_;
  std::vector<ExpertWeight> down_views_;
  std::vector<float> gate_up_bias_;
  std::vector<float> down_bias_;
  std::vector<int32_t> ids_;
  std::vector<float> weights_;
};

struct Kinds {
  WeightKind gate_up;
  WeightKind down;
};

// Every format with itself and with another one, and plain weights beside
// blocks.
std::vector<Kinds> AllKinds() {
  const auto formats = TestedBlockFormats();
  std::vector<Kinds> kinds;
  for (size_t i = 0; i < formats.size(); ++i) {
    kinds.push_back({formats[i], formats[i]});
    kinds.push_back({formats[i], formats[(i + 3) % formats.size()]});
  }
  kinds.push_back({BlockFormat::kQ4_0, WeightType::kF32});
  kinds.push_back({WeightType::kF32, BlockFormat::kQ4K});
  kinds.push_back({WeightType::kBf16, BlockFormat::kQ8_0});
  kinds.push_back({BlockFormat::kQ5K, WeightType::kBf16});
  kinds.push_back({WeightType::kBf16, WeightType::kF32});
  return kinds;
}

class BlockExpertsTest : public testing::TestWithParam<Kinds> {
 protected:
  TestLayer Layer(Shape shape) const {
    return TestLayer(GetParam().gate_up, GetParam().down, shape);
  }
};

TEST_P(BlockExpertsTest, NodesHaveTheBitsOfTheArithmetic) {
  ThreadTeam team({.num_threads = 3});
  for (const bool gpt_oss : {false, true}) {
    const TestLayer layer = Layer({.gpt_oss = gpt_oss});
    const auto want = layer.Want(0, 8);
    for (const DotSet& set : AllDotSets()) {
      for (Executor* executor :
           {static_cast<Executor*>(nullptr), static_cast<Executor*>(&team)}) {
        const auto got =
            layer.All({executor, DetectIsa()}, {executor, set.ops});
        ASSERT_EQ(got.size(), 1u);
        ASSERT_TRUE(SameBits(got[0], want[0]))
            << set.name << (executor == nullptr ? "" : ", a team")
            << (gpt_oss ? ", gpt-oss" : "");
      }
    }
    for (const Isa isa : AvailableIsas()) {
      const auto got =
          layer.All({nullptr, isa}, {nullptr, &BlockOpsFor(DotIsaFor(isa))});
      ASSERT_TRUE(SameBits(got[0], want[0])) << ToString(isa);
    }
  }
}

TEST_P(BlockExpertsTest, WhoeverOwnsWhichExpertsTheNodesAreThoseOfTheLayer) {
  const TestLayer layer = Layer({.experts = 6, .tokens = 4});
  const DotContext dot = {nullptr, AllDotSets().back().ops};
  for (int32_t begin = 0; begin < 6; ++begin) {
    for (int32_t end = begin + 1; end <= 6; end += 2) {
      const auto got =
          layer.Nodes({nullptr, DetectIsa()}, dot, begin, end, 0, 4);
      EXPECT_EQ(got, layer.Want(begin, end)) << begin << " " << end;
    }
  }
}

TEST_P(BlockExpertsTest, ARowAloneHasTheBitsOfTheRowInABatch) {
  ThreadTeam team({.num_threads = 2});
  const TestLayer layer = Layer({.experts = 4, .per_row = 2, .tokens = 33});
  const Context context = {&team, DetectIsa()};
  const DotContext dot = {&team, &BlockOpsFor(DotIsaFor(DetectIsa()))};
  const auto all = layer.All(context, dot)[0];
  for (int64_t t = 0; t < 33; ++t) {
    const std::vector<float> want(all.begin() + t * 256,
                                  all.begin() + (t + 1) * 256);
    EXPECT_TRUE(SameBits(layer.Nodes(context, dot, 0, 4, t, 1)[0], want)) << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, BlockExpertsTest, testing::ValuesIn(AllKinds()),
                         [](const auto& tested) {
                           return NameOfKind(tested.param.gate_up) + "And" +
                                  NameOfKind(tested.param.down);
                         });

// Rows 0 to 3 of a layer of blocks; row 2 has `bad` in it.
NodeRows WithValue(float bad, const DotSet& set) {
  TestLayer layer(BlockFormat::kQ8_0, BlockFormat::kQ8_0,
                  {.tokens = 4, .hidden = 64, .mlp = 32});
  layer.x[2 * 64 + 37] = bad;
  return layer.All({nullptr, DetectIsa()}, {nullptr, set.ops});
}

TEST(BlockExpertRowsTest, ARowThatIsNotFiniteFailsAndTheOthersAreNotTouched) {
  for (const DotSet& set : AllDotSets()) {
    const auto want = WithValue(0.5f, set);
    // The largest number is quantised; its products' product is infinite.
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::max()}) {
      const auto got = WithValue(bad, set);
      for (size_t i = 0; i < want[0].size(); ++i) {
        if (i / 64 == 2) {
          EXPECT_TRUE(std::isnan(got[0][i])) << set.name << " " << bad;
        } else {
          EXPECT_EQ(got[0][i], want[0][i]) << set.name << " " << bad;
        }
      }
    }
  }
}

TEST(BlockExpertRowsTest, ManyRowsRunInSeveralPartsWithTheSameBits) {
  // 2 * 800 rows of 2 * 512 values are above what runs at once.
  const Shape shape = {
      .experts = 3, .per_row = 2, .tokens = 800, .hidden = 32, .mlp = 512};
  const TestLayer layer(BlockFormat::kQ4_0, BlockFormat::kQ5_1, shape);
  ThreadTeam team({.num_threads = 2});
  const Context context = {&team, DetectIsa()};
  const DotContext dot = {&team, &BlockOpsFor(DotIsaFor(DetectIsa()))};
  const auto all = layer.All(context, dot)[0];
  for (int64_t t = 0; t < shape.tokens; t += 37) {
    const std::vector<float> want(all.begin() + t * 32,
                                  all.begin() + (t + 1) * 32);
    EXPECT_TRUE(SameBits(layer.Nodes(context, dot, 0, 3, t, 1)[0], want));
  }
}

}  // namespace
}  // namespace sluice::kernels
