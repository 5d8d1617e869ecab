#include "common/weights/packed_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "common/base/cat.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/weights/xxh64.h"

namespace sluice::weights {
namespace {

constexpr char kMarksName[] = "in-use";
constexpr std::string_view kPacked = ".packed";
constexpr std::string_view kDraft = ".packed.tmp";
constexpr char kUsersFolder[] = "/sluice/packed";
constexpr char kUsersModels[] = "/sluice/models";
constexpr char kBesideName[] = "sluice.packed";
constexpr std::string_view kOwn = "uid-";
// What another process may take to make room; a live one takes milliseconds.
constexpr Duration kTurn = std::chrono::seconds(10);
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// Closes a descriptor.
class Closed {
 public:
  explicit Closed(int fd) : fd_(fd) {}
  ~Closed() {
    if (fd_ >= 0) ::close(fd_);
  }
  Closed(const Closed&) = delete;
  Closed& operator=(const Closed&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// The lock of one byte of the marks; `below`: of BASE/uid-N.
struct flock MarkOf(const std::string& below, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(Xxh64(below.data(), below.size()) &
                                    ((uint64_t{1} << 62) - 1));
  lock.l_len = 1;
  return lock;
}

// True if a process has marked the file.
bool IsMarked(int marks, const std::string& below) {
  if (marks < 0) return false;
  struct flock lock = MarkOf(below, F_WRLCK);
  return ::fcntl(marks, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// The names in a folder.
std::vector<std::string> NamesIn(int folder) {
  std::vector<std::string> names;
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = copy < 0 ? nullptr : ::fdopendir(copy);
  if (entries == nullptr) {
    if (copy >= 0) ::close(copy);
    return names;
  }
  while (const dirent* entry = ::readdir(entries)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(entries);
  std::sort(names.begin(), names.end());
  return names;
}

// True if a process writes the draft.
bool IsWritten(int folder, const std::string& name) {
  const Closed draft(::openat(folder, name.c_str(),  // NFS: to lock alone
                              O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (draft.get() < 0) return true;
  return ::flock(draft.get(), LOCK_EX | LOCK_NB) != 0;
}

// A file of one user: KeptFile::below is of BASE/uid-N.
struct Found {
  KeptFile file;
  uint64_t missing = 0;  // of a draft: bytes that its disk does not have yet
};

// One user's files: BASE/uid-N as an open folder.
class UsersFiles {
 public:
  UsersFiles(int root, std::string path)
      : root_(root),
        path_(std::move(path)),
        marks_(::openat(root, kMarksName,
                        O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)) {}

  // Sorted by time of use: first those not used for longest.
  std::vector<Found> List() const {
    std::vector<Found> files;
    for (const std::string& name : NamesIn(root_)) {
      if (Add(root_, "", name, files)) continue;
      const Closed folder(::openat(root_, name.c_str(), kFolderFlags));
      if (folder.get() < 0) continue;
      for (const std::string& inner : NamesIn(folder.get())) {
        Add(folder.get(), name + "/", inner, files);
      }
    }
    std::stable_sort(files.begin(), files.end(),
                     [](const Found& a, const Found& b) {
                       return a.file.used < b.file.used;
                     });
    return files;
  }

  bool Remove(const Found& found) const {
    const std::string& below = found.file.below;
    const size_t slash = below.find('/');
    if (slash == std::string::npos) {
      return ::unlinkat(root_, below.c_str(), 0) == 0;
    }
    const std::string model = below.substr(0, slash);
    const Closed folder(::openat(root_, model.c_str(), kFolderFlags));
    return folder.get() >= 0 &&
           ::unlinkat(folder.get(), below.substr(slash + 1).c_str(), 0) == 0;
  }

 private:
  // Adds a file of packed weights; false for a name of another kind.
  bool Add(int folder, const std::string& under, const std::string& name,
           std::vector<Found>& to) const {
    Found found;
    found.file.is_draft = name.ends_with(kDraft);
    if (!found.file.is_draft && !name.ends_with(kPacked)) return false;
    struct stat info;
    if (::fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode)) {
      return true;
    }
    found.file.below = under + name;
    found.file.path = path_ + "/" + found.file.below;
    found.file.bytes = static_cast<uint64_t>(info.st_size);
    found.file.used = static_cast<double>(info.st_mtim.tv_sec) +
                      1e-9 * static_cast<double>(info.st_mtim.tv_nsec);
    found.file.in_use = found.file.is_draft
                            ? IsWritten(folder, name)
                            : IsMarked(marks_.get(), found.file.below);
    const uint64_t there = static_cast<uint64_t>(info.st_blocks) * 512;
    // Whole files may be compressed, and take less than they have.
    if (found.file.is_draft) {
      found.missing = found.file.bytes - std::min(there, found.file.bytes);
    }
    to.push_back(std::move(found));
    return true;
  }

  const int root_;
  const std::string path_;
  const Closed marks_;
};

std::string Megabytes(uint64_t bytes) {
  return Cat(bytes / 1000000, ".", bytes / 100000 % 10, " MB");
}

// What a new file lacks of a bound: bytes to be removed, and its name.
struct Lack {
  uint64_t bytes = 0;
  std::string bound;
};

// By the bounds of bytes. `taken`: by files within the bound.
Lack LackOfBytes(uint64_t taken, uint64_t bytes, uint64_t most) {
  const uint64_t all = taken + bytes;
  if (all <= most) return {};
  return {all - most, Cat(Megabytes(most), " may be kept (--packed-gb)")};
}

// By the disk's own. `promised`: bytes that drafts will take.
Lack LackOfDisk(int folder, uint64_t promised, uint64_t bytes, double share) {
  struct statvfs disk = {};
  if (::fstatvfs(folder, &disk) != 0) return {};
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  const auto stays =
      static_cast<uint64_t>(share * static_cast<double>(disk.f_blocks) *
                            static_cast<double>(disk.f_frsize));
  const uint64_t needed = stays + promised + bytes;
  if (needed <= free) return {};
  return {needed - free, Cat(Megabytes(free), " of the disk are free, ",
                             Megabytes(stays), " of them stay so")};
}

// One process at a time makes room and promises it to its draft.
Status TakeTurn(int turn, const OwnFolder& folder) {
  const TimePoint begin = Clock::now();
  while (::flock(turn, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return Unavailable(folder.root_path(),
                         ": cannot be locked: ", std::strerror(errno));
    }
    if (Clock::now() - begin >= kTurn) {
      return Unavailable(folder.root_path(), ": its lock is held for ",
                         Seconds(kTurn), " s");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return OkStatus();
}

// The user's cache; "" without a home.
std::string UsersCache() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  if (cache != nullptr && *cache == '/') return cache;
  if (home == nullptr || *home != '/') return "";
  return Cat(home, "/.cache");
}

}  // namespace

UseMarks::UseMarks(const OwnFolder& folder)
    : below_(folder.below().empty() ? "" : folder.below() + "/") {
  constexpr int kFlags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  fd_ = ::openat(folder.root(), kMarksName, O_RDWR | O_CREAT | kFlags, 0600);
  if (fd_ < 0) fd_ = ::openat(folder.root(), kMarksName, O_RDONLY | kFlags);
}

UseMarks::~UseMarks() {
  if (fd_ >= 0) ::close(fd_);
}

void UseMarks::Mark(const std::string& name, const RandomAccessFile& file) {
  if (fd_ >= 0) {
    struct flock lock = MarkOf(below_ + name, F_RDLCK);
    (void)::fcntl(fd_, F_OFD_SETLK, &lock);
  }
  const timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
  (void)::futimens(file.descriptor(), now);  // of root's, not this user's
}

Status MakeRoom(const OwnFolder& folder, const PackedBounds& bounds,
                uint64_t bytes, PackedDraft& draft) {
  const Closed turn(::openat(folder.root(), ".", kFolderFlags));
  SLUICE_RETURN_IF_ERROR(TakeTurn(turn.get(), folder));
  const UsersFiles files(folder.root(), folder.root_path());
  const std::string under = folder.below().empty() ? "" : folder.below() + "/";
  const std::string own = under + draft.name();
  const std::vector<Found> all = files.List();
  const auto in_bound = [&](const Found& found) {
    return bounds.max_bytes.has_value() || found.file.below.starts_with(under);
  };
  const auto is_own = [&](const Found& found) {
    return found.file.below.starts_with(own);  // the file or its draft
  };
  uint64_t taken = 0;
  uint64_t promised = 0;
  for (const Found& found : all) {
    if (is_own(found)) continue;
    promised += found.missing;
    if (in_bound(found)) taken += found.file.bytes;
  }
  Lack kept =
      LackOfBytes(taken, bytes, bounds.max_bytes.value_or(bounds.model_bytes));
  Lack disk = LackOfDisk(folder.root(), promised, bytes, bounds.free_share);
  std::vector<const Found*> goes;
  for (const Found& found : all) {
    if (kept.bytes == 0 && disk.bytes == 0) break;
    if (is_own(found) || found.file.in_use) continue;
    const bool helps = in_bound(found) || disk.bytes > 0;
    if (!helps) continue;
    goes.push_back(&found);
    if (in_bound(found)) kept.bytes -= std::min(kept.bytes, found.file.bytes);
    disk.bytes -= std::min(disk.bytes, found.file.bytes);
  }
  for (const Lack* lack : {&kept, &disk}) {
    if (lack->bytes == 0) continue;
    return ResourceExhausted(draft.name(), ": takes ", Megabytes(bytes), ", ",
                             lack->bound, "; what else is there is in use");
  }
  for (const Found* found : goes) {
    if (!files.Remove(*found)) continue;
    LogInfo("removes ", found->file.path, ", ", Megabytes(found->file.bytes),
            ", to keep ", draft.name());
  }
  return draft.Resize(bytes);
}

std::string UsersPackedFolder() {
  const std::string cache = UsersCache();
  return cache.empty() ? "" : cache + kUsersFolder;
}

std::vector<std::string> UsersPackedFolders() {
  const std::string cache = UsersCache();
  if (cache.empty()) return {};
  std::vector<std::string> folders = PackedFoldersAt(cache + kUsersModels);
  folders.push_back(cache + kUsersFolder);
  return folders;
}

std::vector<std::string> PackedFoldersAt(const std::string& path) {
  std::vector<std::string> folders;
  if (path.empty()) return folders;
  const std::string beside = Cat(path, ".", kBesideName);
  struct stat info;
  if (::stat(beside.c_str(), &info) == 0) folders.push_back(beside);
  const Closed folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return folders;
  folders.push_back(path);
  for (const std::string& name : NamesIn(folder.get())) {
    const bool own =
        name == kBesideName || name.ends_with(Cat(".", kBesideName));
    if (own) folders.push_back(path + "/" + name);
  }
  return folders;
}

std::vector<KeptFile> ListPacked(const std::string& base) {
  std::vector<KeptFile> listed;
  const Closed folder(::open(base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return listed;
  for (const std::string& name : NamesIn(folder.get())) {
    if (!name.starts_with(kOwn)) continue;
    const Closed root(::openat(folder.get(), name.c_str(), kFolderFlags));
    if (root.get() < 0) continue;
    for (Found& found : UsersFiles(root.get(), base + "/" + name).List()) {
      found.file.below = name + "/" + found.file.below;
      listed.push_back(std::move(found.file));
    }
  }
  std::sort(
      listed.begin(), listed.end(),
      [](const KeptFile& a, const KeptFile& b) { return a.path < b.path; });
  return listed;
}

std::vector<KeptFile> PrunePacked(const std::string& base,
                                  const PruneOptions& options) {
  std::vector<KeptFile> removed;
  const Closed folder(::open(base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return removed;
  for (const std::string& name : NamesIn(folder.get())) {
    if (!name.starts_with(kOwn)) continue;
    const Closed root(::openat(folder.get(), name.c_str(), kFolderFlags));
    if (root.get() < 0) continue;
    const UsersFiles files(root.get(), base + "/" + name);
    for (Found& found : files.List()) {
      const bool old = options.now - found.file.used >= options.unused_for;
      if (!old || found.file.in_use || !files.Remove(found)) continue;
      found.file.below = name + "/" + found.file.below;
      removed.push_back(std::move(found.file));
    }
  }
  return removed;
}

}  // namespace sluice::weights
