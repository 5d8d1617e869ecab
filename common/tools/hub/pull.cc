#include "common/tools/hub/pull.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/base/text_file.h"
#include "common/tools/hub/choose_files.h"
#include "common/tools/hub/fetch_file.h"
#include "common/tools/hub/fetch_outline.h"
#include "common/tools/hub/hub_client.h"
#include "common/tools/hub/hub_protocol.h"
#include "common/weights/safetensors_outline.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kDiskReserve = uint64_t{16} << 20;  // left free

std::string Gigabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f GB",
                static_cast<double>(bytes) * 1e-9);
  return text;
}

// One pull, from the listing to the last link.
class Puller {
 public:
  Puller(const HubSettings& settings, const HubModel& model,
         PullObserver& observer, const ChooseShards& choose)
      : settings_(settings),
        model_(model),
        observer_(observer),
        choose_(choose),
        cache_(settings.cache),
        client_({settings.endpoint,
                 IsPrivateEndpoint(settings.endpoint) ? settings.token : "",
                 settings.timeout_s,
                 [&observer](const std::string& why, double seconds) {
                   observer.OnNote(Cat(why, "; again in ", seconds, " s"));
                 }}) {}

  StatusOr<PulledModel> Run();

 private:
  Status Prepare(const std::vector<std::string>& paths);
  Status CheckRoom() const;
  // Fetches the files that Prepare was given.
  Status FetchAll();
  Status Fetch(const HubFile& file);
  // Of an indexed model, the shards to fetch; the index is there.
  StatusOr<std::vector<std::string>> Shards();
  Status FetchOutlines(const std::vector<std::string>& shards);
  fs::path Folder() const {
    return cache_.Snapshot(model_.repository, listing_.commit);
  }
  std::string BlobOf(const HubFile& file) const {
    return cache_.Blob(model_.repository, file.etag).string();
  }

  const HubSettings& settings_;
  const HubModel& model_;
  PullObserver& observer_;
  const ChooseShards& choose_;
  const HubCache cache_;
  HubClient client_;
  HubListing listing_;
  std::vector<HubFile> files_;  // to fetch next
  PulledModel pulled_;
  bool is_weights_ = false;  // of which the observer is told
  uint64_t done_ = 0;        // bytes of files_
  uint64_t total_ = 0;
};

// Completes the entries of `paths` and counts their bytes.
Status Puller::Prepare(const std::vector<std::string>& paths) {
  files_.clear();
  total_ = 0;
  done_ = 0;
  for (const std::string& path : paths) {
    const HubFile* listed = listing_.Find(path);
    HubFile& file = files_.emplace_back(*listed);
    SLUICE_RETURN_IF_ERROR(
        CompleteFile(settings_, client_, model_, listing_.commit, file));
    if (file.bytes > kMaxHubBytes - total_) {
      return InvalidArgument(model_.repository, ": its files, with '", path,
                             "', take more than the limit of ", kMaxHubBytes,
                             " bytes");
    }
    total_ += file.bytes;
    pulled_.bytes += file.bytes;
    pulled_.fetched += file.bytes - BytesHere(BlobOf(file), file);
  }
  return CheckRoom();
}

Status Puller::CheckRoom() const {
  uint64_t needed = 0;
  for (const HubFile& file : files_) {
    needed += file.bytes - BytesHere(BlobOf(file), file);
  }
  std::error_code failed;
  const fs::space_info space = fs::space(cache_.folder(), failed);
  if (failed) {
    return Unavailable(cache_.folder().string(), ": ", failed.message());
  }
  if (needed == 0 || space.available >= needed + kDiskReserve) {
    return OkStatus();
  }
  return ResourceExhausted(
      model_.repository, ": ", Gigabytes(needed), " are to be fetched, ",
      cache_.folder().string(), " has room for ", Gigabytes(space.available),
      ": not begun. HF_HOME names another disk, `sluice list` "
      "what could be removed");
}

