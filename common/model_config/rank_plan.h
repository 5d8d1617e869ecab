#ifndef SLUICE_COMMON_MODEL_CONFIG_RANK_PLAN_H_
#define SLUICE_COMMON_MODEL_CONFIG_RANK_PLAN_H_

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/model_config/expert_placement.h"
#include "common/model_config/model_config.h"
#include "common/model_config/rank_heads.h"
#include "common/tensor/row_shards.h"

namespace sluice {

// What one tensor-parallel rank of a stage owns. Experts are never split: of
// the E of a layer that stay on the stage, counted by rising id, rank r of R
// owns those from floor(r E / R) up to floor((r + 1) E / R). The shards
// follow from the model's shape alone: min(16, num_heads) of them, o_proj cut
// at whole query heads, down_proj at multiples of the cut unit of its weights
// (common/tensor/weight_format.h: 32 columns), as even as can be; some may be
// empty. Rank r of R owns shards [floor(r S / R), floor((r + 1) S / R)).
struct RankPlan {
  int32_t rank = 0;
  int32_t ranks = 1;
  // Query heads [head_begin, head_end): rows of q, columns of o_proj.
  int64_t head_begin = 0;
  int64_t head_end = 0;
  // The kv heads these read; several ranks may hold the same one.
  int64_t kv_head_begin = 0;
  int64_t kv_head_end = 0;
  std::vector<int32_t> kv_heads;  // per own query head, from kv_head_begin
  RowShards attention;            // of o_proj
  RowShards mlp;  // of down_proj; its columns are rows of gate and of up
  // The same of the shared expert; no columns if there is none.
  RowShards shared_mlp;
  int32_t num_experts = 0;  // of a sparse layer, wherever they are
  // Per layer of the model: runs of experts that this rank holds, rising;
  // maybe none.
  std::vector<std::vector<ExpertRange>> experts;
  // Rows of the output head.
  int64_t vocab_begin = 0;
  int64_t vocab_end = 0;

  int64_t num_heads() const { return head_end - head_begin; }
  int64_t num_kv_heads() const { return kv_head_end - kv_head_begin; }
  int64_t num_vocab() const { return vocab_end - vocab_begin; }
};

// Rows or columns [begin, end) of a tensor.
struct OwnRange {
  int64_t begin = 0;
  int64_t end = 0;
};
// Of a tensor's dimension with this letter (tensor_table.h): Q, K, N, F, S, V.
OwnRange OwnRangeOf(const RankPlan& plan, const ModelConfig& config,
                    char letter);

// INVALID_ARGUMENT, naming limit and value, if the model cannot be cut into so
// many ranks. `placement`: the remote experts of this model.
StatusOr<RankPlan> PlanRank(const ModelConfig& config, int32_t ranks,
                            int32_t rank,
                            const ExpertPlacement& placement = {});

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_RANK_PLAN_H_
