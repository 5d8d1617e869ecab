#ifndef SLUICE_COMMON_MODEL_WEIGHT_READS_H_
#define SLUICE_COMMON_MODEL_WEIGHT_READS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/cut_weights.h"
#include "common/model_config/rank_plan.h"
#include "common/model_config/tensor_table.h"
#include "common/model_config/weights_mode.h"
#include "common/weights/model_file.h"

namespace sluice {

struct StageRange {
  int32_t first_layer = 0;
  int32_t last_layer = 0;  // exclusive
  bool is_first = false;   // embeds
  bool is_last = false;    // has the output head
};

inline int64_t Rows(const weights::Slice& slice) {
  return slice.row_end - slice.row_begin;
}
inline int64_t Cols(const weights::Slice& slice) {
  return slice.col_end - slice.col_begin;
}

// Rows or columns of one matrix, and their computed type.
struct WeightPiece {
  std::string from;
  weights::Slice slice;
  kernels::WeightType type = kernels::WeightType::kF32;
};

// One weight or vector of a rank: its pieces one after another.
struct WeightRead {
  int32_t layer = -1;  // of the model; -1: outside of layers
  WeightPlace place = WeightPlace::kEmbedding;
  bool is_vector = false;
  bool is_apart = false;       // each piece is a part
  bool is_transposed = false;  // part by part
  std::vector<WeightPiece> pieces;
};

// Which rows and columns of a model's tensors make a rank's weights, as the
// family's table says, but for experts. Immutable; file and config outlive it.
class WeightReads {
 public:
  WeightReads(const weights::ModelFile& file, const ModelConfig& config,
              WeightsMode mode)
      : file_(file), config_(config), mode_(mode) {}

  // Returns what the rank has of these layers: those of a layer together.
  std::vector<WeightRead> All(const StageRange& range,
                              const RankPlan& plan) const;
  // Returns the same weight of the rank of another plan, if that has it.
  std::optional<WeightRead> SameOf(const WeightRead& read,
                                   const RankPlan& plan) const;
  uint64_t StoredBytes(const WeightPiece& piece) const;

 private:
  WeightRead ReadOf(int32_t layer, const WeightRows& weight,
                    const RankPlan& plan) const;
  void AddGroups(const TensorRow& row, int32_t layer, const RankPlan& plan,
                 WeightPiece piece, WeightRead& read,
                 std::vector<WeightPiece>& late) const;
  // The same of a weight that has a part for each head.
  WeightRead ReadHeads(int32_t layer, const WeightRows& weight,
                       const RankPlan& plan) const;
  // Returns the output head's rows, for a head that is the embedding.
  WeightRead TiedHead(const RankPlan& plan) const;

  const weights::ModelFile& file_;
  const ModelConfig& config_;
  const WeightsMode mode_;
};

// Where a piece begins in the weight that its read makes.
struct PlaceInWeight {
  size_t part;
  int64_t row;
};
// Returns the places of a read's pieces: consecutive pieces of one type are a
// part.
std::vector<PlaceInWeight> PlacesOf(const WeightRead& read);

// Returns where a matrix's rows and columns are in the matrix of `whole`; none
// where they do not stand together.
std::vector<WeightCut> CutsOf(const WeightRead& read, const WeightRead& whole);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_WEIGHT_READS_H_
