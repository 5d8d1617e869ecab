#include "kernels/cuda/experts.h"

#include <cuda_device/launch.h>

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/canonical/block_products_rows.h"
#include "kernels/cuda/canonical/products.h"
#include "kernels/cuda/fast/products.h"
#include "kernels/cuda/fast/weight_layout.h"
#include "kernels/cuda/shared/expert_plan.h"
#include "kernels/cuda/shared/expert_sums.h"
#include "kernels/cuda/shared/math.h"
#include "kernels/cuda/shared/product_tile.h"
#include "kernels/cuda/shared/row_ops.h"
#include "kernels/cuda/shared/row_quads.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kExpertThreads = 128;

// Where a call's memory has what.
struct ExpertLayout {
  ExpertPlan plan;
  bool* finite = nullptr;      // [tokens, kFinitePieces]
  bool* mid_finite = nullptr;  // [pairs, kFinitePieces]
  int8_t* codes = nullptr;     // [max(tokens H, pairs F)]
  float* scales = nullptr;     // a 32nd of it
  int16_t* sums = nullptr;     // a 16th of it
  float* gate_up = nullptr;    // [pairs, 2F]
  float* middle = nullptr;     // [pairs, F]
  float* outputs = nullptr;    // [pairs, H]
};

int64_t MostGroups(const ExpertShape& shape, int32_t tile_rows) {
  return std::min(shape.pairs(), shape.pairs() / tile_rows + shape.experts);
}

// Sets the layout; returns its bytes.
int64_t LayOut(const ExpertShape& shape, void* data, ExpertLayout& layout) {
  int64_t at = 0;
  const auto take = [&](auto*& array, int64_t count) {
    using T = std::remove_reference_t<decltype(*array)>;
    // Null counts bytes alone.
    if (data != nullptr) {
      array = reinterpret_cast<T*>(static_cast<char*>(data) + at);
    }
    at += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
  };
  const int64_t pairs = shape.pairs();
  const int64_t most = std::max(shape.tokens * shape.hidden, pairs * shape.mlp);
  take(layout.plan.groups, pairs);  // groups of one slot, at most
  take(layout.plan.num_groups, 1);
  take(layout.plan.slots, pairs);
  take(layout.plan.rows, pairs);
  take(layout.finite, shape.tokens * kFinitePieces);
  take(layout.mid_finite, pairs * kFinitePieces);
  take(layout.codes, most);
  take(layout.scales, most / 32);
  take(layout.sums, most / 16);
  take(layout.gate_up, pairs * 2 * shape.mlp);
  take(layout.middle, pairs * shape.mlp);
  take(layout.outputs, pairs * shape.hidden);
  return at;
}

// NaN to the outputs of a group's slots that read a row which is not finite. A
// block per group.
struct FailSlotsKernel {
  static constexpr int kThreads = kExpertThreads;
  struct Args {
    GroupedRows grouped;
    FlaggedRows x;
    float* outputs;
    int64_t hidden;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    ProductTile tile;
    if (!FindTile(a.grouped, block.index(), 0, nullptr, nullptr, 0, tile)) {
      return;
    }
    for (int t = 0; t < tile.tokens; ++t) {
      const int64_t slot = tile.out + t;
      if (IsFinite(block, a.x, tile.In(t))) continue;
      for (int64_t i = block.thread(); i < a.hidden; i += kThreads) {
        a.outputs[slot * a.hidden + i] = NotANumber();
      }
    }
  }
};

int32_t BlockOf(const ExpertWeight& w) {
  return w.is_plain() ? 0 : ActivationBlock(w.blocks.format);
}
bool IsAlike(const ExpertWeight& a, const ExpertWeight& b) {
  if (a.is_plain() != b.is_plain()) return false;
  return a.is_plain() ? a.plain.type == b.plain.type
                      : a.blocks.format == b.blocks.format;
}

// A weight as tiles have it.
WeightView TileView(const ExpertWeight& w) {
  if (w.is_plain()) return w.plain;
  return {w.blocks.packed,
          static_cast<WeightType>(kNumPlainTypes +
                                  static_cast<int>(w.blocks.format)),
          w.blocks.rows, w.blocks.cols};
}
bool IsTiled(const ExpertWeight& w) { return HasTiles(TileView(w).type); }
// The rows of a group at most: those of the product that takes the fewest. A
// token has an expert once: no group has more rows than there are tokens.
int32_t TileRowsOf(Stream stream, const ExpertsView& experts,
                   const ExpertTable& table, const ExpertShape& shape) {
  const auto all = [&](const auto& is) {
    return std::all_of(experts.gate_up.begin(), experts.gate_up.end(), is) &&
           std::all_of(experts.down.begin(), experts.down.end(), is);
  };
  if (!table.tiles || !all(IsTiled)) {
    // Half of a tile of matrix units is at work, on average.
    constexpr int64_t kLeast = kBlockTileTokens / 2;
    const bool many = shape.pairs() >= kLeast * shape.experts;
    const auto takes = [&](const ExpertWeight& w) {
      return !w.is_plain() && !(table.tiles && IsTiled(w)) &&
             BlockTilesFit(stream, w.blocks.format);
    };
    if (many && all(takes)) return kBlockTileTokens;
    return static_cast<int32_t>(std::min<int64_t>(kTileTokens, shape.tokens));
  }
  const int32_t rows =
      TileGroupRows(stream, shape.pairs(), shape.experts, table.tile_memory);
  return rows <= kFewTokens
             ? static_cast<int32_t>(std::min<int64_t>(rows, shape.tokens))
             : rows;
}

