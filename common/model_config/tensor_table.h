#ifndef SLUICE_COMMON_MODEL_CONFIG_TENSOR_TABLE_H_
#define SLUICE_COMMON_MODEL_CONFIG_TENSOR_TABLE_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/model_config/model_config.h"
#include "common/model_config/weights_mode.h"
#include "common/tensor/weight_format.h"
#include "common/weights/model_file.h"

// The tensors of every family, as data: what checks, counts, cuts and loads
// them reads these rows. A family that only looks different needs a reader of
// its config (model_families.cc) and a table (tensor_table.cc).
namespace sluice {

// What checkpoints put before a layer's number.
inline constexpr std::string_view kLayerPrefix = "model.layers.";
// The same in a GGUF.
inline constexpr std::string_view kGgufLayerPrefix = "blk.";

// What a tensor becomes a part of (common/model/stage_weights.h). Matrices of
// one layer with the same place stand one below the other in one weight,
// vectors one behind the other, in the order of the table.
// clang-format off
enum class WeightPlace : uint8_t {
  kEmbedding, kFinalNorm, kHead,
  kAttentionNorm, kQkv, kQkvBias, kO, kOBias, kQNorm, kKNorm, kSinks,
  kPostAttentionNorm, kMlpNorm, kGateUp, kDown, kPostMlpNorm,
  kRouter, kRouterBias, kCorrection, kSharedGateUp, kSharedDown,
  kExpertGateUp, kExpertDown, kExpertGateUpBias, kExpertDownBias
};
// clang-format on

// What of a tensor one tensor-parallel rank holds: all, a run of rows or of
// columns (which run, its shape's letter says: rank_plan.h), whole experts.
enum class RankCut : uint8_t { kNone, kRows, kColumns, kExperts };

// How a tensor is stored, and computed with. Vectors always become F32.
enum class StoredAs : uint8_t {
  kWeight,  // any readable type; computed with as WeightsMode says
  kF32,     // any readable type; becomes F32
  kMxfp4,   // U8: NAME_blocks has groups' codes, NAME_scales their scales
};

// One kind of tensor. Its shape is written slowest dimension first, "2F H":
// V vocabulary, H hidden, Q and K columns of q and of k (heads times head_dim),
// N heads, D head_dim, F, X and S intermediate sizes of a dense MLP, of an
// expert and of the shared expert, E experts; "2F" is twice F, "H/32" a part
// of H. A tensor with an empty dimension is not there.
struct TensorRow {
  std::string_view name;  // within its layer; {}: an expert's number
  std::string_view gguf;  // the same of a GGUF's tensor; empty: it has none
  std::string_view shape;
  RankCut cut;
  WeightPlace place;
  // Only in layers whose config says so; null: in all.
  bool (*only)(const LayerConfig& layer) = nullptr;
  StoredAs stored = StoredAs::kWeight;

