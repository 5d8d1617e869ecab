#include "common/weights/own_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iomanip>
#include <sstream>
#include <system_error>

#include "common/base/cat.h"
#include "common/base/log.h"
#include "common/base/random_bytes.h"

namespace sluice::weights {
namespace {

constexpr char kSecretName[] = "secret";
constexpr size_t kSecretBytes = 32;
constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

Status Refused(const std::string& path, const std::string& rule) {
  return MakeStatus(StatusCode::kPermissionDenied, path, ": ", rule);
}

// Of opening `path`; `what` is "file" or "folder".
Status CannotOpen(const std::string& path, const char* what, int error) {
  if (error == ENOENT) return NotFound(path, ": no such ", what);
  if (error == ELOOP) return Refused(path, "is a symbolic link");
  if (error == ENOTDIR) return Refused(path, "is no folder, or a link to it");
  if (error == EACCES || error == EPERM) {
    return Refused(path, "this user may not read it");
  }
  return Unavailable(path, ": cannot be opened: ", std::strerror(error));
}

// A descriptor that is closed unless it is taken.
class OpenDescriptor {
 public:
  explicit OpenDescriptor(int fd) : fd_(fd) {}
  OpenDescriptor(OpenDescriptor&& other) noexcept : fd_(other.Take()) {}
  ~OpenDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenDescriptor& operator=(const OpenDescriptor&) = delete;
  int get() const { return fd_; }
  int Take() { return std::exchange(fd_, -1); }
  void Swap(OpenDescriptor& other) { std::swap(fd_, other.fd_); }

 private:
  int fd_;
};

std::string Octal(mode_t mode) {
  std::ostringstream out;
  out << std::oct << std::setfill('0') << std::setw(4) << (mode & 07777);
  return out.str();
}

// Removes the files of a folder that others could write. Folders in it are
// checked when they are opened.
void Empty(int fd, const std::string& path) {
  const int copy = ::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = copy < 0 ? nullptr : ::fdopendir(copy);
  if (entries == nullptr) {
    if (copy >= 0) ::close(copy);
    return;
  }
  while (const dirent* entry = ::readdir(entries)) {
    ::unlinkat(fd, entry->d_name, 0);  // fails for folders, which stay
  }
  ::closedir(entries);
  LogWarning(path, ": was writable by others; its files are made anew");
}

// Opens the folder `name` of `parent`, which is believed from here on.
StatusOr<OpenDescriptor> OpenFolder(int parent, const std::string& name,
                                    const std::string& path, bool make) {
  if (make && ::mkdirat(parent, name.c_str(), 0700) != 0 && errno != EEXIST) {
    return Unavailable(path, ": cannot be made: ", std::strerror(errno));
  }
  OpenDescriptor fd(::openat(parent, name.c_str(),
                             O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.get() < 0) return CannotOpen(path, "folder", errno);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return CannotOpen(path, "folder", errno);
  const bool opened = (info.st_mode & kOthersWrite) != 0;
  if (opened && info.st_uid == ::geteuid() && ::fchmod(fd.get(), 0700) == 0) {
    Empty(fd.get(), path);
    if (::fstat(fd.get(), &info) != 0) return CannotOpen(path, "folder", errno);
  }
  const std::string rule = DistrustOf(info);
  if (!rule.empty()) return Refused(path, rule);
  return fd;
}

}  // namespace

std::string DistrustOf(const struct stat& info) {
  const uid_t user = ::geteuid();
  if (info.st_uid != user && info.st_uid != 0) {
    return Cat("is of user ", info.st_uid, ", not of ", user,
               user == 0 ? "" : " or root");
  }
  if ((info.st_mode & kOthersWrite) == 0) return "";
  return Cat("is writable by ",
             (info.st_mode & S_IWOTH) != 0 ? "everybody" : "its group",
             " (mode ", Octal(info.st_mode), ")");
}

StatusOr<std::shared_ptr<const OwnFolder>> OwnFolder::Open(
    const std::string& base, const std::string& below, Missing missing) {
  const bool make = missing == Missing::kMake;
  if (make) {
    std::error_code error;
    std::filesystem::create_directories(base, error);
    if (error) {
      return Unavailable(base, ": cannot be made: ", error.message());
    }
  }
  // The operator names the base: links on the way to it are the operator's.
  const OpenDescriptor parent(
      ::open(base.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (parent.get() < 0) return CannotOpen(base, "folder", errno);
  const std::string name = Cat("uid-", ::geteuid());
  const std::string path = base + "/" + name;
  SLUICE_ASSIGN_OR_RETURN(OpenDescriptor root,
                          OpenFolder(parent.get(), name, path, make));
  OpenDescriptor inner(-1);
  if (!below.empty()) {
    SLUICE_ASSIGN_OR_RETURN(
        OpenDescriptor opened,
        OpenFolder(root.get(), below, Cat(path, "/", below), make));
    inner.Swap(opened);
  }
  const int fd = below.empty() ? root.get() : inner.Take();
  std::shared_ptr<OwnFolder> folder(
      new OwnFolder(path, root.Take(), below, fd));
  Status secret = folder->ReadSecret();
  if (!secret.ok() && make) {
    // A secret that cannot be read or believed proves nothing.
    const bool replaces = secret.code() != StatusCode::kNotFound;
    SLUICE_RETURN_IF_ERROR(folder->MakeSecret(replaces));
    secret = folder->ReadSecret();
  }
  if (!secret.ok()) return secret;
  return std::shared_ptr<const OwnFolder>(std::move(folder));
}

OwnFolder::~OwnFolder() {
  if (fd_ != root_) ::close(fd_);
  ::close(root_);
}

StatusOr<std::unique_ptr<RandomAccessFile>> OwnFolder::OpenFile(
    const std::string& name) const {
  const std::string path = PathOf(name);
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  OpenDescriptor fd(::openat(fd_, name.c_str(),
                             O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return CannotOpen(path, "file", errno);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return CannotOpen(path, "file", errno);
  const std::string rule = DistrustOf(info);
  if (!rule.empty()) return Refused(path, rule);
  return RandomAccessFile::Adopt(path, fd.Take());
}

Status OwnFolder::ReadSecret() {
  SLUICE_ASSIGN_OR_RETURN(const auto file, OpenFile(kSecretName));
  if (file->size() != kSecretBytes) {
    return DataLoss(file->path(), ": has ", file->size(), " bytes, not ",
                    kSecretBytes);
  }
  secret_.resize(kSecretBytes);
  return file->ReadAt(0, kSecretBytes, secret_.data());
}

Status OwnFolder::MakeSecret(bool replaces) const {
  const std::string draft = Cat(kSecretName, "-", RandomHex(16));
  OpenDescriptor fd(::openat(fd_, draft.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const std::string bytes = RandomBytes(kSecretBytes);
  const bool written =
      fd.get() >= 0 && ::write(fd.get(), bytes.data(), kSecretBytes) ==
                           static_cast<ssize_t>(kSecretBytes);
  bool kept = false;
  if (written && replaces) {
    kept = ::renameat(fd_, draft.c_str(), fd_, kSecretName) == 0;
  } else if (written) {
    // Another process may have been faster.
    kept = ::linkat(fd_, draft.c_str(), fd_, kSecretName, 0) == 0 ||
           errno == EEXIST;
  }
  const int error = errno;
  ::unlinkat(fd_, draft.c_str(), 0);
  if (kept) return OkStatus();
  return Unavailable(PathOf(kSecretName),
                     ": cannot be written: ", std::strerror(error));
}

}  // namespace sluice::weights
