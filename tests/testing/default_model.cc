#include "tests/testing/default_model.h"

#include <cstdlib>
#include <filesystem>

namespace sluice::testing {

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

}  // namespace sluice::testing