Status Puller::Fetch(const HubFile& file) {
  const std::string blob = BlobOf(file);
  observer_.OnFile(file.path, file.bytes);
  const uint64_t before = done_;
  const auto tell = [&](uint64_t bytes) {
    done_ = std::min(before + bytes, total_);
    if (is_weights_) observer_.OnBytes(done_, total_);
  };
  SLUICE_ASSIGN_OR_RETURN(
      const LockedFile lock,
      LockedFile::Lock(cache_.LockOf(model_.repository, file.etag), [&] {
        observer_.OnNote(Cat(file.path,
                             " is being fetched by another "
                             "process: waiting for it"));
      }));
  std::error_code ignored;
  const bool here = fs::file_size(blob, ignored) == file.bytes && !ignored;
  if (!here) {
    uint64_t came = 0;
    const Status fetched = FetchFile(
        client_,
        FileUrl(settings_, model_.repository, listing_.commit, file.path), file,
        blob, [&](uint64_t count) { tell(came += count); });
    if (!fetched.ok()) return Explained(fetched, settings_, model_);
  }
  tell(file.bytes);
  return cache_.Link(model_.repository, listing_.commit, file.path, file.etag);
}

Status Puller::FetchAll() {
  for (const HubFile& file : files_) SLUICE_RETURN_IF_ERROR(Fetch(file));
  return OkStatus();
}

Status Puller::FetchOutlines(const std::vector<std::string>& shards) {
  for (const std::string& shard : shards) {
    std::error_code ignored;
    if (fs::exists(Folder() / shard, ignored)) continue;
    HubFile file = *listing_.Find(shard);
    SLUICE_RETURN_IF_ERROR(
        CompleteFile(settings_, client_, model_, listing_.commit, file));
    const std::string path =
        (Folder() / shard).string() + weights::kOutlineSuffix;
    if (!fs::exists(path, ignored)) {
      observer_.OnNote(Cat("outline of ", shard));
    }
    const Status fetched = FetchOutline(
        client_, FileUrl(settings_, model_.repository, listing_.commit, shard),
        file, path);
    if (!fetched.ok()) return Explained(fetched, settings_, model_);
  }
  return OkStatus();
}

StatusOr<std::vector<std::string>> Puller::Shards() {
  SLUICE_ASSIGN_OR_RETURN(
      const std::string index,
      ReadTextFile((Folder() / kSafetensorsIndex).string()));
  SLUICE_ASSIGN_OR_RETURN(std::vector<std::string> shards,
                          ShardsOf(index, listing_));
  if (!choose_) return shards;
  SLUICE_RETURN_IF_ERROR(FetchOutlines(shards));
  return choose_(Folder().string());
}

StatusOr<PulledModel> Puller::Run() {
  std::error_code failed;
  fs::create_directories(cache_.Blob(model_.repository, "").parent_path(),
                         failed);
  if (failed) {
    return Unavailable(cache_.Model(model_.repository).string(), ": ",
                       failed.message());
  }
  SLUICE_ASSIGN_OR_RETURN(
      const LockedFile lock,
      LockedFile::Lock(cache_.LockOf(model_.repository, "pull"), [&] {
        observer_.OnNote(Cat(model_.repository,
                             " is being pulled by another "
                             "process: waiting for it"));
      }));
  if (!settings_.token.empty() && !IsPrivateEndpoint(settings_.endpoint)) {
    observer_.OnNote(Cat("HF_ENDPOINT ", settings_.endpoint,
                         " is not encrypted: HF_TOKEN is not sent to it; "
                         "https:// or a loopback address gets it"));
  }
  SLUICE_ASSIGN_OR_RETURN(listing_, ListHubModel(settings_, client_, model_));
  auto chosen = ChooseFiles(listing_, model_.quant);
  if (!chosen.ok()) return Annotate(chosen.status(), model_.repository);
  SLUICE_RETURN_IF_ERROR(Prepare(chosen->small));
  SLUICE_RETURN_IF_ERROR(FetchAll());
  if (chosen->model.empty() && chosen->weights.empty()) {
    SLUICE_ASSIGN_OR_RETURN(chosen->weights, Shards());
  }
  is_weights_ = true;
  SLUICE_RETURN_IF_ERROR(Prepare(chosen->weights));
  SLUICE_RETURN_IF_ERROR(FetchAll());
  SLUICE_RETURN_IF_ERROR(cache_.WriteRevision(model_, listing_.commit));
  pulled_.path =
      (chosen->model.empty() ? Folder() : Folder() / chosen->model).string();
  pulled_.commit = listing_.commit;
  return std::move(pulled_);
}

