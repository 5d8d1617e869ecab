#ifndef SLUICE_COMMON_MODEL_CONFIG_RANK_PLAN_H_
#define SLUICE_COMMON_MODEL_CONFIG_RANK_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/model_config/expert_placement.h"
#include "common/model_config/model_config.h"
#include "common/model_config/weights_mode.h"
#include "common/tensor/row_shards.h"
#include "common/tensor/weight_format.h"
#include "common/weights/model_file.h"

namespace sluice {

// The most logical shards of a row-parallel product, and so the most ranks.
inline constexpr int32_t kMaxShards = 16;

// Returns the start of part `index` of `total` things cut into `parts`.
inline int64_t CutAt(int64_t total, int64_t parts, int64_t index) {
  return total * index / parts;
}

// The formats of a layer's weights whose columns are cut over ranks: cuts stand
// at whole blocks. A value; F32's by default.
struct ColumnFormats {
  const WeightFormat* o = &FormatOf(kernels::WeightType::kF32);
  const WeightFormat* down = o;
  const WeightFormat* shared_down = o;
  const WeightFormat* state = o;
};
// Returns the formats of every layer of `model` as `mode` loads it.
std::vector<ColumnFormats> ColumnFormatsOf(const ModelConfig& config,
                                           const weights::ModelFile& model,
                                           WeightsMode mode);

// The shards of a layer, by its shape and formats alone: at most kMaxShards, as
// even as possible. Shards of o_proj end at whole query heads and whole blocks,
// so at multiples of `unit` heads. down_proj has equally many, which end at
// multiples of the format's cut unit; some may be empty.
struct HeadShards {
  HeadShards(const AttentionConfig& attention, const WeightFormat& o);
  int64_t heads = 0;
  int64_t unit = 1;   // in heads
  int32_t count = 0;  // number of shards
  int64_t HeadAt(int64_t shard) const;
};
// Returns a number of columns of which, in a layer of FP8, the ends of all
// shards of a dimension (Q, o, F or S of tensor_table.h) are multiples, whether
// its attention output is in FP8 or not.
int64_t ShardUnitOf(const LayerConfig& layer, char letter);
// Returns the most ranks that every layer can be cut into. `formats` is per
// layer; empty: all F32.
int32_t MostRanks(const ModelConfig& config,
                  std::span<const ColumnFormats> formats = {});
// Returns a layer's kv heads over all ranks; each rank that reads a head holds
// it.
int64_t KvHeadsOnRanks(const LayerConfig& layer, const ColumnFormats& formats,
                       int32_t ranks);

// A tensor-parallel rank's share of a layer: rank r of R owns shards [floor(r S
// / R), floor((r + 1) S / R)) of S.
struct LayerShare {
  // Query heads [head_begin, head_end): rows of q, columns of o_proj.
  int64_t head_begin = 0;
  int64_t head_end = 0;
  // The kv heads of these query heads; several ranks may hold the same one.
  int64_t kv_head_begin = 0;
  int64_t kv_head_end = 0;
  std::vector<int32_t> kv_heads;  // per own query head, from kv_head_begin
  RowShards attention;            // of o_proj
  // Of the state's output projection, in whole units (StateConfig::unit); some
  // ranks may have none. `mixer`: over the rank's heads.
  RowShards state;
  kernels::StateMixer mixer;
  RowShards mlp;  // of down_proj; its columns are rows of gate and up
  // The shared expert's; no columns without a shared expert.
  RowShards shared_mlp;
  int32_t num_experts = 0;  // of the layer, local and remote
  // Runs of experts that the rank holds, rising; maybe none. Experts are never
  // split: of the E local experts, by rising id, the rank owns those in
  // [floor(r E / R), floor((r + 1) E / R)).
  std::vector<ExpertRange> experts;

  int64_t num_heads() const { return head_end - head_begin; }
  int64_t num_kv_heads() const { return kv_head_end - kv_head_begin; }
};

// A rank's share of a model.
struct RankPlan {
  int32_t rank = 0;
  int32_t ranks = 1;
  std::vector<LayerShare> layers;  // per layer of the model
  // Rows of the output head.
  int64_t vocab_begin = 0;
  int64_t vocab_end = 0;
  int64_t num_vocab() const { return vocab_end - vocab_begin; }
};

// Rows or columns [begin, end) of a tensor.
struct OwnRange {
  int64_t begin = 0;
  int64_t end = 0;
};
// Returns the rank's range of a dimension by its letter (tensor_table.h): Q, K,
// N, F, S, C, J, Z, T, a, o of `layer`, or V.
OwnRange OwnRangeOf(const RankPlan& plan, const ModelConfig& config,
                    int32_t layer, char letter);

// Returns the plan of rank `rank` of `ranks`. INVALID_ARGUMENT, with limit and
// value, for a model that has no such cut. `placement` tells the remote
// experts; `formats` is per layer; empty: all F32.
StatusOr<RankPlan> PlanRank(const ModelConfig& config, int32_t ranks,
                            int32_t rank, const ExpertPlacement& placement = {},
                            std::span<const ColumnFormats> formats = {});

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_RANK_PLAN_H_
