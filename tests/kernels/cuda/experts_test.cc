#include "kernels/cuda/experts.h"

#include <cmath>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "common/tensor/weight_format.h"
#include "gtest/gtest.h"
#include "kernels/experts.h"
#include "tests/kernels/block_reference.h"
#include "tests/kernels/block_tester.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

struct Sizes {
  int32_t experts;
  int32_t per_row;
  int64_t tokens;
  int64_t hidden;
  int64_t mlp;
};

// Random experts, and rows that ask them.
class Layer {
 public:
  // types: expert e's weights have type types[e % size]; of `down` those of the
  // second product, if there are any.
  Layer(const Sizes& sizes, const std::vector<WeightType>& types, bool biased,
        std::vector<WeightType> down = {})
      : sizes_(sizes) {
    if (down.empty()) down = types;
    for (int32_t e = 0; e < sizes.experts; ++e) {
      const auto at = static_cast<size_t>(e);
      const WeightType type = types[at % types.size()];
      const auto seed = static_cast<uint64_t>(100 + 2 * e);
      gate_up_.push_back(Make(type, seed, 2 * sizes.mlp, sizes.hidden));
      down_.push_back(
          Make(down[at % down.size()], seed + 1, sizes.hidden, sizes.mlp));
    }
    if (biased) {
      gate_up_bias_ = RandomFloats(5, sizes.experts * 2 * sizes.mlp, 0.3f);
      down_bias_ = RandomFloats(6, sizes.experts * sizes.hidden, 0.3f);
    }
    x = RandomFloats(7, sizes.tokens * sizes.hidden);
    weights_ = RandomFloats(9, sizes.tokens * sizes.per_row);
    const auto picks = RandomFloats(8, 64 * sizes.tokens * sizes.experts);
    size_t at = 0;
    for (int64_t t = 0; t < sizes.tokens; ++t) {
      std::set<int32_t> chosen;
      while (std::ssize(chosen) < sizes.per_row) {
        const float pick = (picks[at++] + 1) / 2;
        chosen.insert(static_cast<int32_t>(
            pick * static_cast<float>(sizes.experts) * 0.999f));
      }
      ids_.insert(ids_.end(), chosen.begin(), chosen.end());
    }
  }

  // The fewest nodes of experts [begin, end), or each expert as one, have the
  // CPU's bits; a NaN is any.
  void Expect(int32_t begin, int32_t end, float limit,
              bool single = false) const {
    SCOPED_TRACE(testing::Message() << "experts " << begin << " to " << end);
    auto nodes = AlignedNodes(begin, end, sizes_.experts);
    if (single) {
      nodes.clear();
      for (int32_t e = begin; e < end; ++e) nodes.push_back({e, e + 1});
    }
    const std::span all_gate_up(gate_up_);
    const std::span all_down(down_);
    ExpertsView view;
    view.first = begin;
    view.gate_up = all_gate_up.subspan(begin, end - begin);
    view.down = all_down.subspan(begin, end - begin);
    if (!gate_up_bias_.empty()) {
      view.gate_up_bias = gate_up_bias_.data() + begin * 2 * sizes_.mlp;
      view.down_bias = down_bias_.data() + begin * sizes_.hidden;
    }
    if (limit > 0) {
      view.activation = {Activation::Kind::kClampedSwiGlu, limit};
    }
    const OwnedMatrix input(sizes_.tokens, sizes_.hidden, x);
    const ExpertRows rows = {input.view(), ids_.data(), weights_.data(),
                             sizes_.per_row};
    const auto run = [&](const auto& op) {
      // Rows of some are aligned.
      const int64_t pad = sizes_.per_row % 2 == 0 ? 4 : 2;
      std::vector<OwnedMatrix> out(
          nodes.size(), OwnedMatrix(sizes_.tokens, sizes_.hidden, pad));
      std::vector<Matrix> parts;
      for (OwnedMatrix& part : out) parts.push_back(part.view());
      op(parts);
      std::vector<float> all;
      for (const OwnedMatrix& part : out) {
        EXPECT_TRUE(part.MarkIntact());
        for (const float value : part.values()) {
          all.push_back(std::isnan(value) ? NAN : value);
        }
      }
      return all;
    };
    const DotContext dot = {nullptr, &BlockOpsFor(DotIsa::kPortable)};
    const auto want = run([&](const std::vector<Matrix>& parts) {
      kernels::ExpertNodes({}, dot, view, rows, nodes, parts);
    });
    const auto addresses = [](std::span<const ExpertWeight> weights) {
      std::vector<const void*> at;
      for (const ExpertWeight& w : weights) {
        at.push_back(w.is_plain() ? w.plain.data : w.blocks.packed);
      }
      return at;
    };
    const auto gate_up = addresses(view.gate_up);
    const auto down = addresses(view.down);
    const int64_t bytes = ExpertBytes({sizes_.tokens, sizes_.per_row,
                                       end - begin, sizes_.hidden, sizes_.mlp});
    const auto got = BothWays([&](Stream stream) {
      return run([&](const std::vector<Matrix>& parts) {
        std::vector<float> memory(static_cast<size_t>(bytes / 4), NAN);
        ExpertNodes(stream, view,
                    {gate_up.data(), down.data(), memory.data(), bytes}, rows,
                    nodes, parts);
      });
    });
    EXPECT_TRUE(SameBits(got, want));
    if (nodes.size() > 1 || end - begin < sizes_.experts) return;
    const ExpertTable table = {gate_up.data(), down.data(), nullptr, bytes};
    for (const bool has_more : {false, true}) {
      ExpectAdded(view, table, rows, want, has_more);
    }
  }

