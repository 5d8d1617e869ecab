#include <sys/stat.h>

#include <memory>
#include <string>
#include <utility>

#include "common/weights/dllama_file.h"
#include "common/weights/find_model.h"
#include "common/weights/model_contents.h"

namespace sluice::weights {
namespace {

bool Exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

bool HasSafetensors(const std::string& folder) {
  return Exists(folder + "/model.safetensors") ||
         Exists(folder + "/model.safetensors.index.json");
}

// Opens a model in a file, by its name or its first bytes.
StatusOr<ModelContents> OpenModelFile(const std::string& path,
                                      const GgufTranslator& translate) {
  SLUICE_ASSIGN_OR_RETURN(auto file, RandomAccessFile::Open(path));
  if (path.ends_with(kDllamaSuffix) || IsDllamaFile(*file)) {
    return OpenDllama(std::move(file), translate);
  }
  return OpenGguf(path, translate);
}

}  // namespace

StatusOr<ModelContents> OpenContents(const std::string& path,
                                     const GgufTranslator& translate) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return NotFound(path, ": no such file");
  if (S_ISDIR(info.st_mode)) {
    const bool has_config = Exists(path + "/config.json");
    if (has_config && HasSafetensors(path)) return OpenHfFolder(path);
    // Hubs lay a config.json beside GGUFs.
    const auto file = FindModelFile(path);
    if (file.ok()) return OpenModelFile(*file, translate);
    if (!has_config) {
      return NotFound(Message(file.status()), "; it has no config.json");
    }
    auto opened = OpenHfFolder(path);
    if (opened.ok() || opened.status().code() != StatusCode::kNotFound) {
      return opened;
    }
    return NotFound(Message(opened.status()), "; ", Message(file.status()));
  }
  if (!path.ends_with(".safetensors")) return OpenModelFile(path, translate);
  ModelContents contents;
  contents.path = path;
  SLUICE_ASSIGN_OR_RETURN(auto file, RandomAccessFile::Open(path));
  SLUICE_ASSIGN_OR_RETURN(contents.tensors, ReadSafetensorsHeader(*file));
  contents.files.push_back(std::move(file));
  return contents;
}

}  // namespace sluice::weights
