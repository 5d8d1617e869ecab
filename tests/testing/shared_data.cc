#include "tests/testing/shared_data.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/check.h"

namespace sluice::testing {

std::optional<std::string> SharedData(std::string_view relative) {
  const char* root = std::getenv("SLUICE_SHARED");
  const std::filesystem::path base =
      root != nullptr ? std::filesystem::path(root)
                      : std::filesystem::path(SLUICE_SOURCE_DIR) / "../shared";
  const std::filesystem::path path = base / relative;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  return path.lexically_normal().string();
}

std::optional<std::string> SmolLm2Path() {
  std::filesystem::path path;
  if (const char* named = std::getenv("SLUICE_SMOLLM2")) {
    path = named;
  } else if (const char* cache = std::getenv("XDG_CACHE_HOME")) {
    path = cache;
  } else if (const char* home = std::getenv("HOME")) {
    path = std::filesystem::path(home) / ".cache";
  }
  if (std::getenv("SLUICE_SMOLLM2") == nullptr) {
    path /= "sluice/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  }
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  return path.string();
}

std::string ReadFileOrDie(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  SLUICE_CHECK(in.good());
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

}  // namespace sluice::testing