  std::vector<float> x;

 private:
  // A residual plus `node` [tokens, hidden], the sum of all experts, and more.
  void ExpectAdded(const ExpertsView& view, ExpertTable table,
                   const ExpertRows& rows, const std::vector<float>& node,
                   bool has_more) const {
    const int64_t count = sizes_.tokens * sizes_.hidden;
    const std::vector<float> residual = RandomFloats(31, count);
    const std::vector<float> values = RandomFloats(32, count);
    const OwnedMatrix more(sizes_.tokens, sizes_.hidden, values);
    std::vector<float> want;
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      const float sum = has_more ? node[at] + values[at] : node[at];
      const float all = residual[at] + sum;
      want.push_back(std::isnan(all) ? NAN : all);
    }
    const auto got = BothWays([&](Stream stream) {
      OwnedMatrix to(sizes_.tokens, sizes_.hidden, residual);
      std::vector<float> memory(static_cast<size_t>(table.bytes / 4), NAN);
      ExpertTable own = table;
      own.memory = memory.data();
      ExpertSum sum = {{0, sizes_.experts}, {}, to.view()};
      if (has_more) sum.more = more.view();
      AddExperts(stream, view, own, rows, sum);
      std::vector<float> all;
      for (const float value : to.values()) {
        all.push_back(std::isnan(value) ? NAN : value);
      }
      return all;
    });
    EXPECT_TRUE(SameBits(got, want)) << (has_more ? "with more" : "alone");
  }

  ExpertWeight Make(WeightType type, uint64_t seed, int64_t rows,
                    int64_t cols) {
    if (IsFp8(type)) {
      coded_.push_back(std::make_unique<CodedWeight>(type, seed, rows, cols));
      return {coded_.back()->view(), {}};
    }
    if (FormatOf(type).is_plain()) {
      plain_.push_back(std::make_unique<OwnedWeight>(
          type, rows, cols, RandomBf16(seed, rows * cols, 0.3f)));
      return {plain_.back()->view(), {}};
    }
    const BlockFormat format = BlockFormatOf(type);
    blocks_.push_back(std::make_unique<OwnedBlocks>(
        format, RandomBlockRows(format, seed, rows, cols), rows, cols));
    return {{}, blocks_.back()->view()};
  }

  Sizes sizes_;
  std::vector<std::unique_ptr<CodedWeight>> coded_;
  std::vector<std::unique_ptr<OwnedWeight>> plain_;
  std::vector<std::unique_ptr<OwnedBlocks>> blocks_;
  std::vector<ExpertWeight> gate_up_;
  std::vector<ExpertWeight> down_;
  std::vector<float> gate_up_bias_;
  std::vector<float> down_bias_;
  std::vector<float> weights_;
  std::vector<int32_t> ids_;
};

