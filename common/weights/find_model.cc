#include "common/weights/find_model.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string_view>
#include <vector>

#include "common/weights/file.h"

namespace sluice::weights {
namespace {

constexpr size_t kMostNamed = 10;

bool IsProjector(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return name.find("mmproj") != std::string::npos;
}

// Whether the file is a model by its name or, without a suffix of its own, by
// its first bytes.
bool IsModel(const std::string& folder, const std::string& name) {
  if (name.ends_with(".gguf") || name.ends_with(kDllamaSuffix)) return true;
  return name.find('.') == std::string::npos &&
         IsGgufFile(Cat(folder, "/", name));
}

}  // namespace

bool IsGgufFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  struct stat info;
  char magic[4] = {};
  const bool is_gguf = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                       ::pread(fd, magic, sizeof(magic), 0) == sizeof(magic) &&
                       std::string_view(magic, sizeof(magic)) == "GGUF";
  ::close(fd);
  return is_gguf;
}

StatusOr<std::string> FindModelFile(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.c_str()),
                                                ::closedir);
  if (dir == nullptr) return NotFound(folder, ": cannot be read");
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string name = entry->d_name;
    const bool later_split = name.find("-of-") != std::string::npos &&
                             name.find("-00001-of-") == std::string::npos;
    if (!later_split && !IsProjector(name) && IsModel(folder, name)) {
      names.push_back(name);
    }
  }
  if (names.size() == 1) return Cat(folder, "/", names[0]);
  std::sort(names.begin(), names.end());
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) {
    list += Cat(i == 0 ? ": " : ", ", Quoted(names[i]));
  }
  return NotFound(folder, ": has ", names.size(),
                  " models in GGUF or .m files where one is expected", list);
}

}  // namespace sluice::weights
