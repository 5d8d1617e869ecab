#include "kernels/cuda/experts.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/products_tiles.h"
#include "kernels/cuda/row_ops.h"
#include "kernels/cuda/tile_products.h"
#include "kernels/cuda/tree_sum.h"
#include "kernels/cuda/weight_tiles.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kExpertThreads = 128;
constexpr int kMostNodes = 64;  // of one launch

// Where a call's memory has what.
struct ExpertLayout {
  ExpertGroup* groups = nullptr;
  int32_t* num_groups = nullptr;
  int32_t* slots = nullptr;    // [pairs]; negative: remote
  int32_t* rows = nullptr;     // [pairs]: a slot's row
  bool* finite = nullptr;      // [tokens]
  bool* mid_finite = nullptr;  // [pairs]
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
  take(layout.groups, MostGroups(shape, kTileTokens));
  take(layout.num_groups, 1);
  take(layout.slots, pairs);
  take(layout.rows, pairs);
  take(layout.finite, shape.tokens);
  take(layout.mid_finite, pairs);
  take(layout.codes, most);
  take(layout.scales, most / 32);
  take(layout.sums, most / 16);
  take(layout.gate_up, pairs * 2 * shape.mlp);
  take(layout.middle, pairs * shape.mlp);
  take(layout.outputs, pairs * shape.hidden);
  return at;
}

// Slots and groups, by one block: a warp per expert walks all pairs.
struct PlanKernel {
  static constexpr int kThreads = 1024;
  static constexpr int kWarps = kThreads / kWarpLanes;
  struct Args {
    const int32_t* ids;
    int64_t pairs;
    int32_t per_row;
    int32_t first;
    int32_t experts;
    int32_t tile_rows;
    ExpertGroup* groups;
    int32_t* num_groups;
    int32_t* slots;
    int32_t* rows;
  };
  static size_t SharedBytes(int32_t experts) {
    return 2 *
           ((static_cast<size_t>(experts) * sizeof(int32_t) + 15) / 16 * 16);
  }
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    // Counts first, then where the slots and the groups of an expert begin.
    const auto slots = block.Allocate<int32_t>(a.experts);
    const auto groups = block.Allocate<int32_t>(a.experts);
    for (int32_t e = block.warp(); e < a.experts; e += kWarps) {
      const int32_t count = Walk(block, a, e, -1);
      if (block.lane() == 0) slots.Set(e, count);
    }
    for (int64_t i = block.thread(); i < a.pairs; i += kThreads) {
      const int32_t e = a.ids[i] - a.first;
      if (e < 0 || e >= a.experts) a.slots[i] = -1;
    }
    block.Sync();
    if (block.thread() == 0) {
      int32_t slot = 0;
      int32_t group = 0;
      for (int32_t e = 0; e < a.experts; ++e) {
        const int32_t count = slots.Get(e);
        slots.Set(e, slot);
        groups.Set(e, group);
        slot += count;
        group += (count + a.tile_rows - 1) / a.tile_rows;
      }
      *a.num_groups = group;
    }
    block.Sync();
    for (int32_t e = block.warp(); e < a.experts; e += kWarps) {
      const int32_t first = slots.Get(e);
      const int32_t end = first + Walk(block, a, e, first);
      for (int32_t s = first + block.lane() * a.tile_rows; s < end;
           s += kWarpLanes * a.tile_rows) {
        a.groups[groups.Get(e) + (s - first) / a.tile_rows] = {
            e, s, end - s < a.tile_rows ? end - s : a.tile_rows};
      }
    }
  }
  // Returns how many pairs expert `e` has, and gives them slots from `slot`
  // on, unless it is negative. A warp calls.
  static SLUICE_DEVICE int32_t Walk(Block& block, const Args& a, int32_t e,
                                    int32_t slot) {
    int32_t count = 0;
    for (int64_t from = 0; from < a.pairs; from += kWarpLanes) {
      const int64_t i = from + block.lane();
      const bool own = i < a.pairs && a.ids[i] == a.first + e;
      const uint32_t votes = block.Ballot(own);
      if (own && slot >= 0) {
        const int32_t before =
            count + CountBits(votes & ((1u << block.lane()) - 1u));
        a.slots[i] = slot + before;
        a.rows[slot + before] = static_cast<int32_t>(i / a.per_row);
      }
      count += CountBits(votes);
    }
    return count;
  }
};

