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

// Of a GPU's data sheet, and what a layer takes however small it is: fast
// numerics on an H200 (tests/gpu/results/2026-11-27-h200-second.json, decodes
// of one stream and prompts of llama1b, llama8b, llama8b_fp8 and gptoss20b).
// Other GPUs are taken for the same.
constexpr double kGpuReadShare = 0.87;        // of F32 and BF16
constexpr double kGpuPackedReadShare = 0.66;  // of smaller types
constexpr double kGpuPeakShare = 0.26;
constexpr double kGpuPackedPeakShare = 0.15;
constexpr double kGpuLayerSeconds = 28e-6;
constexpr double kGpuExpertSeconds = 40e-6;
// Of attention, which was not measured alone.
constexpr double kGpuAttentionRead = 0.5;

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
  if (rates.is_gpu) {
    return std::max(bytes / (rates.read_gb_per_s * 1e9 * kGpuAttentionRead),
                    operations / (rates.f32_gop_per_s * 1e9 * kGpuPeakShare));
  }
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

double GpuElementSeconds(const MachineRates& rates, WeightType type,
                         double rows) {
  const WeightFormat& format = FormatOf(type);
  const double bytes = static_cast<double>(format.block_bytes) /
                       static_cast<double>(format.block_elements);
  const bool packed = bytes < 2;
  const double read = packed ? kGpuPackedReadShare : kGpuReadShare;
  const double peak = packed ? kGpuPackedPeakShare : kGpuPeakShare;
  return std::max(bytes / (rates.read_gb_per_s * 1e9 * read),
                  2 * rows / (rates.f32_gop_per_s * 1e9 * peak));
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
  if (found == rates.products.end() && rates.is_gpu) {
    return GpuElementSeconds(rates, type, rows);
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

double LayerSeconds(const StageWork& work, int32_t layer,
                    const MachineRates& rates, const StepShape& step,
                    bool cached) {
  const auto at = static_cast<size_t>(layer);
  const auto rows = static_cast<double>(step.rows());
  const LayerConfig& config = work.config->layers[at];
  const LayerProducts& products = work.products->layers[at];
  double seconds = ProductSeconds(products.dense, rows, rates, cached);
  seconds += AttentionSeconds(config.attention, work.kv_type, rates, step);
  if (config.is_sparse()) {
    seconds += ExpertSeconds(config.moe, products, work.local_experts, rates,
                             rows, cached);
  }
  if (rates.is_gpu) {
    return seconds + kGpuLayerSeconds +
           (config.is_sparse() ? kGpuExpertSeconds : 0);
  }
  const double joins = kLayerJoins + (config.is_sparse() ? kExpertJoins : 0);
  return seconds + joins * rates.join_seconds +
         VectorSeconds(config, work.config->hidden_size, rates, rows);
}

double HeadSeconds(const StageWork& work, const MachineRates& rates,
                   const StepShape& step, bool cached) {
  const auto logits = static_cast<double>(step.sequences);
  const Product& head = work.products->head;
  if (rates.is_gpu) {
    return head.elements * ElementSeconds(rates, head.type, logits, cached) +
           kGpuLayerSeconds;
  }
  return head.elements * ElementSeconds(rates, head.type, logits, cached) +
         logits * work.config->vocab_size * kVectorOperations /
             (rates.f32_gop_per_s * 1e9) +
         2 * rates.join_seconds;
}

double StepSeconds(const StageWork& work, const MachineRates& rates,
                   const StepShape& step) {
  const bool cached =
      static_cast<double>(work.weight_bytes) < rates.cache_bytes;
  double seconds = 0;
  for (int32_t i = work.range.first; i < work.range.last; ++i) {
    seconds += LayerSeconds(work, i, rates, step, cached);
  }
  if (work.range.last != work.config->num_layers()) return seconds;
  return seconds + HeadSeconds(work, rates, step, cached);
}

double HostSeconds(const MoeConfig& moe, const LayerProducts& layer,
                   double share, const MachineRates& rates, double rows) {
  return ExpertSeconds(moe, layer, share, rates, rows, /*cached=*/false) +
         kExpertJoins * rates.join_seconds;
}

}  // namespace sluice::placement
