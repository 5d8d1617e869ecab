#include "common/model_config/described_model.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "common/base/json.h"
#include "common/base/json_member.h"
#include "common/base/text_file.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/model_contents.h"
#include "common/weights/safetensors_outline.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using weights::DType;

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return lower;
}

std::string StoredName(DType type) {
  return type == DType::kScaledE4M3 ? "fp8" : LowerCase(ToString(type));
}

StatusOr<Json> ReadJsonFile(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  auto json = ParseJson(text);
  if (!json.ok()) return Annotate(json.status(), path);
  if (!json->is_object()) return InvalidArgument(path, ": not a JSON object");
  return json;
}

// Returns whether a folder has all weights that it names, or outlines of them.
// An index may be there before its shards.
bool HasWeights(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / "model.safetensors", error)) return true;
  const auto index = ReadTextFile(folder / "model.safetensors.index.json");
  if (!index.ok()) return false;
  // A large index is read as it is; a bad one is OpenModel's to tell.
  auto parsed = ParseSortedJson(*index);
  const SortedJson json = parsed.ok() ? *std::move(parsed) : SortedJson();
  if (!json.is_object() || !json.contains("weight_map") ||
      !json["weight_map"].is_object()) {
    return true;
  }
  for (const auto& shard : json["weight_map"]) {
    if (!shard.is_string()) return true;
    const std::string path = folder / shard.get<std::string>();
    if (fs::exists(path, error)) continue;
    if (!fs::exists(path + weights::kOutlineSuffix, error)) return false;
  }
  return true;
}

// How a checkpoint stores what its config describes.
struct Storage {
  DType plain = DType::kBF16;  // of what is not quantised
  DType matrices = DType::kBF16;
};

// Returns the type of FP8 whose scales are of so many columns each; 0: not
// said, of rows or tensors.
DType Fp8Of(int64_t scale_cols) {
  return scale_cols % kernels::kE4m3WideRun == 0 ? DType::kWideE4M3
                                                 : DType::kScaledE4M3;
}

// Returns the last element of a list of integers; 0 without one.
int64_t LastOf(const Json* list) {
  if (list == nullptr || !list->is_array() || list->empty()) return 0;
  return list->back().is_number_integer() ? list->back().get<int64_t>() : 0;
}

// Returns the type that quantization_config's method makes of matrices; of FP8
// the type by its scales, whatever the length of a row. INVALID_ARGUMENT for a
// method that tells no type.
StatusOr<DType> QuantisedType(const Json& quantisation) {
  const std::string method = FindText(quantisation, "quant_method");
  if (method == "fp8") {
    return Fp8Of(LastOf(FindMember(quantisation, "weight_block_size")));
  }
  if (method == "fbgemm_fp8") return Fp8Of(0);
  if (method == "modelopt" || method == "modelopt_fp4") {
    // NVFP4 has no kernels: it becomes F32.
    const std::string algorithm = FindText(quantisation, "quant_algo");
    if (algorithm.find("FP8") != std::string::npos) return Fp8Of(0);
    if (algorithm == "NVFP4") return DType::kF32;
  }
  if (method == "mxfp4") return DType::kMxfp4;
  const bool is_auto_round = method == "auto-round" || method == "auto_round";
  if (method == "gptq" || method == "awq" || is_auto_round) {
    const int64_t bits = FindInt(quantisation, "bits").value_or(4);
    const Json* sym = FindMember(quantisation, "sym");
    const bool symmetric = method != "awq" && (sym == nullptr || *sym != false);
    if (bits == 8) return symmetric ? DType::kQ8_0 : DType::kF32;
    return symmetric ? DType::kQ4_0 : DType::kQ5_0;
  }
  if (method == "compressed-tensors") {
    const Json* groups = FindMember(quantisation, "config_groups");
    if (groups == nullptr) groups = &quantisation;
    for (const Json& group : *groups) {
      const Json* scheme = FindMember(group, "weights");
      if (scheme == nullptr || !scheme->is_object()) continue;
      if (FindText(*scheme, "type") == "float") {
        const int64_t block = LastOf(FindMember(*scheme, "block_structure"));
        return Fp8Of(std::max(
            {block, FindInt(*scheme, "group_size").value_or(0), int64_t{0}}));
      }
      return FindInt(*scheme, "num_bits").value_or(4) == 8 ? DType::kQ8_0
                                                           : DType::kQ4_0;
    }
  }
  return InvalidArgument("quantization_config: quant_method '", method,
                         "' does not tell the type of weights: name one");
}

