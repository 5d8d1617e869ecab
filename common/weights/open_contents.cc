#include <dirent.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/weights/dllama_file.h"
#include "common/weights/model_contents.h"

namespace sluice::weights {
namespace {

constexpr char kDllama[] = ".m";  // models of distributed-llama

// Returns a folder's only model in a file: a GGUF, a split set's first, or one
// of distributed-llama.
StatusOr<std::string> FindModelFile(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.c_str()),
                                                ::closedir);
  if (dir == nullptr) return NotFound(folder, ": cannot be read");
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string name = entry->d_name;
    const bool later_split = name.find("-of-") != std::string::npos &&
                             name.find("-00001-of-") == std::string::npos;
    const bool is_model = name.ends_with(".gguf") || name.ends_with(kDllama);
    if (is_model && !later_split) names.push_back(name);
  }
  if (names.size() == 1) return Cat(folder, "/", names[0]);
  return NotFound(folder, ": is no model: no config.json, and ", names.size(),
                  " models in .gguf or .m files where one is expected");
}

bool Exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

// Opens a model in a file, by its name or its first bytes.
StatusOr<ModelContents> OpenModelFile(const std::string& path,
                                      const GgufTranslator& translate) {
  SLUICE_ASSIGN_OR_RETURN(auto file, RandomAccessFile::Open(path));
  if (path.ends_with(kDllama) || IsDllamaFile(*file)) {
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
    if (Exists(path + "/config.json")) return OpenHfFolder(path);
    SLUICE_ASSIGN_OR_RETURN(const std::string file, FindModelFile(path));
    return OpenModelFile(file, translate);
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