  bool is_vector() const { return shape.find(' ') == std::string_view::npos; }
  bool is_f32() const { return is_vector() || stored == StoredAs::kF32; }
  bool per_expert() const { return name.find('{') != std::string_view::npos; }
};

// What a family's layers have, in groups of rows that families share.
struct TensorTable {
  using Groups = std::array<std::span<const TensorRow>, 3>;
  Groups layers;   // of every layer
  Groups dense;    // of a dense one besides
  Groups sparse;   // of a sparse one besides its experts
  Groups experts;  // besides what ExpertStorage says
};
extern const TensorTable kLlamaTensors, kQwen3MoeTensors, kGlm4Tensors,
    kGlm4MoeTensors, kGptOssTensors;

// How a checkpoint keeps the experts of its sparse layers.
enum class ExpertStorage {
  kSeparate,    // a matrix is a tensor
  kApart,       // [E, X, H] of gate and of up, [E, H, X]: a GGUF's
  kStacked,     // [E, 2X, H] and [E, H, X]
  kTransposed,  // [E, H, 2X] and [E, X, H]
  kMxfp4,       // rows as in kStacked, in MXFP4
};
const char* ToString(ExpertStorage storage);
// What the tensors' names say; kSeparate for a dense model.
ExpertStorage ExpertStorageOf(const ModelConfig& config,
                              const weights::ModelFile& model);

// The rows that make one weight or one vector; of the static tables.
struct WeightRows {
  WeightPlace place;
  std::vector<const TensorRow*> rows;
  const TensorRow& first() const { return *rows.front(); }
};
// What `layer` has; -1: what stands outside of layers. A tied head is not
// there.
std::vector<WeightRows> WeightsOf(const ModelConfig& config, int32_t layer,
                                  ExpertStorage storage);

// A dimension, of which `letter` (0: none) stands in it `times` times.
struct Dimension {
  int64_t size = 0;
  int64_t times = 1;
  char letter = 0;
};
std::vector<Dimension> DimensionsOf(const TensorRow& row,
                                    const ModelConfig& config, int32_t layer);

// What the rows of a weight are computed with, by its tensors: F32 where the
// table says so, else what `mode` makes of the types in which `model` has them.
// An expert's gate and up that differ become F32.
std::vector<kernels::WeightType> TypesOf(const WeightRows& weight,
                                         int32_t layer,
                                         const weights::ModelFile& model,
                                         WeightsMode mode, int32_t expert = 0);
// Of all matrices of the model that the table does not keep in F32.
WeightFormatSet FormatsOf(const ModelConfig& config,
                          const weights::ModelFile& model, WeightsMode mode);

// The model's name of it, "model.layers.3.mlp.experts.7.down_proj.weight".
std::string NameOf(const TensorRow& row, int32_t layer, int32_t expert = 0);

// The row of the family's table, and the layer, of a GGUF's tensor; a null row
// for one that the table does not have.
struct GgufTensorPlace {
  const TensorRow* row = nullptr;
  int32_t layer = -1;
};
GgufTensorPlace PlaceOfGguf(const TensorTable& table, std::string_view name);

// The tensors that store it.
weights::StoredMatrix SourceOf(const TensorRow& row, int32_t layer,
                               int32_t expert = 0);

// A tensor's layer and, in `rest`, what follows its number and dot: 3 and
// "mlp.gate.weight" of "model.layers.3.mlp.gate.weight". -1 for other tensors.
int32_t LayerOfTensor(std::string_view name, std::string_view& rest);

// Every tensor that the model needs, with its shape, layer by layer, behind
// those outside of layers. The dtype is U8 for MXFP4's codes and scales and is
// left F32 for the others.
std::vector<weights::TensorInfo> ExpectedTensors(const ModelConfig& config,
                                                 ExpertStorage storage);

// Whether `model` has these tensors in these shapes and types that we read,
// and no tensor of a layer beyond them (layers left aside excepted).
// INVALID_ARGUMENT names the tensor and both shapes.
Status CheckTensors(const ModelConfig& config, const weights::ModelFile& model);

// Parameters of the whole model, without layers left aside; tied embeddings
// count once. Active: those that one token meets.
uint64_t ParameterCount(const ModelConfig& config);
uint64_t ActiveParameterCount(const ModelConfig& config);
uint64_t LayerParameters(const ModelConfig& config, int32_t layer);

// Bytes as stored in the model's files.
struct ModelBytes {
  uint64_t embedding = 0;
  std::vector<uint64_t> layers;   // experts included
  std::vector<uint64_t> experts;  // of each layer; 0 in dense ones
  uint64_t head = 0;  // final norm and lm_head; a tied head is not counted
  uint64_t left_aside = 0;  // in layers behind the last; not in total()
  uint64_t total() const;
};
// Requires CheckTensors to have passed.
ModelBytes StoredBytes(const ModelConfig& config,
                       const weights::ModelFile& model);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_TENSOR_TABLE_H_
