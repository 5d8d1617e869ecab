#include "kernels/experts.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <variant>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/expert_slots.h"
#include "kernels/matmul.h"
#include "kernels/quantized_buffer.h"
#include "kernels/wide_matmul.h"

namespace sluice::kernels {
namespace {

// Threads get whole pairs of groups: what a tile of a batch takes.
constexpr int64_t kUnitRows = 2 * kGroupRows;
// What reading a weight costs beside its product with one row.
constexpr int64_t kReadCost = 8;
// Gate and up values, 4 MiB, of the experts that run at once.
constexpr int64_t kValuesAtOnce = 1 << 20;

// Rows as a product reads them.
using Operand = std::variant<ConstMatrix, QuantizedRows>;

// Storage of an Operand: grows to what it needed once and stays.
struct OperandBuffer {
  std::vector<float> floats;
  std::vector<int8_t> codes;
  std::vector<int16_t> sums;

  template <typename T>
  static T* Of(std::vector<T>& values, int64_t size) {
    if (static_cast<int64_t>(values.size()) < size) {
      values.resize(static_cast<size_t>(size));
    }
    return values.data();
  }
  Matrix Plain(int64_t rows, int64_t cols) {
    return {Of(floats, rows * cols), rows, cols, cols};
  }
  QuantizedRows Blocks(int64_t rows, int64_t cols, int32_t block) {
    return {.codes = Of(codes, rows * cols),
            .scales = Of(floats, rows * (cols / block)),
            .sums = Of(sums, rows * (cols / 16)),
            .rows = rows,
            .cols = cols,
            .block = block};
  }
};

struct ExpertScratch {
  cpu::ExpertSlots slots;
  QuantizedBuffer quantized;  // x, [T, H]
  OperandBuffer gathered;     // rows of experts that run at once
  OperandBuffer gate_up;      // [slots at once, 2F]
  OperandBuffer middle;       // [slots at once, F]
  OperandBuffer outputs;      // [slots, H]
  std::vector<char> finite;   // [slots at once]
};

ExpertScratch& ThisThreadsExpertScratch() {
  thread_local ExpertScratch scratch;
  return scratch;
}

Matrix Columns(Matrix y, cpu::Range range) {
  return {y.data + range.begin, y.rows, range.end - range.begin, y.stride};
}
Matrix SliceRows(Matrix y, int64_t first, int64_t count) {
  return {y.row(first), count, y.cols, y.stride};
}

// Rows [first, first + count).
QuantizedRows Slice(const QuantizedRows& x, int64_t first, int64_t count) {
  QuantizedRows slice = x;
  slice.codes += first * x.cols;
  slice.scales += first * (x.cols / x.block);
  slice.sums += first * (x.cols / 16);
  slice.rows = count;
  return slice;
}
ConstMatrix Slice(const ConstMatrix& x, int64_t first, int64_t count) {
  return {x.row(first), count, x.cols, x.stride};
}

// Copies row `from` of x to row `to` of y, which has x's shape of a row.
void CopyRow(const Operand& x, int64_t from, const Operand& y, int64_t to) {
  const auto copy = [](const auto* source, auto* target, int64_t n) {
    std::memcpy(target, source, static_cast<size_t>(n) * sizeof(*target));
  };
  if (const auto* plain = std::get_if<ConstMatrix>(&x)) {
    const ConstMatrix& target = std::get<ConstMatrix>(y);
    copy(plain->row(from), const_cast<float*>(target.row(to)), plain->cols);
    return;
  }
  const QuantizedRows source = Slice(std::get<QuantizedRows>(x), from, 1);
  const QuantizedRows target = Slice(std::get<QuantizedRows>(y), to, 1);
  copy(source.codes, target.codes, source.cols);
  copy(source.scales, target.scales, source.cols / source.block);
  copy(source.sums, target.sums, source.cols / 16);
}

BlockWeight WeightRows(const BlockWeight& w, cpu::Range range) {
  BlockWeight part = w;
  part.packed += PackedBytes(w.format, range.begin, w.cols);
  part.rows = range.end - range.begin;
  return part;
}
WeightView WeightRows(const WeightView& w, cpu::Range range) {
  WeightView part = w;
  part.data = static_cast<const uint8_t*>(w.data) +
              PlainBytes(w.type, range.begin * w.cols);
  part.rows = range.end - range.begin;
  return part;
}

// One ExpertNodes call up to the experts' outputs.
class ExpertLayer {
 public:
  ExpertLayer(const Context& context, const DotContext& dot,
              const ExpertsView& experts, const ExpertRows& rows,
              ExpertScratch& s)
      : context_(context),
        dot_(dot),
        experts_(experts),
        rows_(rows),
        s_(s),
        outputs_(s.outputs.Plain(s.slots.total(), rows.x.cols)) {}

