#include "services/cli/launcher.h"

#include <filesystem>
#include <system_error>

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

// As deploy/local/cluster/installation.py has them.
constexpr const char* kLauncher = "share/sluice/launcher";
constexpr const char* kPython = "lib/sluice/python/bin/python3";
constexpr const char* kPythonOptions = "-ISB";

}  // namespace

StatusOr<std::vector<std::string>> LauncherCommand(
    const std::vector<std::string>& words) {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path prefix = here.parent_path();
  if (fs::exists(prefix / kLauncher / "__main__.py", error)) {
    const fs::path python = prefix / kPython;
    std::vector<std::string> argv = {
        fs::exists(python, error) ? python.string() : "python3", kPythonOptions,
        (prefix / kLauncher).string()};
    argv.insert(argv.end(), words.begin(), words.end());
    return argv;
  }
  for (fs::path folder = here;; folder = folder.parent_path()) {
    const fs::path script = folder / "deploy/local" / words[0];
    if (fs::exists(script, error)) {
      std::vector<std::string> argv = words;
      argv[0] = script.string();
      return argv;
    }
    if (folder == folder.parent_path()) break;
  }
  return NotFound("the launcher is not beside this binary: neither ", kLauncher,
                  " in ", prefix.string(), " nor deploy/local/", words[0],
                  " in a folder above it");
}

}  // namespace sluice::cli
