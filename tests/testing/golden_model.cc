#include "tests/testing/golden_model.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "common/base/cat.h"

namespace sluice::testing {

std::string GoldenModel(std::string_view name) {
  const char* root = std::getenv("SLUICE_GOLDEN");
  const std::filesystem::path base =
      root != nullptr
          ? std::filesystem::path(root)
          : std::filesystem::path(SLUICE_SOURCE_DIR) / "build/golden";
  const std::filesystem::path path = base / name;
  if (!std::filesystem::exists(path / "config.json")) {
    throw std::runtime_error(Cat("no golden model ", path.string(),
                                 ": tests/golden/make.py makes it"));
  }
  return path.string();
}

std::string SmolLm2Chats() {
  return SLUICE_SOURCE_DIR "/tests/golden/smollm2_chats.json";
}

std::vector<std::string> GoldenModelNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(SLUICE_SOURCE_DIR) / "tests/golden/recipes")) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace sluice::testing
