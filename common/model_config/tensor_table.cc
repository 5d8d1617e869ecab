#include "common/model_config/tensor_table.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "common/model_config/rank_plan.h"
#include "common/model_config/tensor_rows.h"

namespace sluice {
namespace {

// Returns the size of the dimension that a shape's letter stands for.
int64_t SizeOf(char letter, const ModelConfig& config, int32_t layer) {
  static const LayerConfig none;
  const LayerConfig& of = layer < 0 ? none : config.layers[layer];
  const LatentConfig& latent = of.attention.latent;
  const int64_t heads = of.attention.num_heads;
  const std::pair<char, int64_t> sizes[] = {
      {'V', config.vocab_size},
      {'H', config.hidden_size},
      {'Q', of.attention.q_size()},
      {'K', of.attention.kv_size()},
      {'N', of.attention.num_heads},
      {'D', of.attention.head_dim},
      {'F', of.mlp.intermediate_size},
      {'X', of.moe.intermediate_size},
      {'S', of.moe.shared_intermediate_size},
      {'E', of.moe.num_experts},
      {'C',
       of.state.mixer.shape.num_heads == 0 ? of.state.mixer.shape.channels : 0},
      {'L', of.state.mixer.shape.taps},
      {'J', of.state.mixer.shape.keys()},
      {'Z', of.state.mixer.shape.values()},
      {'T', of.state.mixer.shape.num_heads},
      {'M', of.state.mixer.shape.value_dim},
      {'P', config.per_layer_input},
      {'W', int64_t{config.num_layers()} * config.per_layer_input},
      {'U', 1},
      {'l', latent.q_rank},
      {'c', latent.kv_rank},
      {'r', latent.rope_dim},
      {'p', latent.nope_dim},
      {'w', latent.value_dim},
      {'a', heads * (latent.nope_dim + latent.rope_dim)},
      {'b', heads * (latent.nope_dim + latent.value_dim)},
      {'o', heads * latent.value_dim},
      {'h', latent.indexer.num_heads},
      {'d', latent.indexer.head_dim},
      {'e', int64_t{latent.indexer.num_heads} * latent.indexer.head_dim}};
  for (const auto& [name, size] : sizes) {
    if (name == letter) return size;
  }
  SLUICE_CHECK(false);
}

// Takes a number off the front of `text`; without one returns `absent`.
int64_t TakeNumber(std::string_view& text, int64_t absent) {
  int64_t number = absent;
  const auto read =
      std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<size_t>(read.ptr - text.data()));
  return number;
}

bool IsPresent(const TensorRow& row, const ModelConfig& config, int32_t layer) {
  // Of tensors outside the layers the first layer tells.
  const auto teller = static_cast<size_t>(std::max(layer, 0));
  if (row.only != nullptr && !row.only(config.layers[teller])) return false;
  const std::vector<Dimension> shape = DimensionsOf(row, config, layer);
  return std::none_of(shape.begin(), shape.end(),
                      [](const Dimension& size) { return size.size == 0; });
}

void AddRows(std::span<const TensorRow> rows, const ModelConfig& config,
             int32_t layer, std::vector<WeightRows>& to) {
  for (const TensorRow& row : rows) {
    if (!IsPresent(row, config, layer)) continue;
    const auto same = std::find_if(
        to.begin(), to.end(),
        [&](const WeightRows& weight) { return weight.place == row.place; });
    if (same == to.end()) {
      to.push_back({row.place, {&row}});
      if (row.cut == RankCut::kColumns) {
        const char letter = DimensionsOf(row, config, layer).back().letter();
        to.back().shard_unit = ShardUnitOf(config.layers[layer], letter);
      }
    } else {
      same->rows.push_back(&row);
    }
  }
}

}  // namespace

bool IsNormWeight(WeightPlace place) {
  using enum WeightPlace;
  constexpr WeightPlace kNorms[] = {
      kFinalNorm, kAttentionNorm,     kQNorm,      kKNorm,
      kMlpNorm,   kPostAttentionNorm, kPostMlpNorm};
  return std::find(std::begin(kNorms), std::end(kNorms), place) !=
         std::end(kNorms);
}

std::vector<WeightRows> WeightsOf(const ModelConfig& config, int32_t layer,
                                  ExpertStorage storage) {
  std::vector<WeightRows> weights;
  const auto add = [&](const TensorTable::Groups& groups) {
    for (const auto& rows : groups) AddRows(rows, config, layer, weights);
  };
  if (layer < 0) {
    AddRows(TopRowsOf(config.tensors), config, layer, weights);
    if (config.tie_word_embeddings) weights.pop_back();
    return weights;
  }
  SLUICE_CHECK(config.tensors != nullptr);
  add(config.tensors->layers);
  if (!config.is_sparse(layer)) {
    add(config.tensors->dense);
    return weights;
  }
  add(config.tensors->sparse);
  AddRows(ExpertRowsOf(*config.tensors, storage), config, layer, weights);
  const bool is_apart = storage == ExpertStorage::kApart;
  add(is_apart ? config.tensors->apart : config.tensors->experts);
  return weights;
}

