#include "kernels/state_mixer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/exp_log.h"

namespace sluice::kernels {
namespace {

using Kind = StateMixer::Kind;

// Of a key's or a query's squared length.
constexpr float kLengthEps = 1e-6f;

Matrix Columns(Matrix x, int64_t begin, int64_t cols) {
  return {x.data + begin, x.rows, cols, x.stride};
}
ConstMatrix Columns(ConstMatrix x, int64_t begin, int64_t cols) {
  return {x.data + begin, x.rows, cols, x.stride};
}

// Calls body(t) for every token, on the team if `work` multiply-adds are worth
// it.
template <typename Body>
void ForTokens(const Context& context, int64_t tokens, int64_t work,
               const Body& body) {
  const int tasks = cpu::NumTasks(context, work);
  ParallelFor(context, tasks, [&](int task) {
    const cpu::Range part = cpu::PartOf(tokens, task, tasks, 1);
    for (int64_t t = part.begin; t < part.end; ++t) body(t);
  });
}

// The same for every head of every token: one token is the common case.
template <typename Body>
void ForHeads(const Context& context, int64_t tokens, int64_t heads,
              int64_t work_of_head, const Body& body) {
  ForTokens(context, tokens * heads, tokens * heads * work_of_head,
            [&](int64_t i) { body(i / heads, i % heads); });
}

void ScaleRow(float scale, const float* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = scale * from[i];
}

void MultiplyRow(const float* a, const float* b, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = a[i] * b[i];
}

// One layer's step.
struct Step {
  const Context& context;
  const cpu::Ops& ops;
  const StateMixer& mixer;
  const StateMixerVectors& vectors;
  std::span<const StateRun> runs;
  const StateView& view;

  const StateShape& shape() const { return mixer.shape; }
};

void ShortConvolution(const Step& step, ConstMatrix x, Matrix scratch,
                      Matrix y) {
  const int64_t width = step.shape().channels;
  const Matrix inputs = Columns(scratch, 0, width);
  const ConstMatrix c = Columns(x, width, width);
  ForTokens(step.context, x.rows, x.rows * width, [&](int64_t t) {
    MultiplyRow(x.row(t), x.row(t) + 2 * width, width, inputs.row(t));
  });
  Convolve(step.context, step.runs, step.view, inputs,
           {step.vectors.taps, step.vectors.conv_bias, /*silu=*/false}, y);
  ForTokens(step.context, x.rows, x.rows * width, [&](int64_t t) {
    MultiplyRow(c.row(t), y.row(t), width, y.row(t));
  });
  StoreState(step.context, step.runs, step.view, inputs, {});
}

// A head over its length.
void Normalise(const cpu::Ops& ops, const float* x, int64_t n, float* y) {
  const float length = std::sqrt(ops.dot(x, x, n) + kLengthEps);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] / length;
}

void GatedDelta(const Step& step, ConstMatrix x, Matrix scratch, Matrix y) {
  const StateShape& s = step.shape();
  const cpu::Ops& ops = step.ops;
  const Matrix mixed = Columns(scratch, 0, s.channels);
  const Matrix queries = Columns(scratch, s.channels, s.keys());
  const Matrix rows = Columns(scratch, s.channels + s.keys(), s.row());
  const ConstMatrix inputs = Columns(x, 0, s.channels);
  const ConstMatrix z = Columns(x, s.channels, s.values());
  const ConstMatrix gates =
      Columns(x, s.channels + s.values(), 2 * s.num_heads);
  Convolve(step.context, step.runs, step.view, inputs,
           {step.vectors.taps, step.vectors.conv_bias, /*silu=*/true}, mixed);
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.key_dim));
  ForHeads(step.context, x.rows, s.num_key_heads, 4 * s.key_dim,
           [&](int64_t t, int64_t h) {
             const int64_t at = h * s.key_dim;
             float* const query = queries.row(t) + at;
             Normalise(ops, mixed.row(t) + at, s.key_dim, query);
             ScaleRow(scale, query, s.key_dim, query);
             Normalise(ops, mixed.row(t) + s.keys() + at, s.key_dim,
                       rows.row(t) + at);
           });
  ForHeads(step.context, x.rows, s.num_heads, 64 + s.value_dim,
           [&](int64_t t, int64_t h) {
             float* const values = rows.row(t) + s.keys();
             const int64_t at = h * s.value_dim;
             std::memcpy(values + at, mixed.row(t) + 2 * s.keys() + at,
                         sizeof(float) * s.value_dim);
             const float* const b = gates.row(t);
             const float* const a = b + s.num_heads;
             float* const decay = values + s.values() + h;
             *decay = Exp(step.vectors.rate[h] *
                          Softplus(a[h] + step.vectors.time_bias[h]));
             decay[s.num_heads] = 1.0f / (1.0f + Exp(-b[h]));
           });
  RunRecurrence(step.context, step.runs, step.view, queries, rows, y);
  StoreState(step.context, step.runs, step.view, inputs, rows);
  ForHeads(
      step.context, x.rows, s.num_heads, 20 * s.value_dim,
      [&](int64_t t, int64_t h) {
        float* const head = y.row(t) + h * s.value_dim;
        const float mean =
            ops.dot(head, head, s.value_dim) / static_cast<float>(s.value_dim);
        ops.scale_multiply(head, 1.0f / std::sqrt(mean + step.mixer.norm_eps),
                           step.vectors.norm, head, s.value_dim);
        ops.silu_multiply(z.row(t) + h * s.value_dim, head, head, s.value_dim);
      });
}

