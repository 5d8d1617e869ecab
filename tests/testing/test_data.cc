#include "tests/testing/test_data.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "common/base/check.h"

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

std::string ReadFileOrDie(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  SLUICE_CHECK(in.good());
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

}  // namespace sluice::testing