  Matrix Run() {
    const auto count = static_cast<int32_t>(experts_.gate_up.size());
    for (int32_t begin = 0; begin < count;) {
      const int64_t at_once =
          std::max<int64_t>(1, kValuesAtOnce / experts_.gate_up[begin].rows());
      int32_t end = begin + 1;
      while (end < count && IsAlike(begin, end) &&
             s_.slots.begins[end + 1] - s_.slots.begins[begin] <= at_once) {
        ++end;
      }
      RunExperts(begin, end);
      begin = end;
    }
    return outputs_;
  }

 private:
  // The block of activations that products with w read; 0: F32 ones.
  int32_t BlockOf(const ExpertWeight& w) const {
    const bool is_f32 =
        w.is_plain() || dot_.activations == BlockActivations::kF32;
    return is_f32 ? 0 : ActivationBlock(w.blocks.format);
  }

  // Whether the weights of experts a and b read the same rows.
  bool IsAlike(int32_t a, int32_t b) const {
    const auto alike = [&](std::span<const ExpertWeight> weights) {
      return BlockOf(weights[a]) == BlockOf(weights[b]) &&
             weights[a].rows() == weights[b].rows();
    };
    return alike(experts_.gate_up) && alike(experts_.down);
  }

  // Makes x_ what products with blocks of `block` read, 0: F32.
  void PrepareRows(int32_t block) {
    if (block == block_) return;
    block_ = block;
    if (block == 0) {
      x_ = rows_.x;
    } else {
      x_ = s_.quantized.Quantize(dot_, rows_.x, block);
    }
  }

  // All slots of experts [begin, end), which are alike.
  void RunExperts(int32_t begin, int32_t end) {
    const int32_t first = s_.slots.begins[begin];
    const int64_t count = s_.slots.begins[end] - first;
    if (count == 0) return;
    PrepareRows(BlockOf(experts_.gate_up[begin]));
    const Matrix both = s_.gate_up.Plain(count, experts_.gate_up[begin].rows());
    const Operand gathered = Gather(begin, end);
    Multiply(
        {begin, end, experts_.gate_up, experts_.gate_up_bias},
        [&](int32_t e) {
          const int64_t row = s_.slots.rows[s_.slots.begins[e]];
          return IsRunOfRows(e) ? Rows(x_, row, e)
                                : Rows(gathered, s_.slots.begins[e] - first, e);
        },
        both);
    s_.finite.assign(static_cast<size_t>(count), 1);
    const Operand middle = Activate(both, experts_.down[begin]);
    Multiply(
        {begin, end, experts_.down, experts_.down_bias},
        [&](int32_t e) { return Rows(middle, s_.slots.begins[e] - first, e); },
        SliceRows(outputs_, first, count));
    FailRows(first, count);
  }

  // NaN to the outputs of slots [first, first + count) that read a row which
  // is not finite.
  void FailRows(int32_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const bool finite =
          block_ == 0 || s_.quantized.finite(s_.slots.rows[first + i]);
      if (finite && s_.finite[i] != 0) continue;
      std::fill_n(outputs_.row(first + i), outputs_.cols,
                  std::numeric_limits<float>::quiet_NaN());
    }
  }