// Gate and norm of the recurrence's output, in place.
void GateAndNorm(const Step& step, ConstMatrix z, Matrix y) {
  const StateMixer& mixer = step.mixer;
  const int64_t groups = std::max<int64_t>(mixer.norm_groups, 1);
  const int64_t width = y.cols / groups;
  ForHeads(step.context, y.rows, groups, 20 * width, [&](int64_t t, int64_t g) {
    float* const run = y.row(t) + g * width;
    const float* const gate = z.row(t) + g * width;
    if (!mixer.norm_before_gate || mixer.norm_groups == 0) {
      step.ops.silu_multiply(gate, run, run, width);
    }
    if (mixer.norm_groups == 0) return;
    const float mean =
        step.ops.dot(run, run, width) / static_cast<float>(width);
    step.ops.scale_multiply(run, 1.0f / std::sqrt(mean + mixer.norm_eps),
                            step.vectors.norm + g * width, run, width);
    if (mixer.norm_before_gate) {
      step.ops.silu_multiply(gate, run, run, width);
    }
  });
}

// The columns, each part times its scale, in `scaled`.
ConstMatrix Scaled(const Step& step, ConstMatrix x, Matrix scaled) {
  const StateShape& s = step.shape();
  const int64_t parts[] = {s.values(), s.values(), s.keys(), s.keys(),
                           s.num_heads};
  ForTokens(step.context, x.rows, x.rows * x.cols, [&](int64_t t) {
    const float* from = x.row(t);
    float* to = scaled.row(t);
    for (size_t i = 0; i < 5; ++i) {
      ScaleRow(step.mixer.scales[i], from, parts[i], to);
      from += parts[i];
      to += parts[i];
    }
  });
  return scaled;
}

