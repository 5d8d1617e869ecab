#ifndef SLUICE_KERNELS_RECURRENCE_H_
#define SLUICE_KERNELS_RECURRENCE_H_

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/views.h"

// What a layer with a state beside keys and values carries from token to token:
// a causal convolution's last inputs, and the state of a linear recurrence,
//
//   S = decay * S;  S = S + key change^T;  out = S^T query
//
// per head, S [key_dim, value_dim], where change is value, or by the delta rule
// beta * (value - S^T key). A state lies in blocks, as keys and values do: a
// block has the state before its first token, and of each of its tokens the
// convolution's input and the recurrence's key, value, decay and beta. So a
// block is a function of the tokens up to its end alone. A step starts at any
// token of a block: it takes the block's state and runs the block's tokens
// before that one again, without their outputs. Nothing is updated in place: a
// step that runs again, or drafts that are dropped, leave the same bits.
//
// Every operation is rounded once, in the order of tokens and rows: the same
// bits for every instruction set, chunk and number of threads.
namespace sluice::kernels {

// The sizes of one layer's heads.
struct StateShape {
  int64_t channels = 0;   // of the convolution
  int64_t taps = 0;       // 1 to kMaxConvolutionTaps, the token's own included
  int64_t num_heads = 0;  // of the recurrence; 0: none
  int64_t num_key_heads = 0;  // divides num_heads
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  bool delta = false;

  int64_t keys() const { return num_key_heads * key_dim; }
  int64_t values() const { return num_heads * value_dim; }
  // Floats of one token of the recurrence: keys, values, a decay per head and,
  // of the delta rule, a beta per head.
  int64_t row() const {
    return keys() + values() + (delta ? 2 : 1) * num_heads;
  }
  // Floats of a block: the convolution's inputs before it [taps - 1, channels],
  // the state [num_heads, key_dim, value_dim], the tokens' inputs
  // [block_tokens, channels] and rows [block_tokens, row].
  int64_t state_begin() const { return (taps - 1) * channels; }
  int64_t inputs_begin() const {
    return state_begin() + num_heads * key_dim * value_dim;
  }
  int64_t rows_begin(int64_t block_tokens) const {
    return inputs_begin() + block_tokens * channels;
  }
  int64_t block_floats(int64_t block_tokens) const {
    return rows_begin(block_tokens) + block_tokens * row();
  }
  bool operator==(const StateShape&) const = default;
};

inline constexpr int64_t kMaxConvolutionTaps = 16;
inline constexpr int64_t kMaxKeyDim = 512;

// The states of a layer. block_tokens is at least taps - 1, and at most 64.
struct StateView {
  float* data = nullptr;
  int64_t num_blocks = 0;
  int64_t block_tokens = 0;
  StateShape shape;
};

// Rows [begin, end) of a step: consecutive tokens of one sequence, from
// `position` on. table[i] is the block of positions from i * block_tokens on.
// Consecutive entries may name one block: the last one stays in it.
struct StateRun {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t position = 0;
  const int32_t* table = nullptr;
};

// The weights of a convolution: taps [taps, channels], the last of the token's
// own input, bias [channels] or null.
struct ConvolutionWeights {
  const float* taps = nullptr;
  const float* bias = nullptr;
  bool silu = false;
};

// y[t, c] = act(bias[c] + sum over j of taps[j, c] * x[t - taps + 1 + j, c]),
// fused, by rising j, with the sequence's inputs before the run from its blocks
// and zeros before its first token. x and y [T, channels].
void Convolve(const Context& context, std::span<const StateRun> runs,
              const StateView& view, ConstMatrix x,
              const ConvolutionWeights& weights, Matrix y);

// out [T, values] = the recurrence of the rows [T, row] under queries [T,
// keys]; head h reads key and query h / (num_heads / num_key_heads). The two
// sums over key_dim are of even and of odd rows, each by rising row, fused,
// then added. Writes the state of every block that begins within a run.
void RunRecurrence(const Context& context, std::span<const StateRun> runs,
                   const StateView& view, ConstMatrix queries, ConstMatrix rows,
                   Matrix out);

// Writes inputs x and rows of the step's tokens to their blocks, after the
// functions above have read them.
void StoreState(const Context& context, std::span<const StateRun> runs,
                const StateView& view, ConstMatrix x, ConstMatrix rows);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_RECURRENCE_H_