std::vector<Dimension> DimensionsOf(const TensorRow& row,
                                    const ModelConfig& config, int32_t layer) {
  std::vector<Dimension> dimensions;
  std::string_view text = row.shape;
  while (!text.empty()) {
    Dimension& to = dimensions.emplace_back();
    while (!text.empty() && text[0] != ' ') {
      const int64_t times = TakeNumber(text, 1);
      Dimension::Run run = {0, times};
      if (!text.empty() && text[0] != ' ') {
        run = {text[0], SizeOf(text[0], config, layer)};
        text.remove_prefix(1);
      }
      to.runs.insert(to.runs.end(), run.letter == 0 ? 1 : times, run);
      if (text.starts_with('+')) text.remove_prefix(1);
    }
    for (const Dimension::Run& run : to.runs) to.size += run.size;
    if (text.starts_with(' ')) text.remove_prefix(1);
  }
  return dimensions;
}

std::string NameOf(const TensorRow& row, int32_t layer, int32_t expert) {
  std::string name(row.name);
  const size_t at = name.find("{}");
  if (at != std::string::npos) name.replace(at, 2, std::to_string(expert));
  return layer < 0 ? name : Cat(kLayerPrefix, layer, ".", name);
}

GgufTensorPlace PlaceOfGguf(const TensorTable& table, std::string_view name) {
  GgufTensorPlace place;
  const auto find = [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      const bool is_key = row.stored == StoredAs::kLayerNumber;
      if (row.gguf == name && !is_key) place.row = &row;
    }
  };
  if (!name.starts_with(kGgufLayerPrefix)) {
    find(TopRowsOf(&table));
    return place;
  }
  name.remove_prefix(kGgufLayerPrefix.size());
  const int64_t layer = TakeNumber(name, -1);
  if (layer < 0 || layer > std::numeric_limits<int32_t>::max() ||
      !name.starts_with('.')) {
    return place;
  }
  name.remove_prefix(1);
  place.layer = static_cast<int32_t>(layer);
  for (const auto& groups :
       {table.layers, table.dense, table.sparse, table.apart}) {
    for (const auto& rows : groups) find(rows);
  }
  find(ExpertRowsOf(table, ExpertStorage::kApart));
  find(ExpertRowsOf(table, ExpertStorage::kStacked));
  return place;
}

int32_t LayerOfTensor(std::string_view name, std::string_view& rest) {
  const std::string_view prefix =
      name.starts_with(kGgufLayerPrefix) ? kGgufLayerPrefix : kLayerPrefix;
  if (!name.starts_with(prefix)) return -1;
  name.remove_prefix(prefix.size());
  const int64_t layer = TakeNumber(name, -1);
  if (layer < 0 || layer > std::numeric_limits<int32_t>::max()) return -1;
  rest = name;
  if (rest.starts_with('.')) rest.remove_prefix(1);
  return static_cast<int32_t>(layer);
}

const char* ToString(ExpertStorage storage) {
  constexpr const char* kNames[] = {"one by one", "gate, up, down stacked",
                                    "stacked", "stacked, transposed"};
  return kNames[static_cast<size_t>(storage)];
}

ExpertStorage ExpertStorageOf(const ModelConfig& config,
                              const weights::ModelFile& model) {
  if (config.moe().num_experts == 0) return ExpertStorage::kSeparate;
  const int32_t layer = SparseSpan(config).first;
  const auto find = [&](const TensorRow& row) {
    return model.Find(NameOf(row, layer));
  };
  if (find(ExpertRowsOf(*config.tensors, ExpertStorage::kApart)[0]) != nullptr)
    return ExpertStorage::kApart;
  const weights::TensorInfo* stacked =
      find(ExpertRowsOf(*config.tensors, ExpertStorage::kStacked)[0]);
  // gpt-oss alternates gate and up but in a GGUF. Its checkpoints are
  // transposed but for those of MXFP4.
  if (config.moe().interleaved) {
    const bool is_blocks =
        stacked != nullptr && weights::BlocksOf(stacked->dtype).has_value();
    return is_blocks ? ExpertStorage::kStacked : ExpertStorage::kTransposed;
  }
  if (stacked == nullptr) return ExpertStorage::kSeparate;
  // Qwen3-VL's released files are transposed, those of transformers 5 not.
  const int64_t rows = 2 * config.moe().intermediate_size;
  const std::vector<int64_t> transposed = {config.moe().num_experts,
                                           config.hidden_size, rows};
  return stacked->shape == transposed && rows != config.hidden_size
             ? ExpertStorage::kTransposed
             : ExpertStorage::kStacked;
}

}  // namespace sluice
