#ifndef SLUICE_KERNELS_CPU_ATTENTION_RUNNER_H_
#define SLUICE_KERNELS_CPU_ATTENTION_RUNNER_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/ops.h"
#include "kernels/quantized_buffer.h"

namespace sluice::kernels::cpu {

// Query columns [head, head + num_heads) of tokens [token, token +
// num_tokens): one sequence, one kv head, at most kMaxQueries columns.
struct AttentionUnit {
  int64_t token = 0;
  int num_tokens = 0;
  int64_t head = 0;
  int num_heads = 0;
  // Chunks that any of its tokens sees.
  int32_t first_chunk = 0;
  int32_t end_chunk = 0;
  int num_queries() const { return num_tokens * num_heads; }
};

// Partials of the tree's levels for the queries of a unit. A thread keeps one:
// it grows to what the largest unit needed.
class AttentionScratch {
 public:
  void Reserve(int64_t head_dim);
  float* queries() { return floats_; }
  // The partials of level `level`; kChunkLevel is the chunk at hand.
  AttentionPartials at(int level);
  // Exchanges two levels' partials.
  void Swap(int a, int b) { std::swap(places_[a], places_[b]); }
  static constexpr int kChunkLevel = 24;  // levels for 2^32 positions below

  // Of Q8_0: the queries in eight bits, and what the chunk at hand needs.
  QuantizedBuffer quantized;
  std::vector<uint32_t> columns;
  std::vector<float> value_scales;

 private:
  float* scores() { return queries() + kMaxQueries * head_dim_; }
  float* packed() { return scores() + kMaxQueries * kChunk; }

  int64_t head_dim_ = 0;
  std::vector<float> memory_;
  float* floats_ = nullptr;  // in memory_, at a cache line's begin
  std::array<int, kChunkLevel + 1> places_ = {};
};

// Runs units of one PagedAttention call; lives as long as the call. Any
// thread may run any unit or piece.
class AttentionRunner {
 public:
  AttentionRunner(const Ops& ops, const AttentionQueries& queries,
                  const KvView& kv, Matrix out)
      : ops_(ops), queries_(queries), kv_(kv), out_(out) {}

  // All chunks of the unit, to the output.
  void Run(const AttentionUnit& unit, AttentionScratch& scratch) const;

  // Chunks of one aligned node of the tree, piece `piece` of 2^log2_chunks
  // chunks each, to `results`: PieceSize() floats.
  void RunPiece(const AttentionUnit& unit, int32_t piece, int log2_chunks,
                AttentionScratch& scratch, float* results) const;
  // Joins pieces [0, num_pieces) of the unit, to the output.
  void JoinPieces(const AttentionUnit& unit, int32_t num_pieces,
                  AttentionScratch& scratch, const float* results) const;
  int64_t PieceSize() const { return kMaxQueries * (kv_.value_size() + 3); }

 private:
  // Finished nodes of the tree: bit n says that level n holds one.
  using Pending = uint32_t;

  bool LanesAreQueries(int num_queries) const {
    return num_queries >= ops_.lane_queries && kv_.head_dim % 16 == 0 &&
           kv_.value_size() % 16 == 0 && kv_.type != WeightType::kQ8_0;
  }
  int64_t FloatsOf(const AttentionArgs& args) const;
  AttentionArgs ArgsOf(const AttentionUnit& unit,
                       AttentionScratch& scratch) const;
  // Of Q8_0: quantises the queries in `scratch`.
  void QuantizeQueries(int num_queries, AttentionScratch& scratch) const;
  // Of Q8_0: the scores of what any query sees of the chunk, and the scales of
  // its values.
  void ScoreChunk(const AttentionArgs& args, int32_t chunk,
                  AttentionScratch& scratch) const;
  // Runs chunks [begin, end); begin is aligned to the node's size.
  Pending RunChunks(const AttentionUnit& unit, const AttentionArgs& args,
                    int32_t begin, int32_t end,
                    AttentionScratch& scratch) const;
  void Join(const AttentionArgs& args, const AttentionPartials& left,
            const AttentionPartials& right) const;
  Pending Climb(const AttentionArgs& args, int32_t index, Pending pending,
                AttentionScratch& scratch) const;
  AttentionPartials Fold(const AttentionArgs& args, Pending pending,
                         AttentionScratch& scratch) const;
  void Emit(const AttentionUnit& unit, const AttentionPartials& all) const;

  const Ops& ops_;
  const AttentionQueries& queries_;
  const KvView& kv_;
  const Matrix out_;
};

}  // namespace sluice::kernels::cpu

#endif  // SLUICE_KERNELS_CPU_ATTENTION_RUNNER_H_
