#include "common/model_config/layer_files.h"

#include <filesystem>
#include <set>
#include <string_view>

#include "common/model_config/tensor_table.h"
#include "common/weights/safetensors_outline.h"

namespace sluice {
namespace {

// Returns whether a stage with the layers of `range` holds the tensor.
bool IsHeldBy(const ModelConfig& config, const LayerRange& range,
              std::string_view name) {
  if (range.first >= range.last) return false;
  std::string_view rest;
  const int32_t layer = LayerOfTensor(name, rest);
  if (layer >= 0) return layer >= range.first && layer < range.last;
  const bool first = range.first == 0;
  const bool last = range.last == config.num_layers();
  const bool embedding = name.find("embed_tokens") != name.npos;
  return embedding ? first || (last && config.tie_word_embeddings) : last;
}

}  // namespace

StatusOr<std::vector<std::string>> FilesOfLayers(
    const ModelConfig& config, const weights::ModelFile& model,
    const LayerRange& range) {
  std::set<std::string> files;
  for (const weights::TensorInfo& tensor : model.tensors()) {
    if (!IsHeldBy(config, range, tensor.name)) continue;
    SLUICE_ASSIGN_OR_RETURN(const std::string path, model.FileOf(tensor.name));
    std::string name = std::filesystem::path(path).filename().string();
    const std::string_view suffix = weights::kOutlineSuffix;
    if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
    files.insert(name);
  }
  return std::vector<std::string>(files.begin(), files.end());
}

}  // namespace sluice
