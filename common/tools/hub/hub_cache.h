#ifndef SLUICE_COMMON_TOOLS_HUB_HUB_CACHE_H_
#define SLUICE_COMMON_TOOLS_HUB_HUB_CACHE_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/tools/hub/hub_model.h"

namespace sluice {

// What the environment says of the hub, by Hugging Face's names.
struct HubSettings {
  std::string cache;     // HF_HUB_CACHE, or "hub" in HF_HOME
  std::string endpoint;  // HF_ENDPOINT, without a slash at the end
  std::string token;     // HF_TOKEN, or the file HF_TOKEN_PATH
  bool offline = false;  // HF_HUB_OFFLINE
  int timeout_s = 10;    // HF_HUB_DOWNLOAD_TIMEOUT
};
HubSettings HubSettingsOfEnvironment();

// A file that is locked until the object ends, with flock, as Hugging Face's
// own tools lock it.
class LockedFile {
 public:
  // Waits for other processes; calls `on_wait` first if there is one.
  // UNAVAILABLE if the file cannot be made.
  static StatusOr<LockedFile> Lock(const std::filesystem::path& path,
                                   const std::function<void()>& on_wait);
  // FAILED_PRECONDITION if another process has it.
  static StatusOr<LockedFile> TryLock(const std::filesystem::path& path);
  ~LockedFile();
  LockedFile(LockedFile&& other) noexcept;
  LockedFile& operator=(LockedFile&&) = delete;

 private:
  explicit LockedFile(int fd) : fd_(fd) {}
  int fd_;
};

struct CachedFile {
  std::string path;  // within the snapshot
  std::string blob;  // its name; empty: the file is none
  uint64_t bytes = 0;
};
// One commit of a model, as far as it was fetched.
struct CachedSnapshot {
  std::string commit;
  std::vector<std::string> revisions;  // branches and tags that stand for it
  std::vector<CachedFile> files;       // by path
  uint64_t bytes = 0;
};
struct CachedModel {
  std::string repository;
  std::vector<CachedSnapshot> snapshots;  // by commit
  uint64_t bytes = 0;                     // of blobs
  uint64_t unfinished_bytes = 0;          // of downloads that were cut
};

// A folder of models in the layout of Hugging Face's cache:
// models--ORG--NAME/{blobs,refs,snapshots}, the files of a snapshot links to
// blobs, and locks in .locks. A value; several processes may use one folder.
class HubCache {
 public:
  explicit HubCache(std::string folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path Model(const std::string& repository) const;
  std::filesystem::path Blob(const std::string& repository,
                             const std::string& name) const;
  std::filesystem::path Snapshot(const std::string& repository,
                                 const std::string& commit) const;
  // The lock of a blob, or of the whole model: "pull".
  std::filesystem::path LockOf(const std::string& repository,
                               const std::string& name) const;

  // The commit of the model's revision when it was last fetched. NOT_FOUND if
  // it never was.
  StatusOr<std::string> CommitOf(const HubModel& model) const;
  Status WriteRevision(const HubModel& model, const std::string& commit) const;
  // Makes `file` of a snapshot a relative link to a blob.
  Status Link(const std::string& repository, const std::string& commit,
              const std::string& file, const std::string& blob) const;

  StatusOr<std::vector<CachedModel>> List() const;
  // NOT_FOUND if nothing of the model is here.
  StatusOr<CachedModel> Find(const std::string& repository) const;
  // Removes a model; with `only_revision` one snapshot, with the blobs that no
  // other one has. Returns the bytes that are free again. FAILED_PRECONDITION
  // while the model is being pulled.
  StatusOr<uint64_t> Remove(const HubModel& model, bool only_revision) const;

 private:
  Status RemoveSnapshot(const CachedModel& found,
                        const std::string& commit) const;

  const std::filesystem::path folder_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_HUB_HUB_CACHE_H_
