#ifndef SLUICE_COMMON_MODEL_STAGE_WEIGHTS_H_
#define SLUICE_COMMON_MODEL_STAGE_WEIGHTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/device/backend.h"
#include "common/model/expert_weights.h"
#include "common/model/packed_weights.h"
#include "common/model/read_ahead.h"
#include "common/model/weight_reads.h"
#include "common/model_config/rank_plan.h"
#include "common/model_config/tensor_table.h"
#include "common/model_config/weights_mode.h"
#include "common/tensor/host_weight.h"
#include "common/weights/model_file.h"

namespace sluice {

// A norm or a bias; the model may have none.
using DeviceVector = DeviceMemory;

// A gated MLP, cut over the ranks.
struct MlpWeights {
  // [2F, H]: gate rows, up rows; without a gate [F, H].
  std::unique_ptr<Weight> gate_up;
  DeviceVector gate_up_bias;     // as many as gate_up's rows
  std::unique_ptr<Weight> down;  // [H, F]: this rank's columns
  kernels::XIelu xielu;          // of an MLP with this activation
  DeviceVector down_bias;        // [H], times the layer's residual_scale
};

// The experts of a sparse layer.
struct MoeWeights {
  std::unique_ptr<Weight> router;  // [E, H] F32
  DeviceVector router_norm;        // [H] or none, over sqrt(H)
  DeviceVector router_bias;        // [E] or none
  DeviceVector correction;         // [E] or none
  DeviceVector expert_scale;       // [E] or none
  // Norms of the shared expert's output, of the experts' rows, and of their
  // sum.
  DeviceVector shared_post_norm;        // [H] or none
  DeviceVector expert_norm;             // [H] or none
  DeviceVector expert_post_norm;        // [H] or none
  std::unique_ptr<Weight> shared_gate;  // [1, H] F32 or null
  MlpWeights shared;                    // null without a shared expert
  std::vector<ExpertWeights> experts;   // runs of this rank, rising
};

// A mixer with a state (kernels/state_mixer.h), over this rank's heads.
struct StateWeights {
  std::unique_ptr<Weight> in;   // [in_columns, H]
  std::unique_ptr<Weight> out;  // [H, out_columns]
  DeviceVector taps;            // [taps, channels]
  DeviceVector conv_bias;       // [channels] or none
  DeviceVector rate;            // [heads], of a state's decay
  DeviceVector time_bias;       // [heads]
  DeviceVector skip;            // [heads]
  DeviceVector norm;
};

// Latent attention. Of both weights of heads each part is a head of this rank.
struct LatentWeights {
  DeviceVector q_norm;  // [l], or none
  // [N (p + r), l], and the indexer's [h d, l]; or null.
  std::unique_ptr<Weight> q_heads;
  DeviceVector norm;               // [c]
  std::unique_ptr<Weight> keys;    // [N c, p]
  std::unique_ptr<Weight> values;  // [N w, c]
  DeviceVector index_norm;         // [d] of an indexer, or none
  DeviceVector index_norm_bias;    // [d]
};

// One decoder layer of one rank. Vectors that a model does not have are null.
struct LayerWeights {
  DeviceVector attention_norm;       // [H]
  DeviceVector attention_norm_bias;  // [H]
  // [(N + 2K) D, H]: q rows, k rows, v rows; null: no attention. With a gate
  // of attention its N D rows behind. Of latent attention the rows of q's
  // latent row [l], or of q, those of the cache's row [r + c], and those of an
  // indexer's key [d] and weights [h].
  std::unique_ptr<Weight> qkv;
  LatentWeights latent;
  DeviceVector qkv_bias;             // [(N + 2K) D]
  DeviceVector q_norm;               // [D], or of all heads: this rank's [N D]
  DeviceVector k_norm;               // [D], or [K D]
  DeviceVector sinks;                // [N]
  std::unique_ptr<Weight> o;         // [H, N D]: this rank's columns
  DeviceVector o_bias;               // [H], times the layer's residual_scale
  DeviceVector post_attention_norm;  // [H]
  StateWeights state;                // null without a state
  DeviceVector mlp_norm;             // [H]
  DeviceVector mlp_norm_bias;        // [H]
  MlpWeights mlp;                    // of a dense layer
  MoeWeights moe;                    // of a sparse layer
  DeviceVector post_mlp_norm;        // [H]
  DeviceVector v_norm;               // [D] of ones, or none
  // Of the layer's own input; null without.
  std::unique_ptr<Weight> input_gate;        // [P, H]
  std::unique_ptr<Weight> input_projection;  // [H, P]
  DeviceVector input_norm;                   // [H]
  float output_scale = 1;                    // of the residual behind the layer
  bool is_sparse() const { return moe.router != nullptr; }
};

// The weights of one rank of a stage.
struct RankWeights {
  std::unique_ptr<Weight> embedding;  // [V, H]: first stage, rank 0
  // Of the layers' own inputs: first stage; null without.
  std::unique_ptr<Weight> per_layer_embedding;   // [V, L P]: rank 0
  std::unique_ptr<Weight> per_layer_projection;  // [L P, H]
  DeviceVector per_layer_norm;                   // [P]
  std::vector<LayerWeights> layers;
  DeviceVector final_norm;       // [H]: last stage
  DeviceVector final_norm_bias;  // [H]: last stage
  // Last stage: the rank's rows of the output head are the first rows of
  // head(). On a rank with the whole embedding a tied head is the embedding.
  std::unique_ptr<Weight> own_head;
  size_t bytes = 0;  // of device memory in matrices
  const Weight* head() const {
    return own_head != nullptr ? own_head.get() : embedding.get();
  }
};

// Called with bytes read so far and total bytes.
using LoadProgress = std::function<void(uint64_t done, uint64_t total)>;

// Reads the ranks' parts of a stage's layers alone, and packs them for their
// backends, or maps what `packed` keeps of them. The family's table names the
// tensors (common/model_config/tensor_table.h); matrices become what `mode`
// says, vectors and routers F32. Needs CheckTensors(config, file) to have
// passed; file, config and `packed` must outlive the loader. Used by one
// thread.
class WeightLoader {
 public:
  WeightLoader(const weights::ModelFile& file, const ModelConfig& config,
               WeightsMode mode, PackedWeights* packed)
      : file_(file),
        config_(config),
        reads_(file, config, mode),
        packed_(*packed),
        expert_loader_(file, config, mode, packed) {}

