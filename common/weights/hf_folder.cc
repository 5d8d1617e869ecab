#include <sys/stat.h>

#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/weights/block_tensor.h"
#include "common/weights/model_contents.h"
#include "common/weights/safetensors_outline.h"
#include "common/weights/text_part.h"

namespace sluice::weights {
namespace {

constexpr uint64_t kMaxConfigBytes = 1 << 20;
constexpr uint64_t kMaxIndexBytes = 64 << 20;
constexpr int kMaxConfigDepth = 32;
constexpr size_t kMaxShards = 10'000;

bool IsFile(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

StatusOr<Json> ReadConfig(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text,
                          ReadSmallFile(path, kMaxConfigBytes));
  auto config = ParseJson(text, {kMaxConfigBytes, kMaxConfigDepth});
  if (!config.ok()) return Annotate(config.status(), path);
  if (!config->is_object()) {
    return InvalidArgument(path, ": is ", config->type_name(),
                           ", expected an object");
  }
  return config;
}

// Tensor name to shard, as an index says.
using WeightMap = std::map<std::string, std::string>;

// A shard lies in the folder itself: its name is no path.
Status CheckShardName(const std::string& name) {
  if (name.empty() || name == "." || name == ".." ||
      name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos) {
    return InvalidArgument("shard ", Quoted(name),
                           " is no file name within the folder");
  }
  return OkStatus();
}

StatusOr<WeightMap> ReadIndex(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text,
                          ReadSmallFile(path, kMaxIndexBytes));
  constexpr JsonLimits kShape = {
      .max_depth = kMaxConfigDepth,
      .max_members = std::numeric_limits<size_t>::max()};
  SLUICE_RETURN_IF_ERROR(Annotate(CheckJsonShape(text, kShape), path));
  // A sorted map, so that a long index takes no quadratic time.
  const auto index =
      nlohmann::json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!index.is_object() || !index.contains("weight_map") ||
      !index["weight_map"].is_object()) {
    return InvalidArgument(path, ": is no JSON object with a weight_map");
  }
  WeightMap map;
  for (const auto& [name, shard] : index["weight_map"].items()) {
    if (!shard.is_string()) {
      return InvalidArgument(path, ": weight_map entry ", Quoted(name), " is ",
                             shard.type_name(), ", expected a string");
    }
    const std::string& file = shard.get_ref<const std::string&>();
    SLUICE_RETURN_IF_ERROR(Annotate(CheckShardName(file), path));
    map.emplace(name, file);
  }
  return map;
}

// Opens one safetensors file, or its outline in its place, and appends its
// tensors.
Status AddSafetensors(const std::string& path, ModelContents& contents) {
  const std::string outline = path + kOutlineSuffix;
  const bool is_outline = !IsFile(path) && IsFile(outline);
  SLUICE_ASSIGN_OR_RETURN(auto file,
                          RandomAccessFile::Open(is_outline ? outline : path));
  SLUICE_ASSIGN_OR_RETURN(auto tensors, is_outline
                                            ? ReadSafetensorsOutline(*file)
                                            : ReadSafetensorsHeader(*file));
  contents.files.push_back(std::move(file));
  for (LocatedTensor& tensor : tensors) {
    contents.tensors.push_back(std::move(tensor));
  }
  return OkStatus();
}

// Checks that every tensor of the index is in the shard that the index names.
Status CheckIndex(const std::string& folder, const WeightMap& map,
                  const ModelContents& contents) {
  std::unordered_map<std::string_view, const RandomAccessFile*> found;
  for (const LocatedTensor& tensor : contents.tensors) {
    found.emplace(tensor.info.name, tensor.file);
  }
  for (const auto& [name, shard] : map) {
    const auto place = found.find(name);
    const std::string path = Cat(folder, "/", shard);
    if (place == found.end() ||
        (place->second->path() != path &&
         place->second->path() != path + kOutlineSuffix)) {
      return InvalidArgument(folder, ": tensor ", Quoted(name), " is not in ",
                             Quoted(shard), ", where the index has it");
    }
  }
  return OkStatus();
}

Status AddShards(const std::string& folder, const std::string& index,
                 ModelContents& contents) {
  SLUICE_ASSIGN_OR_RETURN(const WeightMap map, ReadIndex(index));
  std::set<std::string> shards;
  for (const auto& [name, shard] : map) shards.insert(shard);
  if (shards.empty() || shards.size() > kMaxShards) {
    return InvalidArgument(index, ": ", shards.size(), " shards, limits 1 and ",
                           kMaxShards);
  }
  for (const std::string& shard : shards) {
    SLUICE_RETURN_IF_ERROR(AddSafetensors(Cat(folder, "/", shard), contents));
  }
  return CheckIndex(folder, map, contents);
}

// Gives tensors of blocks their types and the names of their matrices.
Status NameBlocks(ModelContents& contents) {
  for (LocatedTensor& tensor : contents.tensors) {
    SLUICE_ASSIGN_OR_RETURN(tensor.info, BlocksOfBytes(tensor.info));
  }
  return OkStatus();
}

// How models that read images, too, and some families begin the names of the
// text part's tensors, and the usual beginning.
constexpr std::pair<std::string_view, std::string_view> kBeginnings[] = {
    {"model.language_model.", "model."},
    {"language_model.model.", "model."},
    {"language_model.lm_head.", "lm_head."},
    {"backbone.", "model."},
};

// Gives the text part's tensors their usual names.
void UseUsualNames(ModelContents& contents) {
  for (LocatedTensor& tensor : contents.tensors) {
    std::string& name = tensor.info.name;
    for (const auto& [own, usual] : kBeginnings) {
      if (!name.starts_with(own)) continue;
      name.replace(0, own.size(), usual);
      break;
    }
  }
}

}  // namespace

StatusOr<ModelContents> OpenHfFolder(const std::string& folder) {
  ModelContents contents;
  contents.path = folder;
  contents.is_folder = true;
  SLUICE_ASSIGN_OR_RETURN(const Json config,
                          ReadConfig(Cat(folder, "/config.json")));
  contents.config = TextPartOf(config);
  const std::string generation = Cat(folder, "/generation_config.json");
  if (IsFile(generation)) {
    SLUICE_ASSIGN_OR_RETURN(contents.generation_config, ReadConfig(generation));
  }
  const std::string single = Cat(folder, "/model.safetensors");
  const std::string index = Cat(folder, "/model.safetensors.index.json");
  if (IsFile(single)) {
    SLUICE_RETURN_IF_ERROR(AddSafetensors(single, contents));
  } else if (IsFile(index)) {
    SLUICE_RETURN_IF_ERROR(AddShards(folder, index, contents));
  } else {
    return NotFound(folder,
                    ": has neither model.safetensors nor "
                    "model.safetensors.index.json");
  }
  UseUsualNames(contents);
  SLUICE_RETURN_IF_ERROR(Annotate(NameBlocks(contents), folder));
  return contents;
}

}  // namespace sluice::weights
