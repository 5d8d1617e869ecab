#include "kernels/experts.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/quantized_buffer.h"

namespace sluice::kernels {
namespace {

// Grows to what it needed once and stays, as the caller thread's scratch.
struct ExpertScratch {
  std::vector<int32_t> begins;  // [n + 1]: an expert's run of slots
  std::vector<int32_t> slots;   // [T * k]: where an asked expert's output is
  std::vector<int64_t> askers;  // [slots]: which row asked
  std::vector<float> inputs;    // [most rows of one expert, H]
  std::vector<float> gate_up;   // [most rows of one expert, 2F]
  std::vector<float> middle;    // [most rows of one expert, F]
  std::vector<float> outputs;   // [slots, H]
  QuantizedBuffer coded;        // [T, H], for experts of blocks
  QuantizedBuffer of_expert;    // the rows of one expert: of x, or of middle

  Matrix Of(std::vector<float>& floats, int64_t rows, int64_t cols) {
    const auto size = static_cast<size_t>(rows * cols);
    if (floats.size() < size) floats.resize(size);
    return {floats.data(), rows, cols, cols};
  }
};

ExpertScratch& ThisThreadsExpertScratch() {
  thread_local ExpertScratch scratch;
  return scratch;
}

// Gives every (row, expert at hand) a slot, experts one after another.
void AssignSlots(const ExpertRows& rows, int32_t first, int32_t count,
                 ExpertScratch& s) {
  const int64_t asks = rows.x.rows * rows.per_row;
  const auto expert = [&](int64_t i) { return rows.ids[i] - first; };
  const auto here = [&](int64_t i) {
    return expert(i) >= 0 && expert(i) < count;
  };
  s.begins.assign(static_cast<size_t>(count) + 1, 0);
  for (int64_t i = 0; i < asks; ++i) {
    SLUICE_CHECK(i % rows.per_row == 0 || rows.ids[i - 1] < rows.ids[i]);
    if (here(i)) ++s.begins[expert(i) + 1];
  }
  for (int32_t e = 0; e < count; ++e) s.begins[e + 1] += s.begins[e];
  s.slots.assign(static_cast<size_t>(asks), -1);
  s.askers.resize(static_cast<size_t>(s.begins[count]));
  std::vector<int32_t> next(s.begins.begin(), s.begins.end() - 1);
  for (int64_t i = 0; i < asks; ++i) {
    if (!here(i)) continue;
    s.slots[i] = next[expert(i)]++;
    s.askers[s.slots[i]] = i / rows.per_row;
  }
}

// The rows at hand, and what products run on.
struct ExpertRun {
  const Context& plain;
  const DotContext& dot;
  ConstMatrix x;
  ExpertScratch& scratch;
};

// y = x w^T + bias for rows `from` of x.
void MultiplyRows(const ExpertRun& run, std::span<const int64_t> from,
                  const ExpertWeight& w, const float* bias, Matrix y) {
  ExpertScratch& s = run.scratch;
  const ConstMatrix& x = run.x;
  if (!w.is_plain()) {
    const auto count = static_cast<int64_t>(from.size());
    if (s.coded.rows().block != ActivationBlock(w.blocks.format)) {
      s.coded.Quantize(run.dot, x, ActivationBlock(w.blocks.format));
    }
    BlockMatMul(run.dot, s.of_expert.Gather(s.coded, from.data(), count),
                w.blocks, bias, y);
    return s.of_expert.FailRows(y);
  }
  const Matrix input =
      s.Of(s.inputs, static_cast<int64_t>(from.size()), x.cols);
  for (size_t i = 0; i < from.size(); ++i) {
    std::memcpy(input.row(static_cast<int64_t>(i)), x.row(from[i]),
                sizeof(float) * static_cast<size_t>(x.cols));
  }
  MatMul(run.plain, input, w.plain, bias, y);
}

// Outputs of expert `e` (from the first at hand) for all rows that ask it.
void RunExpert(const ExpertRun& run, const ExpertsView& experts, int32_t e) {
  const Context& context = run.plain;
  const ConstMatrix& x = run.x;
  ExpertScratch& s = run.scratch;
  const ExpertWeight& gate_up = experts.gate_up[e];
  const ExpertWeight& down = experts.down[e];
  SLUICE_CHECK(gate_up.cols() == x.cols && down.rows() == x.cols);
  SLUICE_CHECK(gate_up.rows() == 2 * down.cols());
  const int32_t begin = s.begins[e];
  const int64_t count = s.begins[e + 1] - begin;
  if (count == 0) return;
  const auto bias = [&](const float* all, int64_t size) {
    return all == nullptr ? nullptr : all + e * size;
  };
  const Matrix both = s.Of(s.gate_up, count, gate_up.rows());
  MultiplyRows(run,
               std::span(s.askers).subspan(begin, static_cast<size_t>(count)),
               gate_up, bias(experts.gate_up_bias, gate_up.rows()), both);
  const Matrix middle = s.Of(s.middle, count, down.cols());
  if (experts.swiglu_limit > 0.0f) {
    ClampedSwiGlu(context, both, experts.swiglu_limit, middle);
  } else {
    SiluMul(context, both, middle);
  }
  const Matrix out = {s.outputs.data() + begin * x.cols, count, x.cols, x.cols};
  const float* down_bias = bias(experts.down_bias, down.rows());
  if (down.is_plain()) {
    return MatMul(context, middle, down.plain, down_bias, out);
  }
  BlockMatMul(run.dot,
              s.of_expert.Quantize(run.dot, middle,
                                   ActivationBlock(down.blocks.format)),
              down.blocks, down_bias, out);
  s.of_expert.FailRows(out);
}

// One row's asked experts: their ids, the slots of their outputs (negative:
// elsewhere) and their weights, `count` of each.
struct RowAsks {
  const int32_t* ids;
  const int32_t* slots;
  const float* weights;
  int32_t count;
};

// Joins asks [first, last), whose ids are in the node [begin, end), into the
// leftmost one's slot, which it returns.
int32_t JoinAsks(const cpu::Ops& ops, const RowAsks& asks, TreeNode node,
                 int32_t first, int32_t last, Matrix outputs) {
  if (last - first == 1) return asks.slots[first];
  const int32_t middle = node.begin + SplitPoint(node.end - node.begin);
  const auto split = static_cast<int32_t>(
      std::lower_bound(asks.ids + first, asks.ids + last, middle) - asks.ids);
  const TreeNode left = {node.begin, middle};
  const TreeNode right = {middle, node.end};
  if (split == first) return JoinAsks(ops, asks, right, first, last, outputs);
  if (split == last) return JoinAsks(ops, asks, left, first, last, outputs);
  const int32_t a = JoinAsks(ops, asks, left, first, split, outputs);
  const int32_t b = JoinAsks(ops, asks, right, split, last, outputs);
  ops.add(outputs.row(a), outputs.row(b), outputs.cols);
  return a;
}

void Weigh(float* row, float weight, int64_t n) {
  for (int64_t i = 0; i < n; ++i) row[i] *= weight;
}

// Row t of every part.
void FinishRow(const cpu::Ops& ops, const RowAsks& asks, int64_t t,
               Matrix outputs, std::span<const TreeNode> nodes,
               std::span<const Matrix> parts) {
  for (int32_t j = 0; j < asks.count; ++j) {
    if (asks.slots[j] < 0) continue;
    Weigh(outputs.row(asks.slots[j]), asks.weights[j], outputs.cols);
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int32_t* end = asks.ids + asks.count;
    const auto first = static_cast<int32_t>(
        std::lower_bound(asks.ids, end, nodes[i].begin) - asks.ids);
    const auto last = static_cast<int32_t>(
        std::lower_bound(asks.ids, end, nodes[i].end) - asks.ids);
    float* to = parts[i].row(t);
    if (first == last) {
      std::fill_n(to, outputs.cols, -0.0f);
      continue;
    }
    const int32_t slot = JoinAsks(ops, asks, nodes[i], first, last, outputs);
    std::copy_n(outputs.row(slot), outputs.cols, to);
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
  ExpertScratch& s = ThisThreadsExpertScratch();
  AssignSlots(rows, experts.first, count, s);
  s.coded.Forget();
  const Matrix outputs = s.Of(s.outputs, s.begins[count], rows.x.cols);
  for (int32_t e = 0; e < count; ++e) {
    RunExpert({context, dot, rows.x, s}, experts, e);
  }
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  const int32_t* slots = s.slots.data();  // the caller's, seen by others
  const int tasks = cpu::NumTasks(context, outputs.rows * outputs.cols * 2);
  ParallelFor(context, tasks, [&](int task) {
    const cpu::Range range = cpu::PartOf(rows.x.rows, task, tasks, 1);
    for (int64_t t = range.begin; t < range.end; ++t) {
      const int64_t at = t * rows.per_row;
      FinishRow(ops,
                {rows.ids + at, slots + at, rows.weights + at, rows.per_row}, t,
                outputs, nodes, parts);
    }
  });
}

}  // namespace sluice::kernels