  // Adds the rank's share to the bytes that progress counts against.
  void Announce(const StageRange& range, const RankPlan& plan);
  // Returns the bytes of the rank's matrices and vectors once they are loaded.
  uint64_t LoadedBytes(const StageRange& range, const RankPlan& plan) const;
  // Returns the weights of these ranks, each with its backend, layer by layer.
  // `whole`: the plan of a rank that has all they have, whose packed weights
  // they copy their parts out of; absent: each packs its own.
  StatusOr<std::vector<RankWeights>> Load(const StageRange& range,
                                          std::span<const RankPlan> plans,
                                          std::span<Backend* const> backends,
                                          const std::optional<RankPlan>& whole,
                                          const LoadProgress& progress);

 private:
  // Some rows of a piece: rows of a weight's part from row `at` on.
  struct Chunk {
    const WeightPiece* piece;
    weights::Slice slice;
    size_t part;
    int64_t at;
  };
  // A weight that is read in chunks.
  struct Reading {
    // Consecutive pieces of one type; without memory until it is allocated.
    std::vector<HostWeight> parts;
    std::vector<Chunk> chunks;
    uint64_t bytes = 0;         // of all parts
    uint64_t stored_bytes = 0;  // of all pieces
    // `pool` may be null.
    void Allocate(BufferPool* pool);
  };
  // `read` must outlive the result.
  Reading ReadingOf(const WeightRead& read) const;
  // Any thread may call it.
  Status ReadChunk(const Chunk& chunk, Reading& to) const;
  // Copies the weights out of packed ones of the whole layer; none where that
  // is not possible.
  StatusOr<PackedWeights::Weights> LoadCuts(
      std::span<const WeightRead* const> reads, Backend& backend);
  // Reads and packs matrices, one after another.
  StatusOr<PackedWeights::Weights> Pack(
      std::span<const WeightRead* const> reads, Backend& backend,
      const LoadProgress& progress);
  // A rank that is loaded.
  struct Rank {
    const RankPlan& plan;
    Backend& backend;
    std::vector<WeightRead> reads;
    size_t next = 0;  // in `reads`
    RankWeights loaded;
  };
  // The reads of one layer, or one read outside of layers.
  struct Group {
    std::span<const WeightRead> reads;
    RankWeights* to;
    LayerWeights* layer;
  };
  // Loads a rank's next group.
  Status LoadNext(const StageRange& range, Rank& rank,
                  const LoadProgress& progress);
  // Makes of a stored vector the computed one: 1 + w of norms, scaled biases.
  void Change(const WeightRead& read, HostWeight& vector) const;
  Status LoadVectors(const Group& group, Backend& backend,
                     const LoadProgress& progress);
  Status LoadMatrices(const Group& group, Backend& backend,
                      const LoadProgress& progress);
  // Returns the experts of the whole layer that stand together with `run`.
  std::optional<ExpertRange> WholeRun(int32_t layer,
                                      const ExpertRange& run) const;
  Status LoadExperts(int32_t layer, Rank& rank, MoeWeights& moe,
                     const LoadProgress& progress);

  const weights::ModelFile& file_;
  const ModelConfig& config_;
  const WeightReads reads_;
  PackedWeights& packed_;
  ExpertLoader expert_loader_;
  // Of matrices that are packed into other memory.
  const std::shared_ptr<BufferPool> pool_ = BufferPool::Make(kReadAheadBytes);
  const RankPlan* whole_ = nullptr;  // of Load, while it runs; null: none
  uint64_t total_bytes_ = 0;
  uint64_t done_bytes_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_STAGE_WEIGHTS_H_