// One call.
class ExpertCall {
 public:
  ExpertCall(Stream stream, const ExpertsView& experts,
             const ExpertTable& table, const ExpertRows& rows,
             const ExpertShape& shape, const ExpertLayout& layout)
      : stream_(stream),
        experts_(experts),
        table_(table),
        rows_(rows),
        shape_(shape),
        at_(layout),
        plan_(table.plan.groups != nullptr ? table.plan : layout.plan),
        tile_rows_(TileRowsOf(stream, experts, table, shape)) {}

  void Run() {
    if (table_.plan.groups == nullptr) {
      PlanExperts(stream_, {rows_.ids, shape_.pairs(), rows_.per_row,
                            experts_.first, shape_.experts, tile_rows_, plan_});
    }
    for (int32_t begin = 0; begin < shape_.experts;) {
      int32_t end = begin + 1;
      while (end < shape_.experts &&
             IsAlike(experts_.gate_up[begin], experts_.gate_up[end]) &&
             IsAlike(experts_.down[begin], experts_.down[end])) {
        ++end;
      }
      RunAlike(begin, end);
      begin = end;
    }
  }

  void Finish(std::span<const TreeNode> nodes, std::span<const Matrix> parts) {
    for (size_t i = 0; i < nodes.size(); i += kMostFinished) {
      const size_t count = std::min<size_t>(kMostFinished, nodes.size() - i);
      FinishExperts(stream_, shape_.tokens,
                    ArgsOf(nodes.subspan(i, count), parts.subspan(i, count)));
    }
  }
  void Add(const ExpertSum& sum) {
    FinishArgs args = ArgsOf({&sum.node, 1}, {&sum.x, 1});
    args.adds = 1;
    args.more = sum.more.data;
    args.more_stride = sum.more.stride;
    if (args.more != nullptr && !HasQuads(sum.more)) args.quads = 0;
    FinishExperts(stream_, shape_.tokens, args);
  }

 private:
  FinishArgs ArgsOf(std::span<const TreeNode> nodes,
                    std::span<const Matrix> parts) const {
    FinishArgs args = {};
    args.ids = rows_.ids;
    args.weights = rows_.weights;
    // The plan of one row has its pairs in order.
    args.slots = table_.plan.groups != nullptr ? nullptr : plan_.slots;
    args.per_row = rows_.per_row;
    args.outputs = at_.outputs;
    args.hidden = shape_.hidden;
    bool quads =
        HasQuads({at_.outputs, shape_.pairs(), shape_.hidden, shape_.hidden});
    args.num_nodes = static_cast<int32_t>(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
      args.nodes[i] = nodes[i];
      args.y[i] = parts[i].data;
      args.stride[i] = parts[i].stride;
      quads = quads && HasQuads(parts[i]);
    }
    args.quads = quads ? 1 : 0;
    return args;
  }

  // Experts [begin, end), whose weights have one type.
  void RunAlike(int32_t begin, int32_t end) {
    const ExpertWeight& gate_up = experts_.gate_up[begin];
    const ExpertWeight& down = experts_.down[begin];
    const int64_t pairs = shape_.pairs();
    const int64_t mlp = shape_.mlp;
    ExpertRun run = {{plan_.groups, plan_.num_groups, plan_.rows,
                      table_.gate_up, begin, end, tile_rows_},
                     MostGroups(shape_, tile_rows_)};
    const Matrix middle = {at_.middle, pairs, mlp, mlp};
    MultiplyGated(gate_up, run, middle);
    run.grouped.rows = nullptr;
    run.grouped.weights = table_.down;
    FlaggedRows flags;
    flags.finite = at_.mid_finite;
    if (IsQuantized(gate_up)) {
      flags.source_finite = at_.finite;
      flags.sources = plan_.rows;
    }
    Multiply(middle, down, experts_.down_bias, run, flags,
             {at_.outputs, pairs, shape_.hidden, shape_.hidden});
    if (!IsQuantized(gate_up) || IsQuantized(down)) return;
    flags.finite = nullptr;
    Launch<FailSlotsKernel>(stream_, run.max_groups, 0,
                            {run.grouped, flags, at_.outputs, shape_.hidden});
  }

