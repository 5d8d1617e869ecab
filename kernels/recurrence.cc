#include "kernels/recurrence.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kMaxBlockTokens = 64;

float* BlockAt(const StateView& view, const StateRun& run, int64_t index) {
  const int64_t block = run.table[index];
  SLUICE_CHECK(block >= 0 && block < view.num_blocks);
  return view.data + block * view.shape.block_floats(view.block_tokens);
}

// Whether block `index`, which the run writes to, stays: the next one within
// the run may be the same.
bool Stays(const StateView& view, const StateRun& run, int64_t index) {
  const int64_t last =
      (run.position + run.end - run.begin - 1) / view.block_tokens;
  return index == last || run.table[index] != run.table[index + 1];
}

// The convolution's input at `position` of the run's sequence; null before the
// first. `history`: the block of the position before the run.
const float* InputAt(const StateView& view, const StateRun& run, ConstMatrix x,
                     int64_t position, const float* history) {
  if (position >= run.position) {
    return x.row(run.begin + position - run.position);
  }
  if (position < 0) return nullptr;
  const StateShape& shape = view.shape;
  const int64_t first =
      (run.position - 1) / view.block_tokens * view.block_tokens;
  if (position >= first) {
    return history + shape.inputs_begin() + (position - first) * shape.channels;
  }
  return history + (shape.taps - 1 - (first - position)) * shape.channels;
}

const float* HistoryOf(const StateView& view, const StateRun& run) {
  if (run.position == 0) return nullptr;
  return BlockAt(view, run, (run.position - 1) / view.block_tokens);
}

// Calls body(run, t) for the rows [begin, end) of all runs, counted together.
template <typename Body>
void ForRows(std::span<const StateRun> runs, int64_t begin, int64_t end,
             const Body& body) {
  int64_t before = 0;
  for (const StateRun& run : runs) {
    const int64_t count = run.end - run.begin;
    const int64_t from = std::max<int64_t>(begin - before, 0);
    const int64_t to = std::min(end - before, count);
    for (int64_t i = from; i < to; ++i) body(run, run.begin + i);
    before += count;
  }
}

int64_t RowsOf(std::span<const StateRun> runs) {
  int64_t rows = 0;
  for (const StateRun& run : runs) rows += run.end - run.begin;
  return rows;
}

void CheckView(const StateView& view) {
  SLUICE_CHECK(view.shape.taps >= 1 && view.shape.taps <= kMaxConvolutionTaps &&
               view.block_tokens >= view.shape.taps - 1 &&
               view.block_tokens <= kMaxBlockTokens &&
               view.shape.key_dim <= kMaxKeyDim);
}

// One head's columns of one run.
class HeadRun {
 public:
  HeadRun(const cpu::Ops& ops, const StateView& view, const StateRun& run,
          int64_t head, int64_t column)
      : ops_(ops),
        view_(view),
        run_(run),
        head_(head),
        column_(column),
        columns_(std::min(view.shape.value_dim - column, ops.state_columns)) {
    static thread_local std::vector<float> scratch;
    scratch.resize(static_cast<size_t>(view.shape.key_dim * ops.state_columns));
    state_ = scratch.data();
  }

  void Run(ConstMatrix queries, ConstMatrix rows, Matrix out) {
    Resume();
    const StateShape& shape = view_.shape;
    const int64_t key_head =
        head_ / (shape.num_heads / shape.num_key_heads) * shape.key_dim;
    for (int64_t t = run_.begin; t < run_.end; ++t) {
      const int64_t position = run_.position + t - run_.begin;
      if (position % view_.block_tokens == 0) {
        Flush();
        Save(position / view_.block_tokens);
      }
      Push(rows.row(t), queries.row(t) + key_head,
           out.row(t) + head_ * shape.value_dim + column_);
    }
    Flush();
  }

 private:
  // The state's columns in a block.
  float* StateIn(float* block) const {
    return block + view_.shape.state_begin() +
           head_ * view_.shape.key_dim * view_.shape.value_dim + column_;
  }

