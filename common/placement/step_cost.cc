#include "common/placement/step_cost.h"

#include <algorithm>
#include <cmath>

#include "common/model_config/tensor_table.h"
#include "common/tensor/weight_format.h"

namespace sluice::placement {
namespace {

using kernels::WeightType;

// Shares of a machine's limits that the kernels reach on CPUs where nothing
// else was measured (tests/benchmarks, block_bench).
constexpr double kReadShare = 0.85;
constexpr double kPeakShare = 0.55;
// Attention of a decode step waits for values; that of a prompt does not, but
// has too few registers without AVX-512.
constexpr double kDecodeAttentionRead = 0.4;
constexpr double kDecodeAttentionPeak = 0.15;
constexpr double kPromptAttentionPeak = 0.6;
constexpr double kNarrowAttentionPeak = 0.37;
// Elements of a head: fewer take as long.
constexpr int32_t kFullHead = 64;
// Meetings of a step's threads in a layer, and in the experts of one.
constexpr double kLayerJoins = 5;
constexpr double kExpertJoins = 4;
// Of vectors between the products, an element, over all threads; and what an
// operation takes however small it is.
constexpr double kVectorOperations = 6;
constexpr double kOperationSeconds = 1.5e-6;
constexpr double kLayerOperations = 10;
constexpr double kExpertOperations = 6;

bool IsProduct(const TensorRow& row) {
  return !row.is_vector() && !IsEmbedding(row.place);
}

double ElementsOf(const TensorRow& row, const ModelConfig& config,
                  int32_t layer) {
  double elements = 1;
  for (const Dimension& size : DimensionsOf(row, config, layer)) {
    const bool of_expert = size.letter() == 'E' && row.cut == RankCut::kExperts;
    if (!of_expert) elements *= static_cast<double>(size.size);
  }
  if (layer < 0) return elements;
  return static_cast<double>(
      TakenOf(row, config.layers[layer], static_cast<uint64_t>(elements)));
}

void AddProduct(WeightType type, double elements, std::vector<Product>& to) {
  for (Product& product : to) {
    if (product.type != type) continue;
    product.elements += elements;
    return;
  }
  to.push_back({type, elements});
}

// Rows of one weight of one expert are small, as are those of small models.
double ProductSeconds(const std::vector<Product>& products, double rows,
                      const MachineRates& rates, bool cached) {
  double seconds = 0;
  for (const Product& product : products) {
    seconds +=
        product.elements * ElementSeconds(rates, product.type, rows, cached);
  }
  return seconds;
}

double AttentionSeconds(const AttentionConfig& attention, WeightType kv_type,
                        const MachineRates& rates, const StepShape& step) {
  const auto tokens = static_cast<double>(step.tokens);
  // Positions that a token sees on average.
  double seen = static_cast<double>(step.context) + (tokens + 1) / 2;
  if (attention.window > 0) {
    seen = std::min(seen, static_cast<double>(attention.window));
  }
  const double bytes =
      static_cast<double>(step.sequences) * seen *
      static_cast<double>(FormatOf(kv_type).bytes(attention.cached_size()));
  const double operations = 4.0 * static_cast<double>(step.rows()) * seen *
                            attention.num_heads *
                            std::max(attention.head_dim, kFullHead);
  const bool decode = step.tokens == 1;
  const bool narrow = !rates.isa.empty() && !rates.isa.starts_with("avx512");
  const double prompt = narrow ? kNarrowAttentionPeak : kPromptAttentionPeak;
  const double peak = decode ? kDecodeAttentionPeak : prompt;
  return std::max(bytes / (rates.read_gb_per_s * 1e9 * kDecodeAttentionRead),
                  operations / (rates.f32_gop_per_s * 1e9 * peak));
}

double VectorSeconds(const LayerConfig& layer, int64_t hidden_size,
                     const MachineRates& rates, double rows) {
  const double mlp = layer.is_sparse()
                         ? static_cast<double>(layer.moe.intermediate_size) *
                                   layer.moe.experts_per_token +
                               layer.moe.shared_intermediate_size
                         : layer.mlp.intermediate_size;
  const double elements =
      rows * (8.0 * static_cast<double>(hidden_size) +
              2.0 * static_cast<double>(layer.attention.q_size()) + 3 * mlp);
  return elements * kVectorOperations / (rates.f32_gop_per_s * 1e9) +
         kOperationSeconds *
             (kLayerOperations + (layer.is_sparse() ? kExpertOperations : 0));
}

double ExpertSeconds(const MoeConfig& moe, const LayerProducts& layer,
                     double share, const MachineRates& rates, double rows,
                     bool cached) {
  const double distinct =
      DistinctExperts(moe.num_experts, moe.experts_per_token, rows);
  if (distinct <= 0) return 0;
  const double rows_each = rows * moe.experts_per_token / distinct;
  return distinct * share *
         ProductSeconds(layer.expert, std::max(1.0, rows_each), rates, cached);
}

}  // namespace

ModelProducts ProductsOf(const ModelConfig& config,
                         const weights::ModelFile& model, WeightsMode mode) {
  ModelProducts all;
  all.layers.resize(config.layers.size());
  const ExpertStorage storage = ExpertStorageOf(config, model);
  for (int32_t layer = -1; layer < config.num_layers(); ++layer) {
    for (const WeightRows& weight : WeightsOf(config, layer, storage)) {
      const auto types = TypesOf(weight, layer, model, mode);
      for (size_t i = 0; i < weight.rows.size(); ++i) {
        const TensorRow& row = *weight.rows[i];
        const bool tied_head =
            config.tie_word_embeddings && row.place == WeightPlace::kEmbedding;
        if (!IsProduct(row) && !tied_head) continue;
        const double elements = ElementsOf(row, config, layer);
        if (layer < 0) {
          all.head = {types[i], elements};
          continue;
        }
        LayerProducts& to = all.layers[static_cast<size_t>(layer)];
        AddProduct(types[i], elements,
                   row.cut == RankCut::kExperts ? to.expert : to.dense);
      }
    }
  }
  return all;
}

std::vector<WeightType> TypesIn(const ModelProducts& products) {
  std::vector<Product> all;
  AddProduct(products.head.type, 1, all);
  for (const LayerProducts& layer : products.layers) {
    for (const Product& product : layer.dense) AddProduct(product.type, 1, all);
    for (const Product& product : layer.expert) {
      AddProduct(product.type, 1, all);
    }
  }
  std::vector<WeightType> types;
  for (const Product& product : all) types.push_back(product.type);
  return types;
}

double ElementSeconds(const MachineRates& rates, WeightType type, double rows,
                      bool cached) {
  const auto found =
      std::find_if(rates.products.begin(), rates.products.end(),
                   [type](const ProductRate& one) { return one.type == type; });
  // Of machines that were measured before there were long runs.
  if (found == rates.products.end() && type == WeightType::kE4m3Wide) {
    return ElementSeconds(rates, WeightType::kE4m3, rows, cached);
  }
  if (found == rates.products.end()) {
    const WeightFormat& format = FormatOf(type);
    const double bytes = static_cast<double>(format.block_bytes) /
                         static_cast<double>(format.block_elements);
    const bool integer = format.numerics == kQ8Canonical;
    const double peak = integer ? rates.byte_gop_per_s : rates.f32_gop_per_s;
    return std::max(bytes / (rates.read_gb_per_s * 1e9 * kReadShare),
                    2 * rows / (peak * 1e9 * kPeakShare));
  }
  const auto& seconds = cached ? found->from_cache : found->from_memory;
  size_t next = 1;
  while (next + 1 < kRateRows.size() && rows > kRateRows[next]) ++next;
  if (rows >= kRateRows.back()) return seconds.back() * rows / kRateRows.back();
  const double from = kRateRows[next - 1];
  const double part = (rows - from) / (kRateRows[next] - from);
  return seconds[next - 1] + part * (seconds[next] - seconds[next - 1]);
}

double DistinctExperts(double experts, double per_token, double rows) {
  if (experts <= 0) return 0;
  return experts * (1 - std::pow(1 - per_token / experts, rows));
}

double StepSeconds(const StageWork& work, const MachineRates& rates,
                   const StepShape& step) {
  const ModelConfig& config = *work.config;
  const auto rows = static_cast<double>(step.rows());
  const bool cached =
      static_cast<double>(work.weight_bytes) < rates.cache_bytes;
  double seconds = 0;
  for (int32_t i = work.range.first; i < work.range.last; ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    const LayerProducts& products =
        work.products->layers[static_cast<size_t>(i)];
    seconds += ProductSeconds(products.dense, rows, rates, cached);
    seconds += AttentionSeconds(layer.attention, work.kv_type, rates, step);
    seconds += VectorSeconds(layer, config.hidden_size, rates, rows);
    double joins = kLayerJoins;
    if (layer.is_sparse()) {
      seconds += ExpertSeconds(layer.moe, products, work.local_experts, rates,
                               rows, cached);
      joins += kExpertJoins;
    }
    seconds += joins * rates.join_seconds;
  }
  if (work.range.last != config.num_layers()) return seconds;
  const auto logits = static_cast<double>(step.sequences);
  const Product& head = work.products->head;
  seconds += head.elements * ElementSeconds(rates, head.type, logits, cached);
  seconds += logits * config.vocab_size * kVectorOperations /
             (rates.f32_gop_per_s * 1e9);
  return seconds + 2 * rates.join_seconds;
}

double HostSeconds(const MoeConfig& moe, const LayerProducts& layer,
                   double share, const MachineRates& rates, double rows) {
  return ExpertSeconds(moe, layer, share, rates, rows, /*cached=*/false) +
         kExpertJoins * rates.join_seconds;
}

}  // namespace sluice::placement
