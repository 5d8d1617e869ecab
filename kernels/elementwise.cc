#include "kernels/elementwise.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {
namespace {

// Calls row(gate, up, to, n) for runs of elements of y.
template <typename Row>
void Gated(const Context& context, ConstMatrix x, Matrix y, const Row& row) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == 2 * y.cols);
  // An exponential is worth about 16 multiply-adds.
  const int64_t elements = y.rows * y.cols;
  const int tasks = cpu::NumTasks(context, elements * 16);
  ParallelFor(context, tasks, [&](int task) {
    // Tasks cut the elements, not the tokens: one token is the common case.
    const cpu::Range range = cpu::PartOf(elements, task, tasks, 64);
    int64_t at = range.begin;
    while (at < range.end) {
      const int64_t t = at / y.cols;
      const int64_t i = at % y.cols;
      const int64_t n = std::min(y.cols - i, range.end - at);
      row(x.row(t) + i, x.row(t) + y.cols + i, y.row(t) + i, n);
      at += n;
    }
  });
}

}  // namespace

void SiluMul(const Context& context, ConstMatrix x, Matrix y) {
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  Gated(context, x, y, ops.silu_multiply);
}

void ClampedSwiGlu(const Context& context, ConstMatrix x, float limit,
                   Matrix y) {
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  Gated(context, x, y,
        [&](const float* gate, const float* up, float* to, int64_t n) {
          ops.clamped_swiglu(gate, up, limit, to, n);
        });
}

namespace {

// Calls row(from, to, n) for runs of elements of x and y.
template <typename Row>
void Plain(const Context& context, ConstMatrix x, Matrix y, const Row& row) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == y.cols);
  const int64_t elements = y.rows * y.cols;
  const int tasks = cpu::NumTasks(context, elements * 16);
  ParallelFor(context, tasks, [&](int task) {
    const cpu::Range range = cpu::PartOf(elements, task, tasks, 64);
    int64_t at = range.begin;
    while (at < range.end) {
      const int64_t t = at / y.cols;
      const int64_t i = at % y.cols;
      const int64_t n = std::min(y.cols - i, range.end - at);
      row(x.row(t) + i, y.row(t) + i, n);
      at += n;
    }
  });
}

float Relu2(float x) { return x > 0 ? x * x : x * 0.0f; }

// NaN stays NaN.
float XIeluOf(const cpu::Ops& ops, const XIelu& of, float x) {
  if (x > 0) return std::fma(of.positive * x, x, of.beta * x);
  const float low = x < of.eps ? x : of.eps;
  return std::fma(of.negative, ops.exp(low) - 1.0f - x, of.beta * x);
}

}  // namespace

void Activate(const Context& context, const Activation& activation,
              ConstMatrix x, Matrix y) {
  using Kind = Activation::Kind;
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  switch (activation.kind) {
    case Kind::kSilu:
      return SiluMul(context, x, y);
    case Kind::kClampedSwiGlu:
      return ClampedSwiGlu(context, x, activation.limit, y);
    case Kind::kGeluTanh:
      if (activation.gated) return Gated(context, x, y, ops.gelu_multiply);
      return Plain(context, x, y, [&](const float* from, float* to, int64_t n) {
        ops.gelu_multiply(from, nullptr, to, n);
      });
    case Kind::kRelu2:
      SLUICE_CHECK(!activation.gated);
      return Plain(context, x, y, [&](const float* from, float* to, int64_t n) {
        for (int64_t i = 0; i < n; ++i) to[i] = Relu2(from[i]);
      });
    case Kind::kXIelu:
      SLUICE_CHECK(!activation.gated);
      return Plain(context, x, y, [&](const float* from, float* to, int64_t n) {
        for (int64_t i = 0; i < n; ++i)
          to[i] = XIeluOf(ops, activation.xielu, from[i]);
      });
  }
}

void Map(const Context& context, const ElementMap& map, Matrix x) {
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  Plain(context, x, x, [&](const float*, float* at, int64_t n) {
    if (map.scale != 1) {
      for (int64_t i = 0; i < n; ++i) at[i] *= map.scale;
    }
    if (map.cap != 0) ops.soft_cap(at, map.cap, n);
    if (map.clip == 0) return;
    for (int64_t i = 0; i < n; ++i) {
      at[i] = at[i] > map.clip    ? map.clip
              : at[i] < -map.clip ? -map.clip
                                  : at[i];
    }
  });
}

void Multiply(const Context& context, ConstMatrix x, Matrix y) {
  Plain(context, x, y, [](const float* from, float* to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] *= from[i];
  });
}

void SigmoidGateRows(const Context& context, ConstMatrix gate, Matrix y) {
  SLUICE_CHECK(gate.rows == y.rows && gate.cols == 1);
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  const int tasks = cpu::NumTasks(context, y.rows * y.cols);
  ParallelFor(context, tasks, [&](int task) {
    const cpu::Range tokens = cpu::PartOf(y.rows, task, tasks, 1);
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      float weight = 0;
      ops.sigmoid(gate.row(t), &weight, 1);
      float* row = y.row(t);
      for (int64_t i = 0; i < y.cols; ++i) row[i] *= weight;
    }
  });
}

void SigmoidMul(const Context& context, ConstMatrix gate, Matrix y) {
  SLUICE_CHECK(gate.rows == y.rows && gate.cols == y.cols);
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  const int tasks = cpu::NumTasks(context, y.rows * y.cols * 16);
  ParallelFor(context, tasks, [&](int task) {
    const cpu::Range tokens = cpu::PartOf(y.rows, task, tasks, 1);
    constexpr int64_t kPart = 256;
    float factors[kPart];
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      for (int64_t at = 0; at < y.cols; at += kPart) {
        const int64_t n = std::min(y.cols - at, kPart);
        ops.sigmoid(gate.row(t) + at, factors, n);
        float* const to = y.row(t) + at;
        for (int64_t i = 0; i < n; ++i) to[i] *= factors[i];
      }
    }
  });
}

void Add(const Context& context, ConstMatrix y, Matrix x) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == y.cols);
  const int tasks = cpu::NumTasks(context, x.rows * x.cols);
  ParallelFor(context, tasks, [&](int task) {
    const cpu::Range tokens = cpu::PartOf(x.rows, task, tasks, 1);
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      float* to = x.row(t);
      const float* from = y.row(t);
      for (int64_t i = 0; i < x.cols; ++i) to[i] += from[i];
    }
  });
}

void Embed(const Context& context, const WeightView& table, const int32_t* ids,
           Matrix y) {
  SLUICE_CHECK(y.cols == table.cols);
  const cpu::WeightOps& ops =
      cpu::OpsFor(context.isa).of_type[static_cast<int>(table.type)];
  const cpu::WeightRows rows = {.data = table.data, .cols = table.cols};
  for (int64_t t = 0; t < y.rows; ++t) {
    SLUICE_CHECK(ids[t] >= 0 && ids[t] < table.rows);
    ops.widen(rows, ids[t], y.row(t));
  }
}

}  // namespace sluice::kernels