  // middle = the activation of the rows' products.
  void MultiplyGated(const ExpertWeight& like, const ExpertRun& run,
                     Matrix middle) {
    if (table_.tiles && IsTiled(like)) {
      if (TileGatedGroups(stream_, rows_.x, TileView(like),
                          experts_.gate_up_bias, experts_.activation, run,
                          middle)) {
        return;
      }
    }
    const Matrix both = {at_.gate_up, middle.rows, 2 * middle.cols,
                         2 * middle.cols};
    FlaggedRows flags;
    flags.finite = at_.finite;
    Multiply(rows_.x, like, experts_.gate_up_bias, run, flags, both);
    if (experts_.activation.kind == Activation::Kind::kClampedSwiGlu) {
      return ClampedSwiGlu(stream_, both, experts_.activation.limit, middle);
    }
    SiluMul(stream_, both, middle);
  }

  // Whether the product's activations have eight bits.
  bool IsQuantized(const ExpertWeight& w) const {
    return !w.is_plain() && !(table_.tiles && IsTiled(w));
  }

  void Multiply(ConstMatrix x, const ExpertWeight& like, const float* bias,
                const ExpertRun& run, FlaggedRows flags, Matrix y) {
    if (table_.tiles && IsTiled(like)) {
      return TileMatMulGroups(stream_, x, TileView(like), bias, run, y,
                              table_.tile_memory);
    }
    if (like.is_plain()) {
      return MatMulGroups(stream_, x, like.plain, bias, run, y);
    }
    flags.rows = {at_.codes, at_.scales, at_.sums,
                  x.rows,    x.cols,     BlockOf(like)};
    QuantizeRows(stream_, x, flags);
    BlockMatMulGroups(stream_, flags, like.blocks, bias, run, y);
  }

  const Stream stream_;
  const ExpertsView& experts_;
  const ExpertTable& table_;
  const ExpertRows& rows_;
  const ExpertShape& shape_;
  const ExpertLayout& at_;
  const ExpertPlan plan_;
  const int32_t tile_rows_;  // of a group
};

ExpertShape ShapeOf(const ExpertsView& experts, const ExpertRows& rows) {
  const auto count = static_cast<int32_t>(experts.gate_up.size());
  SLUICE_CHECK(experts.down.size() == experts.gate_up.size() && count > 0);
  const ExpertShape shape = {rows.x.rows, rows.per_row, count, rows.x.cols,
                             experts.down[0].cols()};
  for (int32_t e = 0; e < count; ++e) {
    SLUICE_CHECK(experts.gate_up[e].cols() == shape.hidden &&
                 experts.gate_up[e].rows() == 2 * shape.mlp);
    SLUICE_CHECK(experts.down[e].rows() == shape.hidden &&
                 experts.down[e].cols() == shape.mlp);
  }
  return shape;
}

void CheckNode(const ExpertsView& experts, const ExpertRows& rows,
               const TreeNode& node, const Matrix& part) {
  const auto count = static_cast<int32_t>(experts.gate_up.size());
  SLUICE_CHECK(node.begin >= experts.first &&
               node.end <= experts.first + count);
  SLUICE_CHECK(part.rows == rows.x.rows && part.cols == rows.x.cols);
}

}  // namespace

int64_t ExpertBytes(const ExpertShape& shape) {
  ExpertLayout layout;
  return LayOut(shape, nullptr, layout);
}

void ExpertNodes(Stream stream, const ExpertsView& experts,
                 const ExpertTable& table, const ExpertRows& rows,
                 std::span<const TreeNode> nodes,
                 std::span<const Matrix> parts) {
  SLUICE_CHECK(nodes.size() == parts.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    CheckNode(experts, rows, nodes[i], parts[i]);
  }
  const ExpertShape shape = ShapeOf(experts, rows);
  ExpertLayout layout;
  SLUICE_CHECK(LayOut(shape, table.memory, layout) <= table.bytes);
  ExpertCall call(stream, experts, table, rows, shape, layout);
  call.Run();
  call.Finish(nodes, parts);
}

void AddExperts(Stream stream, const ExpertsView& experts,
                const ExpertTable& table, const ExpertRows& rows,
                const ExpertSum& sum) {
  CheckNode(experts, rows, sum.node, sum.x);
  SLUICE_CHECK(sum.more.data == nullptr ||
               (sum.more.rows == sum.x.rows && sum.more.cols == sum.x.cols));
  const ExpertShape shape = ShapeOf(experts, rows);
  ExpertLayout layout;
  SLUICE_CHECK(LayOut(shape, table.memory, layout) <= table.bytes);
  ExpertCall call(stream, experts, table, rows, shape, layout);
  call.Run();
  call.Add(sum);
}

}  // namespace sluice::kernels::cuda
