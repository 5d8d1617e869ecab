#ifndef SLUICE_KERNELS_STATE_MIXER_H_
#define SLUICE_KERNELS_STATE_MIXER_H_

#include <array>
#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/recurrence.h"
#include "kernels/views.h"

// The layers that carry a state from token to token, between their two
// projections: from the input projection's columns to the output projection's.
namespace sluice::kernels {

// The constants of one layer, over one rank's heads.
struct StateMixer {
  enum class Kind : uint8_t {
    // Columns [b; c; u], of `channels` each. y = c * conv(b * u), no
    // activation. LFM2's.
    kShortConvolution,
    // Columns [q; k; v; z; b; a]: keys, keys, values, values, num_heads,
    // num_heads. q, k, v = silu(conv), q and k over their length per head, q
    // also / sqrt(key_dim); beta = sigmoid(b), decay = e^(rate * softplus(a +
    // time_bias)); y = RmsNorm(out; norm [value_dim]) * silu(z) per head.
    // Qwen3-Next's.
    kGatedDelta,
    // Columns [z; u; B; C; dt]: values, values, keys, keys, num_heads. u, B, C
    // = silu(conv); dt = softplus(dt + time_bias) within [time_step_min,
    // time_step_max]; decay = e^(dt * rate); keys are B, queries C, values
    // dt * u; y = out + skip * u per head, then the gate silu(z) and the norm
    // over norm_groups runs of columns.
    kMamba2,
  };
  Kind kind = Kind::kShortConvolution;
  StateShape shape;
  float norm_eps = 0;
  // kMamba2: no norm if 0.
  int64_t norm_groups = 0;
  bool norm_before_gate = false;
  float time_step_min = 0;
  float time_step_max = 0;  // 0: no limit
  // kMamba2: what the parts of the columns are multiplied by first.
  std::array<float, 5> scales = {1, 1, 1, 1, 1};

  int64_t in_columns() const;
  int64_t out_columns() const;
  // Floats of scratch memory per token.
  int64_t scratch_columns() const;
  bool operator==(const StateMixer&) const = default;
};

// A layer's vectors; those that its kind does not have are null.
struct StateMixerVectors {
  const float* taps = nullptr;       // [taps, channels]
  const float* conv_bias = nullptr;  // [channels]; may be null
  const float* rate = nullptr;       // [num_heads], below 0: -e^A_log
  const float* time_bias = nullptr;  // [num_heads]
  const float* skip = nullptr;       // [num_heads]
  const float* norm = nullptr;
};

// y [T, out_columns] of x [T, in_columns]; scratch [T, scratch_columns]. Reads
// the state before the runs, writes the one of their tokens. Roots and
// divisions are IEEE's, exponentials Exp; softplus is rounded once from double.
void MixState(const Context& context, const StateMixer& mixer,
              const StateMixerVectors& vectors, std::span<const StateRun> runs,
              const StateView& view, ConstMatrix x, Matrix scratch, Matrix y);

// ln(1 + e^x), the same bits everywhere.
float Softplus(float x);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_STATE_MIXER_H_
