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

// The tensors of every family, as data. Checks, counts, cuts and the loader
// read these rows. A family that only looks different needs a reader of its
// config (model_families.cc) and a table (tensor_table.cc).
namespace sluice {

// The prefix of a layer's number in checkpoints.
inline constexpr std::string_view kLayerPrefix = "model.layers.";
// The prefix of a layer's number in a GGUF.
inline constexpr std::string_view kGgufLayerPrefix = "blk.";

// The part of the model that a tensor becomes (common/model/stage_weights.h).
// Matrices of one layer and place are stacked in one weight, vectors are
// joined, in the table's order.
// clang-format off
enum class WeightPlace : uint8_t {
  kEmbedding, kPerLayerEmbedding, kPerLayerProjection, kPerLayerNorm, kFinalNorm, kFinalNormBias, kHead,
  kAttentionNorm, kAttentionNormBias, kQkv, kQkvBias, kO, kOBias,
  kQNorm, kKNorm, kSinks, kPostAttentionNorm,
  kMlpNorm, kMlpNormBias, kGateUp, kGateUpBias, kDown, kDownBias,
  kPostMlpNorm, kInputGate, kInputProjection, kInputNorm, kOutputScale,
  kXIeluPositive, kXIeluNegative, kXIeluBeta, kXIeluEps,
  kRouterNorm, kRouter, kRouterBias, kCorrection, kExpertScale,
  kSharedGate, kSharedGateUp, kSharedDown, kSharedPostNorm,
  kExpertNorm, kExpertPostNorm,
  kStateIn, kStateOut, kStateTaps, kStateBias, kStateLogRate, kStateRate,
  kStateTimeBias, kStateSkip, kStateNorm,
  kExpertGateUp, kExpertDown, kExpertGateUpBias, kExpertDownBias,
  kQueryLatentNorm, kQueryHeads, kLatentNorm, kHeadKeys, kHeadValues,
  kIndexNorm, kIndexNormBias
};
// clang-format on

// Whether the place is of the weights of a norm.
bool IsNormWeight(WeightPlace place);

// The part of a tensor that one tensor-parallel rank holds: all, a run of rows
// or columns by the shape's letter (rank_plan.h), or whole experts. Rows of
// kGroups stand group by group, a group with its part of each of the shape's
// runs: of Q a head's, of others those of a state's key head. They are computed
// run by run.
enum class RankCut : uint8_t { kNone, kRows, kColumns, kExperts, kGroups };

// A tensor's stored and computed types. Vectors always become F32.
enum class StoredAs : uint8_t {
  kWeight,       // any readable type; WeightsMode chooses the computed one
  kF32,          // any readable type; becomes F32
  kTaps,         // as kF32: a vector of columns, one behind the other
  kLayerNumber,  // one number; a GGUF's key `gguf` lists those of all layers
};

// The rows that a weight takes of a tensor, and their order.
enum class RowsTaken : uint8_t {
  kAll,
  kLastRunFirst,  // all, the last run of the first dimension first
  kHeadKeys,      // of every head the first p rows, transposed
  kHeadValues,    // of every head the last w rows, where another row takes p
};

// One kind of tensor. Its shape is written slowest dimension first, "2F H": V
// vocabulary, H hidden, Q and K columns of q and k (heads times head_dim), N
// heads, D head_dim, F, X and S intermediate sizes of a dense MLP, an expert
// and the shared expert, E experts, P elements of a layer's own input, W these
// of all layers, U 1; "2F" is twice F, "Q+2K" the rows of q, of k and of v. Of
// a state C channels of a short convolution, L its taps, J columns of keys, Z
// of values, T heads, M columns of a head's value. Of latent attention: l and c
// the ranks of q's latent row and of the keys' and values', r and p a head's
// dimensions with and without RoPE, w those of its values, and of all heads a =
// N (p + r), b = N (p + w) and o = N w; of its indexer h heads, d their
// dimension, e = h d. A vector has one dimension, or a first one of "1". A
// tensor with an empty dimension is absent.
struct TensorRow {
  std::string_view name;  // within its layer; {}: an expert's number
  std::string_view gguf;  // the GGUF tensor's name; empty: a GGUF has none
  std::string_view shape;
  RankCut cut;
  WeightPlace place;
  // Tells which layers have the tensor; null: all.
  bool (*only)(const LayerConfig& layer) = nullptr;
  StoredAs stored = StoredAs::kWeight;
  bool again = false;  // another row's tensor, once more
  RowsTaken taken = RowsTaken::kAll;

