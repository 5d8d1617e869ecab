#include <algorithm>
#include <numeric>

#include "common/model_config/tensor_table.h"

namespace sluice {
namespace {

// What the rows of one tensor of `weight` are computed with.
kernels::WeightType TypeOf(const WeightRows& weight,
                           const weights::TensorInfo& stored,
                           WeightsMode mode) {
  const bool is_outer =
      IsEmbedding(weight.place) || weight.place == WeightPlace::kHead;
  const bool makes_blocks = mode >= WeightsMode::kQ8_0;
  const WeightsMode own = is_outer && makes_blocks ? WeightsMode::kQ8_0 : mode;
  // Experts may be stored transposed: their rows are columns there.
  int64_t of_row = stored.cols();
  if (weight.first().cut == RankCut::kExperts && stored.shape.size() > 2) {
    of_row = std::gcd(of_row, stored.shape[stored.shape.size() - 2]);
  }
  const bool fits = of_row % kernels::kShortBlock == 0;
  const auto type = ComputedType(
      makes_blocks && !fits ? WeightsMode::kAuto : own, stored.dtype);
  // Blocks of rows are none of columns.
  if (weight.first().taken == RowsTaken::kHeadKeys) {
    using kernels::WeightType;
    return type == WeightType::kBf16 ? type : WeightType::kF32;
  }
  const bool cut_within = weight.shard_unit % kernels::kE4m3WideRun != 0;
  return type == kernels::WeightType::kE4m3Wide && cut_within
             ? kernels::WeightType::kE4m3
             : type;
}

}  // namespace

std::vector<kernels::WeightType> TypesOf(const WeightRows& weight,
                                         int32_t layer,
                                         const weights::ModelFile& model,
                                         WeightsMode mode, int32_t expert) {
  std::vector<kernels::WeightType> types(weight.rows.size(),
                                         kernels::WeightType::kF32);
  if (weight.first().is_f32()) return types;
  for (size_t i = 0; i < types.size(); ++i) {
    const auto* found = model.Find(NameOf(*weight.rows[i], layer, expert));
    if (found != nullptr) types[i] = TypeOf(weight, *found, mode);
  }
  const bool differ = std::count(types.begin(), types.end(), types[0]) !=
                      static_cast<std::ptrdiff_t>(types.size());
  if (weight.first().cut == RankCut::kExperts && differ) {
    types.assign(types.size(), kernels::WeightType::kF32);
  }
  return types;
}

WeightFormatSet FormatsOf(const ModelConfig& config,
                          const weights::ModelFile& model, WeightsMode mode) {
  WeightFormatSet formats;
  const ExpertStorage storage = ExpertStorageOf(config, model);
  for (int32_t layer = -1; layer < config.num_layers(); ++layer) {
    for (const WeightRows& weight : WeightsOf(config, layer, storage)) {
      if (weight.first().is_f32()) continue;
      const int32_t copies = weight.first().per_expert()
                                 ? config.layers[layer].moe.num_experts
                                 : 1;
      for (int32_t expert = 0; expert < copies; ++expert) {
        for (const auto type : TypesOf(weight, layer, model, mode, expert)) {
          formats.Add(type);
        }
      }
    }
  }
  return formats;
}

kernels::WeightType KvTypeOf(KvChoice choice, const WeightFormatSet& formats) {
  using kernels::WeightType;
  return choice.value_or(formats.is_quantised() ? WeightType::kBf16
                                                : WeightType::kF32);
}

kernels::WeightType KvTypeOf(KvChoice choice, const ModelConfig& config,
                             const weights::ModelFile& model,
                             WeightsMode mode) {
  if (choice.has_value()) return *choice;
  return KvTypeOf(choice, FormatsOf(config, model, mode));
}

uint64_t TakenOf(const TensorRow& row, const LayerConfig& layer,
                 uint64_t amount) {
  const LatentConfig& latent = layer.attention.latent;
  const auto keys = static_cast<uint64_t>(latent.nope_dim);
  const auto values = static_cast<uint64_t>(latent.value_dim);
  if (row.taken == RowsTaken::kHeadKeys) return amount * keys / (keys + values);
  if (row.taken == RowsTaken::kHeadValues) {
    return amount - amount * keys / (keys + values);
  }
  return amount;
}

}  // namespace sluice
