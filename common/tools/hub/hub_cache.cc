#include "common/tools/hub/hub_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <set>
#include <utility>

#include "common/base/text_file.h"
#include "common/tools/hub/hub_model.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderPrefix = "models--";
constexpr std::string_view kUnfinished = ".incomplete";

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string FirstOf(std::string value, const std::string& otherwise) {
  return value.empty() ? otherwise : value;
}

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

Status CannotWrite(const fs::path& path, int error) {
  return Unavailable(path.string(), ": ", std::strerror(error));
}

StatusOr<int> OpenLock(const fs::path& path) {
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  if (failed)
    return Unavailable(path.parent_path().string(), ": ", failed.message());
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return CannotWrite(path, errno);
  return fd;
}

// "ORG/NAME" of "models--ORG--NAME"; empty for another folder.
std::string RepositoryIn(const std::string& folder) {
  if (!folder.starts_with(kFolderPrefix)) return "";
  const std::string name = folder.substr(kFolderPrefix.size());
  const size_t at = name.find("--");
  if (at == name.npos) return "";
  std::string repository = Cat(name.substr(0, at), "/", name.substr(at + 2));
  return ParseHubModel(repository).ok() ? repository : "";
}

uint64_t BytesAt(const fs::path& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size)
                                          : 0;
}

CachedSnapshot ReadSnapshot(const fs::path& folder) {
  CachedSnapshot snapshot;
  snapshot.commit = folder.filename().string();
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(folder, ignored)) {
    if (entry.is_directory(ignored)) continue;
    CachedFile file;
    file.path = entry.path().lexically_relative(folder).string();
    if (entry.is_symlink(ignored)) {
      file.blob = fs::read_symlink(entry.path(), ignored).filename().string();
    }
    file.bytes = BytesAt(entry.path());
    snapshot.bytes += file.bytes;
    snapshot.files.push_back(std::move(file));
  }
  std::sort(snapshot.files.begin(), snapshot.files.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  return snapshot;
}

// Adds the names of the revisions to the snapshots that they stand for.
void ReadRevisions(const fs::path& refs, CachedModel& model) {
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(refs, ignored)) {
    if (!entry.is_regular_file(ignored)) continue;
    const auto commit = ReadTextFile(entry.path().string());
    if (!commit.ok()) continue;
    for (CachedSnapshot& snapshot : model.snapshots) {
      if (snapshot.commit != Trimmed(*commit)) continue;
      snapshot.revisions.push_back(
          entry.path().lexically_relative(refs).string());
    }
  }
}

CachedModel ReadModel(const fs::path& folder, const std::string& repository) {
  CachedModel model;
  model.repository = repository;
  std::error_code ignored;
  for (const auto& entry :
       fs::directory_iterator(folder / "snapshots", ignored)) {
    model.snapshots.push_back(ReadSnapshot(entry.path()));
  }
  std::sort(model.snapshots.begin(), model.snapshots.end(),
            [](const auto& a, const auto& b) { return a.commit < b.commit; });
  ReadRevisions(folder / "refs", model);
  for (const auto& entry : fs::directory_iterator(folder / "blobs", ignored)) {
    const bool whole = !entry.path().string().ends_with(kUnfinished);
    (whole ? model.bytes : model.unfinished_bytes) += BytesAt(entry.path());
  }
  return model;
}

}  // namespace

HubSettings HubSettingsOfEnvironment() {
  HubSettings settings;
  const std::string caches =
      FirstOf(Variable("XDG_CACHE_HOME"), Variable("HOME") + "/.cache");
  const std::string home =
      FirstOf(Variable("HF_HOME"), caches + "/huggingface");
  settings.cache =
      FirstOf(Variable("HF_HUB_CACHE"),
              FirstOf(Variable("HUGGINGFACE_HUB_CACHE"), home + "/hub"));
  settings.endpoint =
      FirstOf(Variable("HF_ENDPOINT"), "https://huggingface.co");
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  settings.token = Trimmed(Variable("HF_TOKEN"));
  if (settings.token.empty()) {
    const auto kept =
        ReadTextFile(FirstOf(Variable("HF_TOKEN_PATH"), home + "/token"));
    if (kept.ok()) settings.token = Trimmed(*kept);
  }
  std::string offline = Variable("HF_HUB_OFFLINE");
  std::transform(offline.begin(), offline.end(), offline.begin(), ::toupper);
  settings.offline = offline == "1" || offline == "ON" || offline == "YES" ||
                     offline == "TRUE";
  const std::string timeout = Variable("HF_HUB_DOWNLOAD_TIMEOUT");
  int seconds = 0;
  std::from_chars(timeout.data(), timeout.data() + timeout.size(), seconds);
  if (seconds > 0) settings.timeout_s = seconds;
  return settings;
}

