#ifndef SLUICE_KERNELS_CUDA_SHARED_ATTENTION_PARTIALS_H_
#define SLUICE_KERNELS_CUDA_SHARED_ATTENTION_PARTIALS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/shared/attention_memory.h"
#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {

// What both numerics of attention share: where the partials of chunks stand,
// and their joins in the tree.

inline constexpr int kAttentionThreads = 128;
inline constexpr int kMostLevels = 24;

struct AttentionArgs {
  AttentionQueries queries;
  KvView kv;
  AttentionMemory memory;
  Matrix out;
};

// What a token sees.
struct Visible {
  int64_t first;
  int64_t last;
};
SLUICE_DEVICE Visible VisibleOf(const AttentionArgs& a, int64_t token) {
  const int64_t last = a.queries.positions[token];
  const int64_t first = last - a.queries.window + 1;
  return {a.queries.window > 0 && first > 0 ? first : 0, last};
}

// Where a chunk's partial stands: maximum, sum, accumulator.
SLUICE_DEVICE float* PartialOf(const AttentionArgs& a, int64_t token_head,
                               int64_t chunk) {
  return a.memory.floats +
         (token_head * a.memory.max_chunks + chunk) * (a.kv.head_dim + 2);
}

// A partial's maximum, sum and one element of its accumulator.
struct Partial {
  float max;
  float sum;
  float element;
};
SLUICE_DEVICE Partial Joined(const Partial& a, const Partial& b) {
  const float max = a.max < b.max ? b.max : a.max;
  const float ea = Exp(a.max - max);
  const float eb = Exp(b.max - max);
  return {max, Fma(b.sum, eb, a.sum * ea), Fma(b.element, eb, a.element * ea)};
}

// A block per token and head, a thread per element: each walks the tree over
// the chunks by itself.
struct JoinKernel {
  static constexpr int kThreads = kAttentionThreads;
  static constexpr bool kWaitsItself = true;
  using Args = AttentionArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto index = static_cast<uint32_t>(block.index());
    const auto heads = static_cast<uint32_t>(a.queries.num_heads);
    const int64_t token = index / heads;
    const int64_t head = index % heads;
    const Visible visible = VisibleOf(a, token);  // there since the step began
    block.WaitForInputs();
    float* out = a.out.data + token * a.out.stride + head * a.kv.head_dim;
    for (int64_t d = block.thread(); d < a.kv.head_dim; d += kThreads) {
      Partial all = Root(a, block.index(), visible, d);
      if (a.queries.sinks != nullptr) {
        all = Joined(all, {a.queries.sinks[head], 1.0f, 0.0f});
      }
      out[d] = all.element / all.sum;
    }
  }

  // Chunks whose partials are asked for at once: an aligned node of the tree.
  static constexpr int kGroup = 8;
  static constexpr int kGroupLevel = 3;

  static SLUICE_DEVICE Partial Root(const Args& a, int64_t token_head,
                                    const Visible& visible, int64_t d) {
    const auto begin = static_cast<int32_t>(visible.first / kAttentionChunk);
    const auto end = static_cast<int32_t>(visible.last / kAttentionChunk + 1);
    const auto group = [&](int32_t c) {
      return Group(PartialOf(a, token_head, c), a.kv.head_dim + 2, d,
                   {begin - c, end - c});
    };
    const int32_t last = (end - 1) / kGroup * kGroup;
    if (begin / kGroup * kGroup == last) return group(last);
    Partial levels[kMostLevels];
    uint32_t pending = 0;  // bit n: level n holds a finished node
    for (int32_t c = begin / kGroup * kGroup; c < end; c += kGroup) {
      Partial node = group(c);
      int level = kGroupLevel;
      for (; (c >> level & 1) != 0; ++level) {
        if ((pending >> level & 1) == 0) continue;  // the sibling is masked
        node = Joined(levels[level], node);
        pending &= ~(1u << level);
      }
      levels[level] = node;
      pending |= 1u << level;
    }
    // What is left, the youngest nodes first.
    int level = 0;
    while ((pending >> level & 1) == 0) ++level;
    Partial all = levels[level];
    for (++level; level < kMostLevels; ++level) {
      if ((pending >> level & 1) != 0) all = Joined(levels[level], all);
    }
    return all;
  }

  struct Range {
    int32_t begin;
    int32_t end;
    SLUICE_DEVICE bool Has(int i) const { return i >= begin && i < end; }
    SLUICE_DEVICE bool Meets(int from, int to) const {
      return from < end && to > begin;
    }
  };
  // The node over the group's chunks in `seen`, one or more. Their partials are
  // `stride` floats apart.
  static SLUICE_DEVICE Partial Group(const float* from, int64_t stride,
                                     int64_t d, const Range& seen) {
    Partial nodes[kGroup];
    SLUICE_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      const float* const at = from + i * stride;
      nodes[i] = {};
      if (seen.Has(i)) nodes[i] = {at[0], at[1], at[2 + d]};
    }
    SLUICE_UNROLL
    for (int half = 1; half < kGroup; half *= 2) {
      SLUICE_UNROLL
      for (int i = 0; i < kGroup; i += 2 * half) {
        if (!seen.Meets(i + half, i + 2 * half)) continue;
        nodes[i] = seen.Meets(i, i + half) ? Joined(nodes[i], nodes[i + half])
                                           : nodes[i + half];
      }
    }
    return nodes[0];
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_ATTENTION_PARTIALS_H_