  // Takes the state before the run's first token.
  void Resume() {
    const StateShape& shape = view_.shape;
    std::memset(state_, 0, sizeof(float) * shape.key_dim * ops_.state_columns);
    if (run_.position == 0) return;
    const int64_t index = (run_.position - 1) / view_.block_tokens;
    float* const block = BlockAt(view_, run_, index);
    const float* const from = StateIn(block);
    for (int64_t i = 0; i < shape.key_dim; ++i) {
      std::memcpy(state_ + i * ops_.state_columns, from + i * shape.value_dim,
                  sizeof(float) * columns_);
    }
    const float* const rows = block + shape.rows_begin(view_.block_tokens);
    const int64_t count = run_.position - index * view_.block_tokens;
    for (int64_t i = 0; i < count; ++i) {
      Push(rows + i * shape.row(), nullptr, nullptr);
    }
    Flush();
  }

  void Push(const float* row, const float* query, float* out) {
    const StateShape& shape = view_.shape;
    const int64_t key_head = head_ / (shape.num_heads / shape.num_key_heads);
    const float* const values = row + shape.keys();
    const float* const decays = values + shape.values();
    cpu::RecurrenceToken& token = tokens_[num_tokens_++];
    token.key = row + key_head * shape.key_dim;
    token.query = query;
    token.value = values + head_ * shape.value_dim + column_;
    token.out = out;
    token.decay = decays[head_];
    token.beta = shape.delta ? decays[shape.num_heads + head_] : 0.0f;
  }

  void Flush() {
    ops_.recur({state_, view_.shape.key_dim, columns_, view_.shape.delta,
                tokens_, num_tokens_});
    num_tokens_ = 0;
  }

  // Writes the state to the block that begins here.
  void Save(int64_t index) {
    if (!Stays(view_, run_, index)) return;
    const StateShape& shape = view_.shape;
    float* const to = StateIn(BlockAt(view_, run_, index));
    for (int64_t i = 0; i < shape.key_dim; ++i) {
      std::memcpy(to + i * shape.value_dim, state_ + i * ops_.state_columns,
                  sizeof(float) * columns_);
    }
  }

  const cpu::Ops& ops_;
  const StateView& view_;
  const StateRun& run_;
  const int64_t head_;
  const int64_t column_;
  const int64_t columns_;
  float* state_;
  cpu::RecurrenceToken tokens_[kMaxBlockTokens];
  int64_t num_tokens_ = 0;
};

}  // namespace

void Convolve(const Context& context, std::span<const StateRun> runs,
              const StateView& view, ConstMatrix x,
              const ConvolutionWeights& weights, Matrix y) {
  CheckView(view);
  const StateShape& shape = view.shape;
  SLUICE_CHECK(x.cols == shape.channels && y.cols == shape.channels);
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  const int64_t elements = RowsOf(runs) * shape.channels;
  const int tasks =
      cpu::NumTasks(context, elements * (shape.taps + (weights.silu ? 16 : 0)));
  ParallelFor(context, tasks, [&](int task) {
    // Tasks cut the elements: one token is the common case.
    const cpu::Range part = cpu::PartOf(elements, task, tasks, 64);
    if (part.begin == part.end) return;
    const int64_t first = part.begin / shape.channels;
    const int64_t last = (part.end - 1) / shape.channels;
    int64_t row = first;
    ForRows(runs, first, last + 1, [&](const StateRun& run, int64_t t) {
      const int64_t begin =
          std::max(part.begin - row * shape.channels, int64_t{0});
      const int64_t end =
          std::min(part.end - row * shape.channels, shape.channels);
      ++row;
      const float* const history = HistoryOf(view, run);
      const int64_t position = run.position + t - run.begin;
      const float* rows[kMaxConvolutionTaps];
      for (int64_t j = 0; j < shape.taps; ++j) {
        rows[j] = InputAt(view, run, x, position - shape.taps + 1 + j, history);
        if (rows[j] != nullptr) rows[j] += begin;
      }
      const float* const bias = weights.bias;
      ops.convolve({rows, weights.taps + begin, shape.channels,
                    static_cast<int32_t>(shape.taps),
                    bias == nullptr ? nullptr : bias + begin, weights.silu,
                    y.row(t) + begin, end - begin});
    });
  });
}

