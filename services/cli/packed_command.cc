// The command packed.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/cat.h"
#include "common/tools/hub/hub_cache.h"
#include "common/weights/packed_store.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"

namespace sluice::cli {
namespace {

constexpr double kDay = 24 * 60 * 60;

struct PackedCommand {
  std::vector<std::string> paths;
  bool prune = false;
  double unused_days = 0;
};

// What one folder has.
struct FolderUse {
  int files = 0;
  uint64_t bytes = 0;
  uint64_t bytes_in_use = 0;
  double used = 0;  // latest
};

double PackedMegabytes(uint64_t bytes) {
  return static_cast<double>(bytes) * 1e-6;
}

// Returns the folders that may have packed weights, without a path: the
// user's, and those beside the models of the user's and of the hub's cache.
StatusOr<std::vector<std::string>> UsualFolders() {
  std::vector<std::string> folders = weights::UsersPackedFolders();
  const HubCache cache(HubSettingsOfEnvironment().cache);
  SLUICE_ASSIGN_OR_RETURN(const std::vector<CachedModel> models, cache.List());
  for (const CachedModel& model : models) {
    for (const CachedSnapshot& snapshot : model.snapshots) {
      const auto beside = weights::PackedFoldersAt(
          cache.Snapshot(model.repository, snapshot.commit));
      folders.insert(folders.end(), beside.begin(), beside.end());
    }
  }
  return folders;
}

StatusOr<std::vector<std::string>> FoldersOf(const PackedCommand& command) {
  if (command.paths.empty()) return UsualFolders();
  std::vector<std::string> folders;
  for (const std::string& path : command.paths) {
    const auto at = weights::PackedFoldersAt(path);
    if (at.empty()) {
      return NotFound(path, ": is no folder, and no model with packed weights");
    }
    folders.insert(folders.end(), at.begin(), at.end());
  }
  return folders;
}

std::string TimeText(double time) {
  const auto seconds = static_cast<time_t>(time);
  tm local = {};
  char text[32] = "";
  if (::localtime_r(&seconds, &local) != nullptr) {
    std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &local);
  }
  return text;
}

void Print(const std::vector<weights::KeptFile>& files) {
  std::map<std::string, FolderUse> folders;
  for (const weights::KeptFile& file : files) {
    FolderUse& use = folders[file.path.substr(0, file.path.rfind('/'))];
    ++use.files;
    use.bytes += file.bytes;
    if (file.in_use) use.bytes_in_use += file.bytes;
    use.used = std::max(use.used, file.used);
  }
  std::printf("%6s %12s %12s  %-16s  %s\n", "files", "MB", "in use",
              "last used", "folder");
  for (const auto& [folder, use] : folders) {
    std::printf("%6d %12.1f %12.1f  %-16s  %s\n", use.files,
                PackedMegabytes(use.bytes), PackedMegabytes(use.bytes_in_use),
                TimeText(use.used).c_str(), folder.c_str());
  }
}

Status RunPacked(const PackedCommand& command) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> folders,
                          FoldersOf(command));
  weights::PruneOptions options;
  options.unused_for = command.unused_days * kDay;
  options.now = static_cast<double>(std::time(nullptr)) + 1;
  uint64_t removed = 0;
  std::vector<weights::KeptFile> kept;
  for (const std::string& folder : folders) {
    if (command.prune) {
      for (const auto& file : weights::PrunePacked(folder, options)) {
        removed += file.bytes;
      }
    }
    const auto listed = weights::ListPacked(folder);
    kept.insert(kept.end(), listed.begin(), listed.end());
  }
  if (command.prune) {
    std::fprintf(stderr, "removed %.1f MB\n", PackedMegabytes(removed));
  }
  Print(kept);
  return OkStatus();
}

Status Check(const PackedCommand& command) {
  if (command.prune || command.unused_days == 0) return OkStatus();
  return InvalidArgument("--unused-days goes with --prune");
}

}  // namespace

void AddPacked(CommandLine& sluice) {
  const auto command = std::make_shared<PackedCommand>();
  CLI::App& packed = sluice.Add(
      "packed", "packed weights on disk, and what they take", [command] {
        SLUICE_RETURN_IF_ERROR(Check(*command));
        return RunPacked(*command);
      });
  packed.add_option("PATH", command->paths,
                    "models, or folders given to --packed; none: the user's "
                    "cache and the models in the hub's cache");
  packed.add_flag("--prune", command->prune,
                  "removes what no process uses; a later start packs it anew");
  packed
      .add_option("--unused-days", command->unused_days,
                  "with --prune, only what was not used for so many days")
      ->check(Within(0, 36500));
}

}  // namespace sluice::cli