  bool is_vector() const {
    return shape.starts_with("1 ") || stored == StoredAs::kTaps ||
           shape.find(' ') == std::string_view::npos;
  }
  bool is_f32() const { return is_vector() || stored == StoredAs::kF32; }
  bool per_expert() const { return name.find('{') != std::string_view::npos; }
};

// The layers of a family, in groups of rows that families share.
struct TensorTable {
  using Groups = std::array<std::span<const TensorRow>, 5>;
  Groups layers;   // of every layer
  Groups dense;    // of a dense layer, too
  Groups sparse;   // of a sparse layer, too, without its experts
  Groups experts;  // of a sparse layer, beside the rows of its ExpertStorage
  Groups apart{};  // in the place of `experts` where these are kApart
  // Experts' matrices of kSeparate and of kStacked; empty: the usual names.
  std::span<const TensorRow> separate{};
  std::span<const TensorRow> stacked{};
  // Outside of layers; empty: the usual names.
  std::span<const TensorRow> top{};
  // Experts' matrices of kApart; empty: the usual names.
  std::span<const TensorRow> stacks{};
};
extern const TensorTable kLlamaTensors, kSeedOssTensors, kPhi3Tensors,
    kGlm4Tensors, kCohere2Tensors, kStarcoder2Tensors, kPostNormTensors,
    kGemmaTensors, kGemma4Tensors, kHunyuanTensors, kApertusTensors,
    kUngatedTensors, kQwen3MoeTensors, kQwen2MoeTensors, kMixtralTensors,
    kGraniteMoeTensors, kErnieMoeTensors, kHunyuanMoeTensors, kDots1Tensors,
    kGlm4MoeTensors, kGptOssTensors, kLfm2Tensors, kQwen3NextTensors,
    kQwen35Tensors, kGraniteHybridTensors, kNemotronHTensors, kFalconH1Tensors,
    kDeepseekTensors;

// How a checkpoint stores the experts of its sparse layers.
enum class ExpertStorage {
  kSeparate,    // each matrix is a tensor
  kApart,       // [E, X, H] of gate and of up, [E, H, X]: in a GGUF
  kStacked,     // [E, 2X, H] and [E, H, X]
  kTransposed,  // [E, H, 2X] and [E, X, H]
};
const char* ToString(ExpertStorage storage);
// Returns the storage by the tensors' names; kSeparate for a dense model.
ExpertStorage ExpertStorageOf(const ModelConfig& config,
                              const weights::ModelFile& model);

// Whether a weight outside the layers is on the first stage; else on the last.
constexpr bool IsOfFirstStage(WeightPlace place) {
  return place >= WeightPlace::kEmbedding &&
         place <= WeightPlace::kPerLayerNorm;
}
// Whether a weight's rows are the tokens', which rank 0 alone reads.
constexpr bool IsEmbedding(WeightPlace place) {
  return place == WeightPlace::kEmbedding ||
         place == WeightPlace::kPerLayerEmbedding;
}

// The rows of the static tables that make one weight or vector.
struct WeightRows {
  WeightPlace place;
  std::vector<const TensorRow*> rows;
  // Of a weight that is cut by columns: ShardUnitOf (rank_plan.h).
  int64_t shard_unit = 0;
  const TensorRow& first() const { return *rows.front(); }
};
// Returns the weights of `layer` (-1: outside the layers), without a tied head.
std::vector<WeightRows> WeightsOf(const ModelConfig& config, int32_t layer,
                                  ExpertStorage storage);

// A dimension, with the runs that letters (0: a number) stand for: one of F,
// two of "2F", three of "Q+2K".
struct Dimension {
  struct Run {
    char letter = 0;
    int64_t size = 0;
  };
  int64_t size = 0;
  std::vector<Run> runs;
  char letter() const { return runs.size() == 1 ? runs[0].letter : 0; }
};
std::vector<Dimension> DimensionsOf(const TensorRow& row,
                                    const ModelConfig& config, int32_t layer);
// Returns the row's part of `amount` of its tensor, in elements or bytes.
uint64_t TakenOf(const TensorRow& row, const LayerConfig& layer,
                 uint64_t amount);

// What the rows of a weight are computed with, by its tensors: F32 where the
// table says so, else what `mode` makes of the types in which `model` has them.
// An expert's gate and up that differ become F32. FP8 has runs of 128 columns
// where the shards of runs of 32 end at whole ones, too: long runs change no
// cut, and so no sum.
std::vector<kernels::WeightType> TypesOf(const WeightRows& weight,
                                         int32_t layer,
                                         const weights::ModelFile& model,
                                         WeightsMode mode, int32_t expert = 0);
// Of all matrices of the model that the table does not keep in F32.
WeightFormatSet FormatsOf(const ModelConfig& config,
                          const weights::ModelFile& model, WeightsMode mode);

// What keys and values are kept in beside matrices of `formats`, which are the
// whole model's: `choice`; of auto BF16 beside quantised ones, else F32.
kernels::WeightType KvTypeOf(KvChoice choice, const WeightFormatSet& formats);
kernels::WeightType KvTypeOf(KvChoice choice, const ModelConfig& config,
                             const weights::ModelFile& model, WeightsMode mode);

// Returns the tensor's name, "model.layers.3.mlp.experts.7.down_proj.weight".
std::string NameOf(const TensorRow& row, int32_t layer, int32_t expert = 0);

// The row of the family's table and the layer of a GGUF's tensor; a null row
// for an unknown tensor.
struct GgufTensorPlace {
  const TensorRow* row = nullptr;
  int32_t layer = -1;
};
GgufTensorPlace PlaceOfGguf(const TensorTable& table, std::string_view name);

// Returns a tensor's layer, and in `rest` the text behind its number and dot: 3
// and "mlp.gate.weight" of "model.layers.3.mlp.gate.weight". -1 for other
// tensors.
int32_t LayerOfTensor(std::string_view name, std::string_view& rest);

// Returns every tensor that the model needs, with its shape: first those
// outside the layers, then layer by layer. The dtype is left F32.
std::vector<weights::TensorInfo> ExpectedTensors(const ModelConfig& config,
                                                 ExpertStorage storage);

// Checks that `model` has these tensors, in these shapes and readable types,
// and no others in its layers that a step might have to read: layers behind the
// last, tables of old checkpoints, scales of activations and of KV caches, and
// biases of zeros are left aside. INVALID_ARGUMENT names tensor and shapes.
Status CheckTensors(const ModelConfig& config, const weights::ModelFile& model);

// Returns the parameters of the whole model, without layers behind the last;
// tied embeddings count once. Active: those that one token uses.
uint64_t ParameterCount(const ModelConfig& config);
uint64_t ActiveParameterCount(const ModelConfig& config);
uint64_t LayerParameters(const ModelConfig& config, int32_t layer);

// Bytes as the model's files store them.
struct ModelBytes {
  uint64_t embedding = 0;
  std::vector<uint64_t> layers;   // experts included
  std::vector<uint64_t> experts;  // per layer; 0 in dense ones
  uint64_t head = 0;              // final norm and lm_head, without a tied head
  uint64_t left_aside = 0;        // in layers behind the last; not in total()
  uint64_t total() const;
};
// Returns the stored bytes. `model` must pass CheckTensors.
ModelBytes StoredBytes(const ModelConfig& config,
                       const weights::ModelFile& model);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_TENSOR_TABLE_H_