void RunRecurrence(const Context& context, std::span<const StateRun> runs,
                   const StateView& view, ConstMatrix queries, ConstMatrix rows,
                   Matrix out) {
  CheckView(view);
  const StateShape& shape = view.shape;
  SLUICE_CHECK(shape.num_heads % shape.num_key_heads == 0);
  SLUICE_CHECK(queries.cols == shape.keys() && rows.cols == shape.row() &&
               out.cols == shape.values());
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  const int64_t parts =
      (shape.value_dim + ops.state_columns - 1) / ops.state_columns;
  const int64_t per_run = shape.num_heads * parts;
  const int64_t items = static_cast<int64_t>(runs.size()) * per_run;
  const int tasks = cpu::NumTasks(context, RowsOf(runs) * shape.num_heads *
                                               shape.key_dim * shape.value_dim);
  // Runs differ in length: threads take the next item when they are free.
  std::atomic<int64_t> next = 0;
  ParallelFor(context, tasks, [&](int) {
    for (int64_t i = next++; i < items; i = next++) {
      const StateRun& run = runs[static_cast<size_t>(i / per_run)];
      const int64_t part = i % per_run;
      HeadRun(ops, view, run, part / parts, part % parts * ops.state_columns)
          .Run(queries, rows, out);
    }
  });
}

void StoreState(const Context& context, std::span<const StateRun> runs,
                const StateView& view, ConstMatrix x, ConstMatrix rows) {
  const StateShape& shape = view.shape;
  const int64_t tokens = RowsOf(runs);
  const int tasks =
      cpu::NumTasks(context, tokens * (shape.channels + shape.row()));
  const auto index_of = [&](const StateRun& run, int64_t t) {
    return (run.position + t - run.begin) / view.block_tokens;
  };
  // What is before a block, as long as no block has new inputs.
  ParallelFor(context, tasks, [&](int task) {
    const cpu::Range part = cpu::PartOf(tokens, task, tasks, 1);
    ForRows(runs, part.begin, part.end, [&](const StateRun& run, int64_t t) {
      const int64_t position = run.position + t - run.begin;
      if (position % view.block_tokens != 0) return;
      const int64_t index = index_of(run, t);
      if (!Stays(view, run, index)) return;
      const float* const history = HistoryOf(view, run);
      float* to = BlockAt(view, run, index);
      for (int64_t j = 1; j < shape.taps; ++j, to += shape.channels) {
        const float* const from =
            InputAt(view, run, x, position - shape.taps + j, history);
        if (from == nullptr) {
          std::memset(to, 0, sizeof(float) * shape.channels);
        } else {
          std::memcpy(to, from, sizeof(float) * shape.channels);
        }
      }
    });
  });
  ParallelFor(context, tasks, [&](int task) {
    const cpu::Range part = cpu::PartOf(tokens, task, tasks, 1);
    ForRows(runs, part.begin, part.end, [&](const StateRun& run, int64_t t) {
      const int64_t index = index_of(run, t);
      if (!Stays(view, run, index)) return;
      const int64_t place = (run.position + t - run.begin) % view.block_tokens;
      float* const block = BlockAt(view, run, index);
      std::memcpy(block + shape.inputs_begin() + place * shape.channels,
                  x.row(t), sizeof(float) * shape.channels);
      if (shape.num_heads == 0) return;
      std::memcpy(
          block + shape.rows_begin(view.block_tokens) + place * shape.row(),
          rows.row(t), sizeof(float) * shape.row());
    });
  });
}

}  // namespace sluice::kernels
