#include "common/weights/model_name.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "common/base/cat.h"
#include "common/base/json.h"

namespace sluice::weights {
namespace {

constexpr size_t kMaxConfiguredName = 96;
constexpr std::string_view kCachePrefix = "models--";

// Returns the config's own name; empty if there is no valid one.
std::string ConfiguredName(const Json& config) {
  const auto found = config.find("sluice_model_name");
  if (found == config.end() || !found->is_string()) return "";
  const auto& name = found->get_ref<const std::string&>();
  const auto plain = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z') || c == '.' || c == '_' || c == '/' ||
           c == '-';
  };
  const bool fits = name.size() <= kMaxConfiguredName &&
                    std::all_of(name.begin(), name.end(), plain);
  return fits ? name : "";
}

// "org/name" of "models--org--name"; empty for any other name of a folder.
std::string RepositoryOf(const std::string& folder) {
  if (!folder.starts_with(kCachePrefix)) return "";
  const std::string name = folder.substr(kCachePrefix.size());
  const size_t at = name.find("--");
  if (at == std::string::npos) return name;
  return Cat(name.substr(0, at), "/", name.substr(at + 2));
}

}  // namespace

std::string ModelName(const ModelFile& file) {
  if (auto name = ConfiguredName(file.config()); !name.empty()) return name;
  std::error_code ignored;
  std::filesystem::path path =
      std::filesystem::absolute(file.path(), ignored).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  for (const char* extension : {".gguf", ".m"}) {
    if (path.extension() == extension) return path.stem().string();
  }
  const std::filesystem::path snapshots = path.parent_path();
  if (snapshots.filename() == "snapshots") {
    auto name = RepositoryOf(snapshots.parent_path().filename().string());
    if (!name.empty()) return name;
  }
  return path.filename().string();
}

}  // namespace sluice::weights
