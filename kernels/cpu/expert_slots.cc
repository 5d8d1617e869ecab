#include "kernels/cpu/expert_slots.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"

namespace sluice::kernels::cpu {
namespace {

// The experts of one row: ids, slots of outputs (negative: remote) and weights,
// `count` of each.
struct RowExperts {
  const int32_t* ids;
  const int32_t* slots;
  const float* weights;
  int32_t count;
};

// Adds up the outputs of experts [first, last) of a row, whose ids are in
// `node`. Returns the slot of the sum, which is the first expert's.
int32_t JoinOutputs(const Ops& ops, const RowExperts& row, TreeNode node,
                    int32_t first, int32_t last, Matrix outputs) {
  if (last - first == 1) return row.slots[first];
  const int32_t middle = node.begin + SplitPoint(node.end - node.begin);
  const auto split = static_cast<int32_t>(
      std::lower_bound(row.ids + first, row.ids + last, middle) - row.ids);
  const TreeNode left = {node.begin, middle};
  const TreeNode right = {middle, node.end};
  if (split == first) return JoinOutputs(ops, row, right, first, last, outputs);
  if (split == last) return JoinOutputs(ops, row, left, first, last, outputs);
  const int32_t a = JoinOutputs(ops, row, left, first, split, outputs);
  const int32_t b = JoinOutputs(ops, row, right, split, last, outputs);
  ops.add(outputs.row(a), outputs.row(b), outputs.cols);
  return a;
}

void Weigh(float* row, float weight, int64_t n) {
  for (int64_t i = 0; i < n; ++i) row[i] *= weight;
}

// Row t of every part.
void FinishRow(const Ops& ops, const RowExperts& row, int64_t t, Matrix outputs,
               std::span<const TreeNode> nodes, std::span<const Matrix> parts) {
  for (int32_t j = 0; j < row.count; ++j) {
    if (row.slots[j] < 0) continue;
    Weigh(outputs.row(row.slots[j]), row.weights[j], outputs.cols);
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int32_t* end = row.ids + row.count;
    const auto first = static_cast<int32_t>(
        std::lower_bound(row.ids, end, nodes[i].begin) - row.ids);
    const auto last = static_cast<int32_t>(
        std::lower_bound(row.ids, end, nodes[i].end) - row.ids);
    float* to = parts[i].row(t);
    if (first == last) {
      std::fill_n(to, outputs.cols, -0.0f);
      continue;
    }
    const int32_t slot = JoinOutputs(ops, row, nodes[i], first, last, outputs);
    std::copy_n(outputs.row(slot), outputs.cols, to);
  }
}

}  // namespace

void AssignSlots(const ExpertRows& rows, int32_t first, int32_t count,
                 ExpertSlots& s) {
  const int64_t pairs = rows.x.rows * rows.per_row;
  const auto expert = [&](int64_t i) { return rows.ids[i] - first; };
  const auto here = [&](int64_t i) {
    return expert(i) >= 0 && expert(i) < count;
  };
  s.begins.assign(static_cast<size_t>(count) + 1, 0);
  for (int64_t i = 0; i < pairs; ++i) {
    SLUICE_CHECK(i % rows.per_row == 0 || rows.ids[i - 1] < rows.ids[i]);
    if (here(i)) ++s.begins[expert(i) + 1];
  }
  for (int32_t e = 0; e < count; ++e) s.begins[e + 1] += s.begins[e];
  s.slots.assign(static_cast<size_t>(pairs), -1);
  s.rows.resize(static_cast<size_t>(s.begins[count]));
  std::vector<int32_t> next(s.begins.begin(), s.begins.end() - 1);
  for (int64_t i = 0; i < pairs; ++i) {
    if (!here(i)) continue;
    s.slots[i] = next[expert(i)]++;
    s.rows[s.slots[i]] = i / rows.per_row;
  }
}

void FinishNodes(const Context& context, const ExpertRows& rows,
                 const ExpertSlots& slots, Matrix outputs,
                 std::span<const TreeNode> nodes,
                 std::span<const Matrix> parts) {
  const Ops& ops = OpsFor(context.isa);
  const int32_t* all = slots.slots.data();  // the caller's, seen by others
  const int tasks = NumTasks(context, outputs.rows * outputs.cols * 2);
  ParallelFor(context, tasks, [&](int task) {
    const Range range = PartOf(rows.x.rows, task, tasks, 1);
    for (int64_t t = range.begin; t < range.end; ++t) {
      const int64_t at = t * rows.per_row;
      FinishRow(ops, {rows.ids + at, all + at, rows.weights + at, rows.per_row},
                t, outputs, nodes, parts);
    }
  });
}

}  // namespace sluice::kernels::cpu