// A model as it is in the cache.
class CachedPull {
 public:
  CachedPull(const HubSettings& settings, const HubModel& model,
             const ChooseShards& choose)
      : model_(model), choose_(choose), cache_(settings.cache) {}

  StatusOr<PulledModel> Find() {
    PulledModel pulled;
    SLUICE_ASSIGN_OR_RETURN(pulled.commit, cache_.CommitOf(model_));
    folder_ = cache_.Snapshot(model_.repository, pulled.commit);
    SLUICE_ASSIGN_OR_RETURN(const CachedModel cached,
                            cache_.Find(model_.repository));
    for (const CachedSnapshot& snapshot : cached.snapshots) {
      if (snapshot.commit != pulled.commit) continue;
      pulled.bytes = snapshot.bytes;
      SLUICE_RETURN_IF_ERROR(Read(snapshot));
    }
    SLUICE_ASSIGN_OR_RETURN(const ChosenFiles chosen,
                            ChooseFiles(here_, model_.quant));
    if (chosen.model.empty() && chosen.weights.empty()) {
      SLUICE_RETURN_IF_ERROR(CheckShards());
    }
    pulled.path =
        (chosen.model.empty() ? folder_ : folder_ / chosen.model).string();
    return pulled;
  }

 private:
  Status Read(const CachedSnapshot& snapshot) {
    const std::string_view suffix = weights::kOutlineSuffix;
    for (const CachedFile& file : snapshot.files) {
      if (!file.blob.empty() && file.bytes > 0) {
        SLUICE_RETURN_IF_ERROR(here_.Add({file.path, file.bytes, file.blob}));
      } else if (file.path.ends_with(suffix)) {
        outlined_.push_back(
            file.path.substr(0, file.path.size() - suffix.size()));
      }
    }
    return OkStatus();
  }

  // Checks that the shards that are asked for are there.
  Status CheckShards() const {
    HubListing known = here_;
    for (const std::string& shard : outlined_) {
      if (known.Find(shard) != nullptr) continue;
      SLUICE_RETURN_IF_ERROR(known.Add({shard, 0, ""}));
    }
    SLUICE_ASSIGN_OR_RETURN(
        const std::string index,
        ReadTextFile((folder_ / kSafetensorsIndex).string()));
    SLUICE_ASSIGN_OR_RETURN(std::vector<std::string> shards,
                            ShardsOf(index, known));
    if (choose_) {
      SLUICE_ASSIGN_OR_RETURN(shards, choose_(folder_.string()));
    }
    for (const std::string& shard : shards) {
      if (here_.Find(shard) == nullptr) {
        return NotFound(shard, " of ", model_.repository, " is not here");
      }
    }
    return OkStatus();
  }

  const HubModel& model_;
  const ChooseShards& choose_;
  const HubCache cache_;
  fs::path folder_;
  HubListing here_;
  std::vector<std::string> outlined_;  // shards
};

}  // namespace

StatusOr<PulledModel> PullModel(const HubSettings& settings,
                                const HubModel& model, PullObserver& observer,
                                const ChooseShards& choose) {
  if (!settings.offline) {
    return Puller(settings, model, observer, choose).Run();
  }
  auto found = CachedPull(settings, model, choose).Find();
  if (found.ok()) return found;
  return Annotate(found.status(),
                  "HF_HUB_OFFLINE is set, so nothing is "
                  "fetched, and what is here does not do");
}

}  // namespace sluice