void Mamba2(const Step& step, ConstMatrix x, Matrix scratch, Matrix y) {
  const StateShape& s = step.shape();
  const StateMixer& mixer = step.mixer;
  const Matrix mixed = Columns(scratch, 0, s.channels);
  const Matrix rows = Columns(scratch, s.channels, s.row());
  x = Scaled(step, x,
             Columns(scratch, s.channels + s.row(), mixer.in_columns()));
  const ConstMatrix z = Columns(x, 0, s.values());
  const ConstMatrix inputs = Columns(x, s.values(), s.channels);
  const ConstMatrix steps = Columns(x, s.values() + s.channels, s.num_heads);
  Convolve(step.context, step.runs, step.view, inputs,
           {step.vectors.taps, step.vectors.conv_bias, /*silu=*/true}, mixed);
  const Matrix queries = Columns(mixed, s.values() + s.keys(), s.keys());
  ForTokens(step.context, x.rows, x.rows * s.keys(), [&](int64_t t) {
    std::memcpy(rows.row(t), mixed.row(t) + s.values(),
                sizeof(float) * s.keys());
  });
  ForHeads(step.context, x.rows, s.num_heads, 64 + s.value_dim,
           [&](int64_t t, int64_t h) {
             float dt = Softplus(steps.row(t)[h] + step.vectors.time_bias[h]);
             dt = std::max(dt, mixer.time_step_min);
             if (mixer.time_step_max > 0) {
               dt = std::min(dt, mixer.time_step_max);
             }
             const int64_t at = h * s.value_dim;
             float* const values = rows.row(t) + s.keys();
             ScaleRow(dt, mixed.row(t) + at, s.value_dim, values + at);
             values[s.values() + h] = Exp(dt * step.vectors.rate[h]);
           });
  RunRecurrence(step.context, step.runs, step.view, queries, rows, y);
  StoreState(step.context, step.runs, step.view, inputs, rows);
  ForHeads(step.context, x.rows, s.num_heads, s.value_dim,
           [&](int64_t t, int64_t h) {
             const float skip = step.vectors.skip[h];
             float* const head = y.row(t) + h * s.value_dim;
             const float* const u = mixed.row(t) + h * s.value_dim;
             for (int64_t i = 0; i < s.value_dim; ++i) {
               head[i] += skip * u[i];
             }
           });
  GateAndNorm(step, z, y);
}

}  // namespace

int64_t StateMixer::in_columns() const {
  switch (kind) {
    case Kind::kShortConvolution:
      return 3 * shape.channels;
    case Kind::kGatedDelta:
      return 2 * shape.keys() + 2 * shape.values() + 2 * shape.num_heads;
    case Kind::kMamba2:
      return 2 * shape.values() + 2 * shape.keys() + shape.num_heads;
  }
  return 0;
}

int64_t StateMixer::out_columns() const {
  return kind == Kind::kShortConvolution ? shape.channels : shape.values();
}

int64_t StateMixer::scratch_columns() const {
  switch (kind) {
    case Kind::kShortConvolution:
      return shape.channels;
    case Kind::kGatedDelta:
      return shape.channels + shape.keys() + shape.row();
    case Kind::kMamba2:
      return shape.channels + shape.row() + in_columns();
  }
  return 0;
}

float Softplus(float x) {
  if (x > 20.0f) return x;  // ln(1 + e^-x) is below half a unit of x
  const double e = Exp(x);
  // Below, 1 + e loses of e.
  if (e < 1e-5) return static_cast<float>(e - 0.5 * e * e);
  return static_cast<float>(Log(1.0 + e));
}

void MixState(const Context& context, const StateMixer& mixer,
              const StateMixerVectors& vectors, std::span<const StateRun> runs,
              const StateView& view, ConstMatrix x, Matrix scratch, Matrix y) {
  SLUICE_CHECK(x.cols == mixer.in_columns() && y.cols == mixer.out_columns() &&
               scratch.cols == mixer.scratch_columns() &&
               view.shape == mixer.shape);
  const Step step = {context, cpu::OpsFor(context.isa), mixer, vectors, runs,
                     view};
  switch (mixer.kind) {
    case Kind::kShortConvolution:
      return ShortConvolution(step, x, scratch, y);
    case Kind::kGatedDelta:
      return GatedDelta(step, x, scratch, y);
    case Kind::kMamba2:
      return Mamba2(step, x, scratch, y);
  }
}

}  // namespace sluice::kernels
