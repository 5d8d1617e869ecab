#include "services/cli/launcher.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

// As deploy/local/cluster/installation.py has them.
constexpr const char* kShare = "share/sluice/";
constexpr const char* kPython = "lib/sluice/python/bin/python3";
constexpr const char* kPythonOptions = "-ISB";

fs::path FolderOfThisBinary() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

// Returns `path` in the nearest folder above this binary that has it; empty:
// there is none.
fs::path FindAbove(const fs::path& path) {
  std::error_code error;
  for (fs::path folder = FolderOfThisBinary();; folder = folder.parent_path()) {
    if (fs::exists(folder / path, error)) return folder / path;
    if (folder == folder.parent_path()) return {};
  }
}

// Returns the argv that runs a folder with a __main__.py of this installation
// or checkout.
std::vector<std::string> Interpreted(const fs::path& folder,
                                     const std::vector<std::string>& words) {
  std::error_code error;
  const fs::path python = FolderOfThisBinary().parent_path() / kPython;
  std::vector<std::string> argv = {
      fs::exists(python, error) ? python.string() : "python3", kPythonOptions,
      folder.string()};
  argv.insert(argv.end(), words.begin(), words.end());
  return argv;
}

// Returns share/sluice/NAME of the installation; empty where there is none.
fs::path Installed(const std::string& name) {
  std::error_code error;
  const fs::path folder =
      FolderOfThisBinary().parent_path() / Cat(kShare, name);
  return fs::exists(folder / "__main__.py", error) ? folder : fs::path();
}

Status NotBeside(const std::string& what, const std::string& name,
                 const std::string& checkout) {
  return NotFound(what, " is not beside this binary: neither ", kShare, name,
                  " in ", FolderOfThisBinary().parent_path().string(), " nor ",
                  checkout, " in a folder above it");
}

}  // namespace

StatusOr<std::vector<std::string>> LauncherCommand(
    const std::vector<std::string>& words) {
  const fs::path installed = Installed("launcher");
  if (!installed.empty()) return Interpreted(installed, words);
  const std::string checkout = Cat("deploy/local/", words[0]);
  const fs::path script = FindAbove(checkout);
  if (script.empty()) return NotBeside("the launcher", "launcher", checkout);
  std::vector<std::string> argv = words;
  argv[0] = script.string();
  return argv;
}

StatusOr<std::vector<std::string>> PythonProgram(
    const std::string& name, const std::string& checkout,
    const std::vector<std::string>& words) {
  fs::path folder = Installed(name);
  if (folder.empty()) folder = FindAbove(fs::path(checkout) / "__main__.py");
  if (folder.empty()) return NotBeside(name, name, checkout);
  if (folder.filename() == "__main__.py") folder = folder.parent_path();
  return Interpreted(folder, words);
}

Status Become(std::vector<std::string> argv) {
  std::vector<char*> pointers;
  for (std::string& word : argv) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  return Internal("running ", argv[0], ": ", std::strerror(errno));
}

}  // namespace sluice::cli
