#ifndef SLUICE_TESTS_MODEL_PACKED_FILES_H_
#define SLUICE_TESTS_MODEL_PACKED_FILES_H_

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace sluice::testing {

// The files of packed weights below `folder`, sorted.
inline std::vector<std::filesystem::path> FilesIn(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".packed" && entry.is_regular_file()) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_PACKED_FILES_H_
