#include "tests/testing/test_data.h"

#include <cstdlib>
#include <filesystem>

namespace sluice::testing {

std::optional<std::string> TestData(std::string_view relative) {
  const char* root = std::getenv("SLUICE_TEST_DATA");
  const std::filesystem::path base =
      root != nullptr ? std::filesystem::path(root)
                      : std::filesystem::path(SLUICE_SOURCE_DIR) / "build/data";
  const std::filesystem::path path = base / relative;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  return path.lexically_normal().string();
}

}  // namespace sluice::testing
