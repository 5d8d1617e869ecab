#include <cuda_device/launch.h>

#include <algorithm>
#include <bit>

#include "kernels/cuda/fast/attention_common.h"
#include "kernels/cuda/fast/attention_decode.h"
#include "kernels/cuda/fast/attention_prompt.h"
#include "kernels/cuda/fast/kv_readers.h"

namespace sluice::kernels::cuda {
namespace {

// Each block has a piece of one token.
template <typename Reader, int kDim>
void StartDecode(Stream stream, const TileAttentionArgs& args) {
  using Kernel = LeafDecodeKernel<Reader, kDim>;
  const AttentionArgs& all = args.attention;
  const int64_t tokens = all.queries.q.rows;
  const int32_t pieces = all.memory.max_chunks;
  Launch<Kernel>(stream, tokens * args.cut.num_runs * pieces,
                 Kernel::kSharedBytes, args);
  // Where there is one piece, the kernel writes the output.
  if (pieces > 1) {
    Launch<JoinKernel>(stream, tokens * all.queries.num_heads, 0, all);
  }
}

// Nodes that wait are few: a prompt may be long.
template <typename Reader, int kDim>
void StartPrompt(Stream stream, TileAttentionArgs args) {
  using Kernel = LeafPromptKernel<Reader, kDim>;
  AttentionCut& cut = args.cut;
  const int32_t each =
      std::clamp(cut.tokens / kLeafWarps, 1, kPromptRows / cut.most_heads);
  cut.tokens = each * kLeafWarps;
  int32_t& chunks = args.attention.memory.max_chunks;
  chunks = WaitingLevels(chunks);
  const int64_t tiles =
      (args.attention.queries.q.rows + cut.tokens - 1) / cut.tokens;
  Launch<Kernel>(stream, tiles * cut.num_runs, Kernel::kSharedBytes, args);
}

template <typename Reader, int kDim>
void Start(Stream stream, const TileAttentionArgs& args) {
  if (args.cut.tokens > 1) return StartPrompt<Reader, kDim>(stream, args);
  StartDecode<Reader, kDim>(stream, args);
}

template <typename Reader>
void StartOfDim(Stream stream, const TileAttentionArgs& args) {
  if (args.attention.kv.head_dim == 64) return Start<Reader, 64>(stream, args);
  Start<Reader, 128>(stream, args);
}

}  // namespace

bool HasLeaves(const KvView& kv) {
  return (kv.head_dim == 64 || kv.head_dim == 128) &&
         kv.block_tokens == kStepPositions;
}

int32_t WaitingLevels(int32_t chunks) {
  return static_cast<int32_t>(
      std::bit_width(static_cast<uint32_t>(chunks - 1)));
}

void StartLeaves(Stream stream, const TileAttentionArgs& args) {
  switch (args.attention.kv.type) {
    case WeightType::kF32:
      return StartOfDim<F32KvReader>(stream, args);
    case WeightType::kBf16:
      return StartOfDim<Bf16KvReader>(stream, args);
    default:
      return StartOfDim<Q8KvReader>(stream, args);
  }
}

}  // namespace sluice::kernels::cuda
