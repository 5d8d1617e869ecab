#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/base/json_member.h"
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

// Python writes infinities and NaN as words that are no JSON. Returns `text`
// with null in their places.
std::string WithoutWordsForNumbers(std::string text) {
  constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};
  bool in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_text && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      in_text = !in_text;
    } else if (!in_text) {
      for (const std::string_view word : kWords) {
        if (text.compare(i, word.size(), word) != 0) continue;
        text.replace(i, word.size(), "null");
        break;
      }
    }
  }
  return text;
}

StatusOr<Json> ReadConfig(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(std::string text,
                          ReadSmallFile(path, kMaxConfigBytes));
  text = WithoutWordsForNumbers(std::move(text));
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
  const auto parsed = ParseSortedJson(text, kMaxConfigDepth);
  if (!parsed.ok()) {
    return InvalidArgument(path, ": is no JSON object with a weight_map: ",
                           Message(parsed.status()));
  }
  const SortedJson& index = *parsed;
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

// Checks that no tensor of the index is in another shard than the index says. A
// tensor in no shard is noted: a model that needs it is refused by it.
Status CheckIndex(const std::string& folder, const WeightMap& map,
                  const std::set<std::string>& missing,
                  ModelContents& contents) {
  std::unordered_map<std::string_view, const RandomAccessFile*> found;
  for (const LocatedTensor& tensor : contents.tensors) {
    found.emplace(tensor.info.name, tensor.file);
  }
  for (const auto& [name, shard] : map) {
    const auto place = found.find(name);
    const std::string path = Cat(folder, "/", shard);
    if (place == found.end()) {
      contents.absent[name] = {shard, !missing.contains(shard)};
    } else if (place->second->path() != path &&
               place->second->path() != path + kOutlineSuffix) {
      return InvalidArgument(folder, ": tensor ", Quoted(name), " is in ",
                             place->second->path(), ", not in ", Quoted(shard),
                             ", where the index has it");
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
  // A shard may have nothing that is read: what is needed is found out later.
  std::set<std::string> missing;
  Status first;
  for (const std::string& shard : shards) {
    const Status added = AddSafetensors(Cat(folder, "/", shard), contents);
    if (added.ok()) continue;
    if (added.code() != StatusCode::kNotFound) return added;
    missing.insert(shard);
    if (first.ok()) first = added;
  }
  if (missing.size() == shards.size()) return first;
  return CheckIndex(folder, map, missing, contents);
}

// Gives tensors of blocks their types and the names of their matrices.
Status NameBlocks(ModelContents& contents) {
  for (LocatedTensor& tensor : contents.tensors) {
    SLUICE_ASSIGN_OR_RETURN(tensor.info, BlocksOfBytes(tensor.info));
  }
  return OkStatus();
}

// Files of tools that describe the quantisation beside a config.json that does
// not, and the quant_method that they stand for.
struct QuantisationFile {
  const char* name;
  const char* method;
  const char* within;  // the key of the description; null: the file is it
};
constexpr QuantisationFile kQuantisationFiles[] = {
    {"quantize_config.json", "gptq", nullptr},
    {"quant_config.json", "awq", nullptr},
    {"hf_quant_config.json", "modelopt", "quantization"},
};

// Sets quantization_config of a config that has it under another name or in a
// file of its own.
Status FindQuantisation(const std::string& folder, Json& config) {
  constexpr char kKey[] = "quantization_config";
  if (FindMember(config, kKey) != nullptr) return OkStatus();
  if (const Json* other = FindMember(config, "compression_config")) {
    const Json copy = *other;
    config[kKey] = copy;
    return OkStatus();
  }
  for (const QuantisationFile& file : kQuantisationFiles) {
    const std::string path = Cat(folder, "/", file.name);
    if (!IsFile(path)) continue;
    SLUICE_ASSIGN_OR_RETURN(Json read, ReadConfig(path));
    if (file.within != nullptr) {
      const Json* within = FindMember(read, file.within);
      if (within == nullptr || !within->is_object()) continue;
      const Json copy = *within;
      read = copy;
    }
    if (!read.contains("quant_method")) read["quant_method"] = file.method;
    config[kKey] = read;
    return OkStatus();
  }
  return OkStatus();
}

// How models that read images, too, and some families begin the names of the
// text part's tensors, and the usual beginning.
constexpr std::pair<std::string_view, std::string_view> kBeginnings[] = {
    {"model.language_model.", "model."},
    {"language_model.model.", "model."},
    {"model.text_model.", "model."},
    {"language_model.lm_head.", "lm_head."},
    {"backbone.", "model."},
};

// What a checkpoint of the model without its head begins with.
constexpr std::string_view kBare[] = {"embed_tokens.", "layers.", "norm."};

std::string UsualName(std::string_view name, bool is_bare) {
  for (const auto& [own, usual] : kBeginnings) {
    if (name.starts_with(own)) return Cat(usual, name.substr(own.size()));
  }
  for (const std::string_view part : kBare) {
    if (is_bare && name.starts_with(part)) return Cat("model.", name);
  }
  return std::string(name);
}

// Gives the text part's tensors their usual names, and numbers a dimension.
void UseUsualNames(ModelContents& contents) {
  const auto begins = [&](std::string_view part) {
    return std::any_of(contents.tensors.begin(), contents.tensors.end(),
                       [&](const LocatedTensor& tensor) {
                         return tensor.info.name.starts_with(part);
                       });
  };
  const bool is_bare =
      begins(kBare[0]) && begins(kBare[1]) && !begins("model.");
  for (LocatedTensor& tensor : contents.tensors) {
    if (tensor.info.shape.empty()) tensor.info.shape = {1};
    tensor.info.name = UsualName(tensor.info.name, is_bare);
  }
  auto absent = std::exchange(contents.absent, {});
  for (auto& [name, shard] : absent) {
    contents.absent.emplace(UsualName(name, is_bare), std::move(shard));
  }
}

}  // namespace

StatusOr<ModelContents> OpenHfFolder(const std::string& folder) {
  ModelContents contents;
  contents.path = folder;
  contents.is_folder = true;
  SLUICE_ASSIGN_OR_RETURN(Json config, ReadConfig(Cat(folder, "/config.json")));
  SLUICE_RETURN_IF_ERROR(FindQuantisation(folder, config));
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
