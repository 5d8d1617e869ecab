#include "kernels/cpu/expert_slots.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"

namespace sluice::kernels::cpu {
namespace {

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
int32_t JoinAsks(const Ops& ops, const RowAsks& asks, TreeNode node,
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
void FinishRow(const Ops& ops, const RowAsks& asks, int64_t t, Matrix outputs,
               std::span<const TreeNode> nodes, std::span<const Matrix> parts) {
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

void AssignSlots(const ExpertRows& rows, int32_t first, int32_t count,
                 ExpertSlots& s) {
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