  // Whether the expert's rows follow each other in x.
  bool IsRunOfRows(int32_t e) const {
    const int64_t last = s_.slots.begins[e + 1] - 1;
    return s_.slots.rows[last] - s_.slots.rows[s_.slots.begins[e]] ==
           s_.slots.count(e) - 1;
  }

  // The rows of expert e from row `first` of x.
  Operand Rows(const Operand& x, int64_t first, int32_t e) const {
    const int64_t count = s_.slots.count(e);
    return std::visit(
        [&](const auto& rows) { return Operand(Slice(rows, first, count)); },
        x);
  }

  // The slots' rows of experts [begin, end) whose rows do not follow each
  // other already.
  Operand Gather(int32_t begin, int32_t end) {
    const int32_t first = s_.slots.begins[begin];
    const int64_t count = s_.slots.begins[end] - first;
    const int64_t cols = rows_.x.cols;
    Operand to;
    if (const auto* blocks = std::get_if<QuantizedRows>(&x_)) {
      to = s_.gathered.Blocks(count, cols, blocks->block);
    } else {
      to = ConstMatrix(s_.gathered.Plain(count, cols));
    }
    const int64_t* rows = s_.slots.rows.data();
    const int tasks = cpu::NumTasks(context_, count * cols / 16);
    ParallelFor(context_, tasks, [&](int task) {
      const cpu::Range mine = cpu::PartOf(end - begin, task, tasks, 1);
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        const auto e = static_cast<int32_t>(begin + i);
        if (s_.slots.count(e) == 0 || IsRunOfRows(e)) continue;
        for (int32_t slot = s_.slots.begins[e]; slot < s_.slots.begins[e + 1];
             ++slot) {
          CopyRow(x_, rows[slot], to, slot - first);
        }
      }
    });
    return to;
  }

  // One of the two products of experts [begin, end).
  struct Product {
    int32_t begin;
    int32_t end;
    std::span<const ExpertWeight> weights;
    const float* bias;
  };

  // y = the product of every expert's rows, operand(e), in order of slots.
  // Every thread gets a part of equal cost of all the experts' weight rows.
  template <typename OperandOf>
  void Multiply(const Product& product, const OperandOf& operand, Matrix y) {
    const ExpertWeight& like = product.weights[product.begin];
    const int64_t rows = like.rows();
    const int64_t units = (rows + kUnitRows - 1) / kUnitRows;
    int64_t total = 0;
    for (int32_t e = product.begin; e < product.end; ++e) {
      total += units * UnitCost(e);
    }
    const int64_t work = y.rows * rows * like.cols();
    const int tasks =
        cpu::NumTasks(context_, BlockOf(like) == 0 ? work : work / 4);
    ParallelFor(context_, tasks, [&](int task) {
      const int64_t low = total * task / tasks;
      const int64_t high = total * (task + 1) / tasks;
      int64_t at = 0;
      for (int32_t e = product.begin; e < product.end; ++e) {
        const int64_t cost = UnitCost(e);
        if (cost == 0) continue;
        // Units whose place is within [low, high).
        const auto unit = [&](int64_t place) {
          return std::clamp<int64_t>((place - at + cost - 1) / cost, 0, units);
        };
        const cpu::Range range = {
            std::min(unit(std::max(low, at)) * kUnitRows, rows),
            std::min(unit(std::max(high, at)) * kUnitRows, rows)};
        at += units * cost;
        if (range.begin >= range.end) continue;
        const int64_t first =
            s_.slots.begins[e] - s_.slots.begins[product.begin];
        const float* bias = product.bias == nullptr
                                ? nullptr
                                : product.bias + e * rows + range.begin;
        MultiplyRange(product.weights[e], operand(e), bias, range,
                      Columns(SliceRows(y, first, s_.slots.count(e)), range));
      }
    });
  }
  int64_t UnitCost(int32_t e) const {
    const int64_t count = s_.slots.count(e);
    return count == 0 ? 0 : count + kReadCost;
  }