// NaN to the outputs of a group's slots that read a row which is not finite. A
// block per group.
struct FailSlotsKernel {
  static constexpr int kThreads = kExpertThreads;
  struct Args {
    GroupedRows grouped;
    const bool* finite;      // of rows, or null
    const bool* mid_finite;  // of slots, or null
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
      if ((a.finite == nullptr || a.finite[tile.In(t)]) &&
          (a.mid_finite == nullptr || a.mid_finite[slot])) {
        continue;
      }
      for (int64_t i = block.thread(); i < a.hidden; i += kThreads) {
        a.outputs[slot * a.hidden + i] = NotANumber();
      }
    }
  }
};

// A thread per element of a row.
struct FinishKernel {
  static constexpr int kThreads = kExpertThreads;
  struct Args {
    const int32_t* ids;
    const float* weights;
    const int32_t* slots;
    int32_t per_row;
    const float* outputs;
    int64_t hidden;
    int32_t num_nodes;
    TreeNode nodes[kMostNodes];
    float* y[kMostNodes];
    int64_t stride[kMostNodes];
  };
  static int64_t BlocksPerRow(int64_t hidden) {
    return (hidden + kThreads - 1) / kThreads;
  }
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t per_row = (a.hidden + kThreads - 1) / kThreads;
    const int64_t row = block.index() / per_row;
    const int64_t column = block.index() % per_row * kThreads + block.thread();
    if (column >= a.hidden) return;
    for (int32_t n = 0; n < a.num_nodes; ++n) {
      TreeSum sum;
      for (int64_t i = row * a.per_row; i < (row + 1) * a.per_row; ++i) {
        const int32_t id = a.ids[i];
        if (id < a.nodes[n].begin || id >= a.nodes[n].end) continue;
        const float output = a.outputs[a.slots[i] * a.hidden + column];
        sum.Add(id, output * a.weights[i]);
      }
      a.y[n][row * a.stride[n] + column] = sum.empty() ? -0.0f : sum.Root();
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
// The rows of a group at most: those of the product that takes the fewest.
int32_t TileRowsOf(Stream stream, const ExpertsView& experts,
                   const ExpertTable& table, const ExpertShape& shape) {
  if (!table.tiles ||
      !std::all_of(experts.gate_up.begin(), experts.gate_up.end(), IsTiled) ||
      !std::all_of(experts.down.begin(), experts.down.end(), IsTiled)) {
    return kTileTokens;
  }
  const int32_t rows =
      TileGroupRows(stream, shape.pairs(), shape.experts, table.tile_memory);
  // A token has an expert once: no group has more rows than there are tokens.
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
        tile_rows_(TileRowsOf(stream, experts, table, shape)) {}

  void Run() {
    Launch<PlanKernel>(stream_, 1, PlanKernel::SharedBytes(shape_.experts),
                       {rows_.ids, shape_.pairs(), rows_.per_row,
                        experts_.first, shape_.experts, tile_rows_, at_.groups,
                        at_.num_groups, at_.slots, at_.rows});
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
    for (size_t i = 0; i < nodes.size(); i += kMostNodes) {
      const size_t count = std::min<size_t>(kMostNodes, nodes.size() - i);
      FinishSome(nodes.subspan(i, count), parts.subspan(i, count));
    }
  }

 private:
  void FinishSome(std::span<const TreeNode> nodes,
                  std::span<const Matrix> parts) {
    FinishKernel::Args args = {};
    args.ids = rows_.ids;
    args.weights = rows_.weights;
    args.slots = at_.slots;
    args.per_row = rows_.per_row;
    args.outputs = at_.outputs;
    args.hidden = shape_.hidden;
    args.num_nodes = static_cast<int32_t>(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
      args.nodes[i] = nodes[i];
      args.y[i] = parts[i].data;
      args.stride[i] = parts[i].stride;
    }
    Launch<FinishKernel>(
        stream_, shape_.tokens * FinishKernel::BlocksPerRow(shape_.hidden), 0,
        args);
  }

  // Experts [begin, end), whose weights have one type.
  void RunAlike(int32_t begin, int32_t end) {
    const ExpertWeight& gate_up = experts_.gate_up[begin];
    const ExpertWeight& down = experts_.down[begin];
    const int64_t pairs = shape_.pairs();
    const int64_t mlp = shape_.mlp;
    ExpertRun run = {{at_.groups, at_.num_groups, at_.rows, table_.gate_up,
                      begin, end, tile_rows_},
                     MostGroups(shape_, tile_rows_)};
    const Matrix middle = {at_.middle, pairs, mlp, mlp};
    MultiplyGated(gate_up, run, middle);
    run.grouped.rows = nullptr;
    run.grouped.weights = table_.down;
    Multiply(middle, down, experts_.down_bias, run, at_.mid_finite,
             {at_.outputs, pairs, shape_.hidden, shape_.hidden});
    const bool* finite = IsQuantized(gate_up) ? at_.finite : nullptr;
    const bool* mid_finite = IsQuantized(down) ? at_.mid_finite : nullptr;
    if (finite == nullptr && mid_finite == nullptr) return;
    run.grouped.rows = at_.rows;
    Launch<FailSlotsKernel>(
        stream_, run.max_groups, 0,
        {run.grouped, finite, mid_finite, at_.outputs, shape_.hidden});
  }

  // middle = the activation of the rows' products.
  void MultiplyGated(const ExpertWeight& like, const ExpertRun& run,
                     Matrix middle) {
    const bool clamps = experts_.swiglu_limit > 0.0f;
    if (table_.tiles && IsTiled(like)) {
      const Activation activation = {
          clamps ? Activation::Kind::kClampedSwiGlu : Activation::Kind::kSilu,
          experts_.swiglu_limit};
      if (TileGatedGroups(stream_, rows_.x, TileView(like),
                          experts_.gate_up_bias, activation, run, middle)) {
        return;
      }
    }
    const Matrix both = {at_.gate_up, middle.rows, 2 * middle.cols,
                         2 * middle.cols};
    Multiply(rows_.x, like, experts_.gate_up_bias, run, at_.finite, both);
    if (clamps) {
      return ClampedSwiGlu(stream_, both, experts_.swiglu_limit, middle);
    }
    SiluMul(stream_, both, middle);
  }

  // Whether the product's activations have eight bits.
  bool IsQuantized(const ExpertWeight& w) const {
    return !w.is_plain() && !(table_.tiles && IsTiled(w));
  }

  // Size: a product, its rows and what it says of them.
  void Multiply(ConstMatrix x, const ExpertWeight& like, const float* bias,
                const ExpertRun& run, bool* finite, Matrix y) {
    if (table_.tiles && IsTiled(like)) {
      return TileMatMulGroups(stream_, x, TileView(like), bias, run, y,
                              table_.tile_memory);
    }
    if (like.is_plain()) {
      return MatMulGroups(stream_, x, like.plain, bias, run, y);
    }
    const QuantizedRows quantized = {at_.codes, at_.scales, at_.sums,
                                     x.rows,    x.cols,     BlockOf(like)};
    QuantizeRows(stream_, x, quantized, finite);
    BlockMatMulGroups(stream_, quantized, like.blocks, bias, run, y);
  }

  const Stream stream_;
  const ExpertsView& experts_;
  const ExpertTable& table_;
  const ExpertRows& rows_;
  const ExpertShape& shape_;
  const ExpertLayout& at_;
  const int32_t tile_rows_;  // of a group
};

}  // namespace

int64_t ExpertBytes(const ExpertShape& shape) {
  ExpertLayout layout;
  return LayOut(shape, nullptr, layout);
}

void ExpertNodes(Stream stream, const ExpertsView& experts,
                 const ExpertTable& table, const ExpertRows& rows,
                 std::span<const TreeNode> nodes,
                 std::span<const Matrix> parts) {
  const auto count = static_cast<int32_t>(experts.gate_up.size());
  SLUICE_CHECK(experts.down.size() == experts.gate_up.size() && count > 0);
  SLUICE_CHECK(nodes.size() == parts.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    SLUICE_CHECK(nodes[i].begin >= experts.first &&
                 nodes[i].end <= experts.first + count);
    SLUICE_CHECK(parts[i].rows == rows.x.rows && parts[i].cols == rows.x.cols);
  }
  const ExpertShape shape = {rows.x.rows, rows.per_row, count, rows.x.cols,
                             experts.down[0].cols()};
  for (int32_t e = 0; e < count; ++e) {
    SLUICE_CHECK(experts.gate_up[e].cols() == shape.hidden &&
                 experts.gate_up[e].rows() == 2 * shape.mlp);
    SLUICE_CHECK(experts.down[e].rows() == shape.hidden &&
                 experts.down[e].cols() == shape.mlp);
  }
  ExpertLayout layout;
  SLUICE_CHECK(LayOut(shape, table.memory, layout) <= table.bytes);
  ExpertCall call(stream, experts, table, rows, shape, layout);
  call.Run();
  call.Finish(nodes, parts);
}

}  // namespace sluice::kernels::cuda
