#ifndef SLUICE_COMMON_WEIGHTS_PACKED_STORE_H_
#define SLUICE_COMMON_WEIGHTS_PACKED_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/weights/file.h"
#include "common/weights/own_folder.h"
#include "common/weights/packed_file.h"

// The files of packed weights of one user below a folder BASE (own_folder.h):
// BASE/uid-N/*.packed and BASE/uid-N/MODEL/*.packed, drafts with ".tmp" behind.
// A file's time of change is when it was last used. Byte H of the file
// BASE/uid-N/in-use has a read lock while a process has loaded the file whose
// path below BASE/uid-N has the XXH64 H (its low 62 bits).
namespace sluice::weights {

// Of a disk, what packed weights leave free.
inline constexpr double kFreeShare = 0.1;

// A file on disk. A value.
struct KeptFile {
  std::string path;   // whole
  std::string below;  // of BASE
  uint64_t bytes = 0;
  double used = 0;        // Unix time
  bool in_use = false;    // by a live process
  bool is_draft = false;  // not finished
};

// Tells other processes which files this process uses, until it ends or the
// object does. One thread at a time.
class UseMarks {
 public:
  // Of the files of `folder`. Never fails: on a file system without locks, or
  // in a folder of root, no file is marked.
  explicit UseMarks(const OwnFolder& folder);
  ~UseMarks();
  UseMarks(const UseMarks&) = delete;
  UseMarks& operator=(const UseMarks&) = delete;

  // Marks a file of the folder, and notes when it is used.
  void Mark(const std::string& name, const RandomAccessFile& file);

 private:
  const std::string below_;  // of the folder: "" or "MODEL/"
  int fd_ = -1;
};

// How much the files may take.
struct PackedBounds {
  // Of all models together; else `model_bytes` for each.
  std::optional<uint64_t> max_bytes;
  uint64_t model_bytes = 0;
  double free_share = kFreeShare;
};

// Makes room for the file of `draft` and gives the draft its size, `bytes`:
// removes what was not used for longest, never what is in use.
// RESOURCE_EXHAUSTED names the bound if that is not enough; then nothing is
// removed.
Status MakeRoom(const OwnFolder& folder, const PackedBounds& bounds,
                uint64_t bytes, PackedDraft& draft);

// Returns where packed weights are if they cannot be beside their model:
// ${XDG_CACHE_HOME:-~/.cache}/sluice/packed; "" without a home.
std::string UsersPackedFolder();
// Returns that folder, and those of the models in the user's cache, of which
// deploy/local/up fetches the default one. Empty without a home.
std::vector<std::string> UsersPackedFolders();
// Returns the folders BASE at `path`: beside the model or the models that it
// is or has, or itself, as given to --packed.
std::vector<std::string> PackedFoldersAt(const std::string& path);

// Lists the files of all users below `base` that this user may read, by path.
// Empty without the folder.
std::vector<KeptFile> ListPacked(const std::string& base);

struct PruneOptions {
  double unused_for = 0;  // seconds; younger files stay
  double now = 0;         // Unix time
};
// Removes files that no process uses, and returns those.
std::vector<KeptFile> PrunePacked(const std::string& base,
                                  const PruneOptions& options);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_PACKED_STORE_H_