  // y = x times rows `range` of w, on the calling thread.
  void MultiplyRange(const ExpertWeight& w, const Operand& x, const float* bias,
                     cpu::Range range, Matrix y) const {
    if (w.is_plain()) {
      MatMul({nullptr, context_.isa}, std::get<ConstMatrix>(x),
             WeightRows(w.plain, range), bias, y);
    } else if (dot_.activations == BlockActivations::kF32) {
      WideMatMul({nullptr, dot_.ops}, std::get<ConstMatrix>(x),
                 WeightRows(w.blocks, range), bias, y);
    } else {
      BlockMatMul({nullptr, dot_.ops}, std::get<QuantizedRows>(x),
                  WeightRows(w.blocks, range), bias, y);
    }
  }

  // The activation of every row of gate_up [slots, 2F], in place, as `down`
  // reads it.
  Operand Activate(Matrix gate_up, const ExpertWeight& down) {
    const int32_t block = BlockOf(down);
    const Activation& activation = experts_.activation;
    const int64_t cols = activation.gated ? gate_up.cols / 2 : gate_up.cols;
    QuantizedRows to;
    if (block != 0) {
      to = s_.middle.Blocks(gate_up.rows, cols, block);
    }
    char* const finite = s_.finite.data();
    const int tasks = cpu::NumTasks(context_, gate_up.rows * cols * 8);
    ParallelFor(context_, tasks, [&](int task) {
      const cpu::Range mine = cpu::PartOf(gate_up.rows, task, tasks, 1);
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        float* row = gate_up.row(i);
        kernels::Activate({nullptr, context_.isa}, activation,
                          ConstMatrix{row, 1, gate_up.cols, gate_up.cols},
                          Matrix{row, 1, cols, cols});
        if (block == 0) continue;
        const QuantizedRows one = Slice(to, i, 1);
        finite[i] = dot_.ops->quantize({.x = row,
                                        .cols = cols,
                                        .block = block,
                                        .codes = one.codes,
                                        .scales = one.scales,
                                        .sums = one.sums})
                        ? 1
                        : 0;
      }
    });
    if (block != 0) return to;
    return ConstMatrix{gate_up.data, gate_up.rows, cols, gate_up.stride};
  }

  const Context& context_;
  const DotContext& dot_;
  const ExpertsView& experts_;
  const ExpertRows& rows_;
  ExpertScratch& s_;
  const Matrix outputs_;  // [slots, H]
  Operand x_;
  int32_t block_ = -1;  // of x_
};

void CheckExpertWeights(const ExpertsView& experts, int64_t hidden) {
  for (size_t e = 0; e < experts.gate_up.size(); ++e) {
    const ExpertWeight& gate_up = experts.gate_up[e];
    const ExpertWeight& down = experts.down[e];
    SLUICE_CHECK(gate_up.cols() == hidden && down.rows() == hidden);
    SLUICE_CHECK(gate_up.rows() ==
                 (experts.activation.gated ? 2 : 1) * down.cols());
  }
}

}  // namespace

void ExpertNodes(const Context& context, const DotContext& dot,
                 const ExpertsView& experts, const ExpertRows& rows,
                 std::span<const TreeNode> nodes,
                 std::span<const Matrix> parts) {
  const auto count = static_cast<int32_t>(experts.gate_up.size());
  SLUICE_CHECK(experts.down.size() == experts.gate_up.size());
  SLUICE_CHECK(nodes.size() == parts.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    SLUICE_CHECK(nodes[i].begin >= experts.first &&
                 nodes[i].end <= experts.first + count);
    SLUICE_CHECK(parts[i].rows == rows.x.rows && parts[i].cols == rows.x.cols);
  }
  CheckExpertWeights(experts, rows.x.cols);
  ExpertScratch& s = ThisThreadsExpertScratch();
  cpu::AssignSlots(rows, experts.first, count, s.slots);
  const Matrix outputs = ExpertLayer(context, dot, experts, rows, s).Run();
  cpu::FinishNodes(context, rows, s.slots, outputs, nodes, parts);
}

}  // namespace sluice::kernels
