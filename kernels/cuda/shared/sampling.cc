#include "kernels/cuda/shared/sampling.h"

#include <cuda_device/launch.h>

#include "kernels/cuda/shared/sampling_finish.h"
#include "kernels/cuda/shared/sampling_rows.h"

namespace sluice::kernels::cuda {
namespace {

SLUICE_DEVICE float Bounded(float logit) {
  const auto most = BitCast<float>(0x7F7FFFFFu);
  if (logit > most) return most;
  return logit < -most ? -most : logit;
}

// A warp's piece of a row, or one behind the row's last.
struct WarpPiece {
  int64_t row;
  int64_t piece;
  static SLUICE_DEVICE WarpPiece Of(const Block& block, int64_t pieces) {
    const int64_t blocks = (pieces + kSampleWarps - 1) / kSampleWarps;
    return {block.index() / blocks,
            block.index() % blocks * kSampleWarps + block.warp()};
  }
};

// Logits that are edited, before they are. A warp per piece.
struct CopyLogitsKernel {
  static constexpr int kThreads = kSampleThreads;
  using Args = SampleArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto [row, piece] = WarpPiece::Of(block, a.memory.pieces());
    const SampleTask& task = a.tasks[row];
    if (!task.edits.any) return;
    float* const to = a.memory.Row(row).changed;
    const int64_t end = (piece + 1) * kLogitsPiece;
    const int64_t most = end < a.memory.vocab ? end : a.memory.vocab;
    for (int64_t i = piece * kLogitsPiece + block.lane(); i < most;
         i += kWarpLanes) {
      to[i] = task.logits[i];
    }
  }
};

// Steps 1 to 4. A block per row.
struct ChangeKernel {
  static constexpr int kThreads = kSampleThreads;
  using Args = SampleArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const SampleTask& task = a.tasks[block.index()];
    const LogitEdits& edits = task.edits;
    if (!edits.any) return;
    float* logits = a.memory.Row(block.index()).changed;
    const auto vocab = static_cast<int32_t>(a.memory.vocab);
    for (int32_t i = block.thread(); i < edits.biases.count; i += kThreads) {
      const TokenValue bias = edits.biases.data[i];
      if (bias.token < 0 || bias.token >= vocab) continue;
      float& logit = logits[bias.token];
      if (logit != -Infinity()) logit = Bounded(logit + bias.value);
    }
    block.Sync();
    if (edits.masked) Mask(block, edits, vocab, logits);
    block.Sync();
    for (int32_t i = block.thread(); i < edits.stops.count; i += kThreads) {
      const int32_t token = edits.stops.data[i];
      if (token >= 0 && token < vocab) logits[token] = -Infinity();
    }
    block.Sync();
    for (int32_t i = block.thread(); i < edits.counts.count; i += kThreads) {
      const TokenTimes times = edits.counts.data[i];
      if (times.token < 0 || times.token >= vocab) continue;
      float& logit = logits[times.token];
      if (logit != -Infinity())
        logit = Penalized(edits, logit, times.generated);
    }
  }

  // A warp excludes a range, or what is between one and the next.
  static SLUICE_DEVICE void Mask(Block& block, const LogitEdits& edits,
                                 int32_t vocab, float* logits) {
    const int32_t count = edits.mask.count;
    const int32_t runs = edits.excludes ? count : count + 1;
    for (int32_t r = block.warp(); r < runs; r += kSampleWarps) {
      int32_t begin = 0;
      int32_t end = vocab;
      if (edits.excludes) {
        begin = edits.mask.data[r].begin;
        end = edits.mask.data[r].end;
      } else {
        if (r > 0) begin = edits.mask.data[r - 1].end;
        if (r < count) end = edits.mask.data[r].begin;
      }
      end = end < vocab ? end : vocab;
      for (int32_t i = begin + block.lane(); i < end; i += kWarpLanes) {
        logits[i] = -Infinity();
      }
    }
  }

  static SLUICE_DEVICE float Penalized(const LogitEdits& edits, float logit,
                                       int32_t generated) {
    const float less = logit / edits.repetition;
    const float more = logit * edits.repetition;
    const float repeated = Bounded(logit > 0 ? less : more);
    if (generated == 0) return repeated;
    const float rarer =
        repeated - edits.frequency * static_cast<float>(generated);
    return Bounded(rarer - edits.presence);
  }
};