StatusOr<Storage> StorageOf(const Json& config, std::optional<DType> stored) {
  Storage storage;
  std::string dtype = FindText(config, "torch_dtype");
  if (dtype.empty()) dtype = FindText(config, "dtype");
  if (dtype == "float32") storage.plain = DType::kF32;
  if (dtype == "float16") storage.plain = DType::kF16;
  storage.matrices = storage.plain;
  const Json* quantisation = FindMember(config, "quantization_config");
  if (stored.has_value()) {
    storage.matrices =
        *stored == DType::kScaledE4M3 ? DType::kWideE4M3 : *stored;
    const bool plain = *stored <= DType::kBF16;
    if (plain) storage.plain = *stored;
  } else if (quantisation != nullptr && quantisation->is_object()) {
    SLUICE_ASSIGN_OR_RETURN(storage.matrices, QuantisedType(*quantisation));
  }
  return storage;
}

// Returns what takes the place of a type of long blocks in rows that are whole
// short ones: llama.cpp's choice.
DType ShortBlocksFor(DType type) {
  switch (type) {
    case DType::kQ4K:
      return DType::kQ5_0;
    case DType::kQ5K:
      return DType::kQ5_1;
    case DType::kQ6K:
      return DType::kQ8_0;
    default:
      return DType::kIq4Nl;
  }
}

// Returns the type of a row's tensors of `cols` columns.
DType TypeOf(const TensorRow& row, const Storage& storage, int64_t cols) {
  const bool is_outer =
      IsEmbedding(row.place) || row.place == WeightPlace::kHead;
  const bool is_expert = row.cut == RankCut::kExperts;
  DType type = storage.matrices;
  if (row.is_f32()) return storage.plain;
  const bool is_fp8 = type == DType::kScaledE4M3 || type == DType::kWideE4M3;
  if (is_outer && is_fp8) return storage.plain;
  if (!is_expert && type == DType::kMxfp4) return storage.plain;
  const auto whole = [cols](DType of) {
    return cols % weights::BlockSizeOf(of).elements == 0;
  };
  if (is_fp8 && !whole(type)) type = DType::kScaledE4M3;
  if (whole(type)) return type;
  const DType other = ShortBlocksFor(type);
  return type >= DType::kQ2K && whole(other) ? other : DType::kBF16;
}

ExpertStorage ExpertsAre(const ModelConfig& config, const Storage& storage) {
  if (!config.moe().interleaved) return ExpertStorage::kSeparate;
  return weights::BlocksOf(storage.matrices).has_value()
             ? ExpertStorage::kStacked
             : ExpertStorage::kTransposed;
}

void AddTensors(const ModelConfig& config, const Storage& storage,
                int32_t layer, weights::ModelContents& contents) {
  const ExpertStorage experts = ExpertsAre(config, storage);
  for (const WeightRows& weight : WeightsOf(config, layer, experts)) {
    for (const TensorRow* row : weight.rows) {
      const int32_t copies =
          row->per_expert() ? config.layers[layer].moe.num_experts : 1;
      weights::TensorInfo tensor;
      for (const Dimension& size : DimensionsOf(*row, config, layer)) {
        tensor.shape.push_back(size.size);
      }
      tensor.dtype = TypeOf(*row, storage, tensor.cols());
      for (int32_t expert = 0; expert < copies; ++expert) {
        tensor.name = NameOf(*row, layer, expert);
        contents.tensors.push_back({tensor, nullptr, 0, 0});
      }
    }
  }
}

}  // namespace

StatusOr<DType> ParseStoredType(const std::string& name) {
  std::string known;
  for (DType type = DType::kF32; type <= DType::kIq4Xs;
       type = static_cast<DType>(static_cast<int>(type) + 1)) {
    if (type == DType::kWideE4M3) continue;  // the matrix's shape makes it
    if (StoredName(type) == name) return type;
    known += Cat(known.empty() ? "" : ", ", StoredName(type));
  }
  return InvalidArgument("weights must be one of auto, ", known, ", got '",
                         name, "'");
}

StatusOr<std::unique_ptr<weights::ModelFile>> DescribeModel(
    const std::string& path, std::optional<DType> stored) {
  std::error_code error;
  const bool is_config = path.ends_with("config.json");
  const fs::path file =
      is_config ? fs::path(path) : fs::path(path) / "config.json";
  const bool there = fs::is_regular_file(file, error);
  if (stored.has_value() && !there) {
    return InvalidArgument(path, ": weights of another type than the files' ",
                           "need a folder with config.json");
  }
  if (!there || (!stored.has_value() && HasWeights(file.parent_path()))) {
    return OpenModel(is_config ? file.parent_path().string() : path);
  }
  weights::ModelContents contents;
  contents.path = path;
  SLUICE_ASSIGN_OR_RETURN(contents.config, ReadJsonFile(file));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(contents.config));
  const auto storage = StorageOf(contents.config, stored);
  if (!storage.ok()) return Annotate(storage.status(), file.string());
  for (int32_t layer = -1; layer < config.num_layers(); ++layer) {
    AddTensors(config, *storage, layer, contents);
  }
  std::sort(
      contents.tensors.begin(), contents.tensors.end(),
      [](const auto& a, const auto& b) { return a.info.name < b.info.name; });
  return std::make_unique<weights::ModelFile>(std::move(contents));
}

}  // namespace sluice