StatusOr<LockedFile> LockedFile::TryLock(const fs::path& path) {
  SLUICE_ASSIGN_OR_RETURN(const int fd, OpenLock(path));
  LockedFile file(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return file;
  return FailedPrecondition(path.string(), ": is locked by another process");
}

StatusOr<LockedFile> LockedFile::Lock(const fs::path& path,
                                      const std::function<void()>& on_wait) {
  SLUICE_ASSIGN_OR_RETURN(const int fd, OpenLock(path));
  LockedFile file(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return file;
  if (on_wait) on_wait();
  while (::flock(fd, LOCK_EX) != 0) {
    if (errno != EINTR) return CannotWrite(path, errno);
  }
  return file;
}

LockedFile::LockedFile(LockedFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

LockedFile::~LockedFile() {
  if (fd_ >= 0) ::close(fd_);
}

fs::path HubCache::Model(const std::string& repository) const {
  std::string name(kFolderPrefix);
  for (const char c : repository) name += c == '/' ? "--" : std::string(1, c);
  return folder_ / name;
}

fs::path HubCache::Blob(const std::string& repository,
                        const std::string& name) const {
  return Model(repository) / "blobs" / name;
}

fs::path HubCache::Snapshot(const std::string& repository,
                            const std::string& commit) const {
  return Model(repository) / "snapshots" / commit;
}

fs::path HubCache::LockOf(const std::string& repository,
                          const std::string& name) const {
  return folder_ / ".locks" / Model(repository).filename() / (name + ".lock");
}

StatusOr<std::string> HubCache::CommitOf(const HubModel& model) const {
  if (IsCommit(model.revision)) return model.revision;
  const fs::path ref = Model(model.repository) / "refs" / model.revision;
  const auto text = ReadTextFile(ref.string());
  const std::string commit = text.ok() ? Trimmed(*text) : "";
  if (IsCommit(commit)) return commit;
  return NotFound(model.repository, "@", model.revision, " is not in ",
                  folder_.string());
}

Status HubCache::WriteRevision(const HubModel& model,
                               const std::string& commit) const {
  if (model.revision == commit) return OkStatus();
  const fs::path ref = Model(model.repository) / "refs" / model.revision;
  std::error_code failed;
  fs::create_directories(ref.parent_path(), failed);
  const fs::path made = Model(model.repository) / Cat(".ref-", ::getpid());
  SLUICE_RETURN_IF_ERROR(WriteTextFile(made.string(), commit));
  fs::rename(made, ref, failed);
  if (failed) return Unavailable(ref.string(), ": ", failed.message());
  return OkStatus();
}

Status HubCache::Link(const std::string& repository, const std::string& commit,
                      const std::string& file, const std::string& blob) const {
  const fs::path link = Snapshot(repository, commit) / file;
  const fs::path target =
      Blob(repository, blob).lexically_relative(link.parent_path());
  std::error_code failed;
  if (fs::read_symlink(link, failed) == target) return OkStatus();
  fs::create_directories(link.parent_path(), failed);
  const fs::path made = link.string() + Cat(".link-", ::getpid());
  fs::remove(made, failed);
  fs::create_symlink(target, made, failed);
  if (!failed) fs::rename(made, link, failed);
  if (failed) return Unavailable(link.string(), ": ", failed.message());
  return OkStatus();
}

StatusOr<std::vector<CachedModel>> HubCache::List() const {
  std::vector<CachedModel> models;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder_, failed)) {
    const std::string name = RepositoryIn(entry.path().filename().string());
    if (!name.empty()) models.push_back(ReadModel(entry.path(), name));
  }
  if (failed && failed != std::errc::no_such_file_or_directory) {
    return Unavailable(folder_.string(), ": ", failed.message());
  }
  std::sort(models.begin(), models.end(), [](const auto& a, const auto& b) {
    return a.repository < b.repository;
  });
  return models;
}

StatusOr<CachedModel> HubCache::Find(const std::string& repository) const {
  std::error_code ignored;
  if (!fs::is_directory(Model(repository), ignored)) {
    return NotFound(repository, " is not in ", folder_.string());
  }
  return ReadModel(Model(repository), repository);
}

Status HubCache::RemoveSnapshot(const CachedModel& found,
                                const std::string& commit) const {
  std::set<std::string> kept;
  const CachedSnapshot* removed = nullptr;
  for (const CachedSnapshot& snapshot : found.snapshots) {
    if (snapshot.commit == commit) removed = &snapshot;
    for (const CachedFile& file : snapshot.files) {
      if (snapshot.commit != commit) kept.insert(file.blob);
    }
  }
  if (removed == nullptr) {
    return NotFound(found.repository, "@", commit, " is not in ",
                    folder_.string());
  }
  const fs::path model = Model(found.repository);
  std::error_code failed;
  for (const std::string& revision : removed->revisions) {
    fs::remove(model / "refs" / revision, failed);
  }
  fs::remove_all(Snapshot(found.repository, commit), failed);
  for (const CachedFile& file : removed->files) {
    if (file.blob.empty() || kept.contains(file.blob)) continue;
    fs::remove(model / "blobs" / file.blob, failed);
  }
  if (failed) return Unavailable(model.string(), ": ", failed.message());
  return OkStatus();
}

StatusOr<uint64_t> HubCache::Remove(const HubModel& model,
                                    bool only_revision) const {
  SLUICE_ASSIGN_OR_RETURN(const CachedModel found, Find(model.repository));
  const auto lock = LockedFile::TryLock(LockOf(model.repository, "pull"));
  if (!lock.ok()) {
    return FailedPrecondition(model.repository,
                              " is being pulled by another process");
  }
  const fs::path folder = Model(model.repository);
  const uint64_t before = found.bytes + found.unfinished_bytes;
  if (only_revision) {
    SLUICE_ASSIGN_OR_RETURN(const std::string commit, CommitOf(model));
    SLUICE_RETURN_IF_ERROR(RemoveSnapshot(found, commit));
    const CachedModel left = ReadModel(folder, model.repository);
    if (!left.snapshots.empty()) {
      return before - left.bytes - left.unfinished_bytes;
    }
  }
  std::error_code failed;
  fs::remove_all(folder, failed);
  if (failed) return Unavailable(folder.string(), ": ", failed.message());
  return before;
}

}  // namespace sluice
