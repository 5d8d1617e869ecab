#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "services/cli/commands.h"

namespace sluice::cli {

Status RunScript(const std::string& script, const Words& words) {
  namespace fs = std::filesystem;
  // The scripts are in the checkout that this binary was built in.
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  while (!fs::exists(folder / "deploy/local" / script, error)) {
    if (folder == folder.parent_path()) {
      return NotFound("deploy/local/", script,
                      " is in no folder above this binary: run it from a "
                      "checkout");
    }
    folder = folder.parent_path();
  }
  const std::string path = (folder / "deploy/local" / script).string();
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
  return Internal("running ", path, ": ", std::strerror(errno));
}

}  // namespace sluice::cli