TEST(CudaExpertsTest, OneRowAndAPromptHaveTheCpusBits) {
  for (const WeightType type : {WeightType::kF32, WeightType::kBf16,
                                WeightType::kE4m3, WeightType::kMxfp4}) {
    for (const int64_t tokens : {1, 23}) {
      const Layer layer({12, 3, tokens, 64, 32}, {type}, true);
      layer.Expect(0, 12, 0.0f);
      layer.Expect(0, 12, 0.7f);
    }
  }
  const Layer wide({12, 3, 9, 128, 256}, {WeightType::kE4m3Wide}, true);
  wide.Expect(0, 12, 0.7f);
}

TEST(CudaExpertsTest, ProcessesFinishTheNodesOfTheirExperts) {
  const Layer layer({21, 4, 9, 40, 24}, {WeightType::kBf16}, false);
  layer.Expect(0, 5, 0.0f);
  layer.Expect(5, 6, 0.0f);
  layer.Expect(6, 21, 0.0f);
}

TEST(CudaExpertsTest, ThereMayBeMoreNodesThanALaunchTakes) {
  const Layer layer({131, 5, 3, 8, 8}, {WeightType::kF32}, false);
  layer.Expect(1, 131, 0.0f, /*single=*/true);
}

// As many experts of a row as registers hold outputs of, and more.
TEST(CudaExpertsTest, RowsMayHaveAnyNumberOfExperts) {
  for (const int32_t per_row : {1, 4, 5, 8, 9}) {
    const Layer layer({13, per_row, 5, 40, 8}, {WeightType::kF32}, false);
    layer.Expect(0, 13, 0.0f);
    layer.Expect(3, 11, 0.0f);
  }
}

// Fewer and more pairs than a warp has lanes, more than a warp plans, and
// experts than counts of all warps.
TEST(CudaExpertsTest, ManyPairsArePlanned) {
  for (const int64_t tokens : {1, 10, 11, 85, 86, 700}) {
    const Layer layer({5, 3, tokens, 8, 8}, {WeightType::kF32}, false);
    layer.Expect(0, 5, 0.0f);
    layer.Expect(1, 3, 0.0f);
  }
  const Layer wide({300, 8, 130, 4, 4}, {WeightType::kF32}, false);
  wide.Expect(20, 300, 0.0f);
}

TEST(CudaExpertsTest, ManyRowsOfAnExpertAreManyGroups) {
  const Layer layer({2, 2, 9, 32, 32}, {WeightType::kQ4_0}, false);
  layer.Expect(0, 2, 0.0f);
}

// Enough rows for tiles of matrix units, in more than one group.
TEST(CudaExpertsTest, ManyRowsOfBlocksAreMultipliedInTiles) {
  for (const WeightType type : {WeightType::kQ4_0, WeightType::kMxfp4}) {
    const Layer layer({3, 2, 70, 32, 32}, {type}, true);
    layer.Expect(0, 3, 0.0f);
  }
}

TEST(CudaExpertsTest, ExpertsOfOneLayerMayHaveDifferentTypes) {
  const Layer layer({9, 4, 6, 256, 256},
                    {WeightType::kQ8_0, WeightType::kQ8_0, WeightType::kQ4K,
                     WeightType::kF32, WeightType::kQ6K},
                    true);
  layer.Expect(0, 9, 0.0f);
}

TEST(CudaExpertsTest, TheTwoProductsMayHaveDifferentTypes) {
  const Layer layer({7, 3, 6, 64, 32}, {WeightType::kBf16}, true,
                    {WeightType::kQ8_0, WeightType::kQ8_0, WeightType::kF32});
  layer.Expect(0, 7, 0.0f);
}

TEST(CudaExpertsTest, ARowThatIsNotFiniteFailsAlone) {
  // Either product may be the one that reads codes of eight bits.
  constexpr auto kF32 = WeightType::kF32;
  constexpr auto kQ8 = WeightType::kQ8_0;
  for (const auto& [type, down] :
       {std::pair(kQ8, kQ8), {kF32, kF32}, {kQ8, kF32}, {kF32, kQ8}}) {
    Layer layer({6, 2, 5, 32, 32}, {type}, true, {down});
    layer.x[2 * 32 + 7] = INFINITY;
    layer.x[4 * 32] = NAN;
    layer.Expect(0, 6, 0.0f);
    // Finite rows whose middle is not.
    for (int i = 0; i < 32; ++i) layer.x[i] = 3e38f;
    layer.Expect(0, 6, 0.0f);
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