// The largest logit of each piece. A warp per piece.
struct ScanKernel {
  static constexpr int kThreads = kSampleThreads;
  using Args = SampleArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto [row, piece] = WarpPiece::Of(block, a.memory.pieces());
    if (piece >= a.memory.pieces()) return;
    const SampleTask& task = a.tasks[row];
    const SampleRow memory = a.memory.Row(row);
    Scan(block, task.logits, a.memory.vocab, piece, memory.raw_maxima);
    if (task.edits.any) {
      Scan(block, memory.changed, a.memory.vocab, piece, memory.maxima);
    }
  }
  static SLUICE_DEVICE void Scan(Block& block, const float* logits,
                                 int64_t vocab, int64_t piece, float* maxima) {
    const int64_t end = (piece + 1) * kLogitsPiece;
    float max = -Infinity();
    bool bad = false;
    for (int64_t i = piece * kLogitsPiece + block.lane();
         i < (end < vocab ? end : vocab); i += kWarpLanes) {
      const float logit = logits[i];
      bad = bad || !(logit < Infinity());
      max = logit > max ? logit : max;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
      const float other = block.ShuffleXor(max, mask);
      max = other > max ? other : max;
    }
    const bool any = block.Ballot(bad) != 0;
    // Which zero is the larger one depends on the lanes.
    if (block.lane() == 0) maxima[piece] = any ? NotANumber() : max + 0.0f;
  }
};

// The sums of the weights of each piece. A warp per piece.
struct WeighKernel {
  static constexpr int kThreads = kSampleThreads;
  static constexpr size_t kSharedBytes = sizeof(float) * kSampleWarps;
  using Args = SampleArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto [row, piece] = WarpPiece::Of(block, a.memory.pieces());
    const SampleTask& task = a.tasks[row];
    const SampleRow memory = a.memory.Row(row);
    const auto shared = block.Allocate<float>(kSampleWarps);
    if (task.sums_all) {
      Weigh(block, shared, DrawnOf(task, memory), a.memory.vocab, piece,
            task.scale, memory.sums);
    }
    if (task.sums_raw) {
      Weigh(block, shared, RawOf(task, memory), a.memory.vocab, piece, 1.0f,
            memory.raw_sums);
    }
  }
  static SLUICE_DEVICE void Weigh(Block& block, const Shared<float>& shared,
                                  const Logits& logits, int64_t vocab,
                                  int64_t piece, float scale, float* sums) {
    const int64_t pieces = (vocab + kLogitsPiece - 1) / kLogitsPiece;
    const float max = RowMax(block, shared, logits.maxima, pieces);
    if (piece >= pieces) return;
    const int64_t begin = piece * kLogitsPiece;
    const int64_t left = vocab - begin;
    const float sum =
        PieceSum(block, logits.values + begin,
                 left < kLogitsPiece ? left : kLogitsPiece, max, scale);
    if (block.lane() == 0) sums[piece] = sum;
  }
};

// A thread per token.
struct TakeDrawnKernel {
  static constexpr int kThreads = kSampleThreads;
  struct Args {
    const int32_t* drawn;
    int64_t count;
    int32_t* tokens;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t t = block.index() * kThreads + block.thread();
    if (t >= a.count || a.tokens[t] >= 0) return;
    a.tokens[t] = a.drawn[-1 - a.tokens[t]];
  }
};

}  // namespace

int64_t SampleBytes(int64_t rows, int64_t vocab) {
  return rows * (3 * vocab + 5 * NumPieces(vocab)) *
         static_cast<int64_t>(sizeof(float));
}

void Sample(Stream stream, const SampleTasks& tasks, int64_t vocab,
            void* memory, SampleResult* results) {
  const SampleArgs args = {
      tasks.tasks, {static_cast<float*>(memory), vocab}, results};
  const int64_t blocks =
      tasks.rows * ((NumPieces(vocab) + kSampleWarps - 1) / kSampleWarps);
  if (tasks.edits) {
    Launch<CopyLogitsKernel>(stream, blocks, 0, args);
    Launch<ChangeKernel>(stream, tasks.rows, 0, args);
  }
  Launch<ScanKernel>(stream, blocks, 0, args);
  if (tasks.sums) {
    Launch<WeighKernel>(stream, blocks, WeighKernel::kSharedBytes, args);
  }
  FinishSampling(stream, args, tasks.rows);
}

void TakeDrawn(Stream stream, const int32_t* drawn, int64_t count,
               int32_t* tokens) {
  constexpr int64_t kEach = TakeDrawnKernel::kThreads;
  Launch<TakeDrawnKernel>(stream, (count + kEach - 1) / kEach, 0,
                          {drawn, count, tokens});
}

}  // namespace sluice::kernels::cuda
