#ifndef SLUICE_COMMON_TOOLS_HUB_HUB_PROTOCOL_H_
#define SLUICE_COMMON_TOOLS_HUB_HUB_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "common/tools/hub/hub_cache.h"
#include "common/tools/hub/hub_client.h"
#include "common/tools/hub/hub_model.h"

namespace sluice {

// A file of a repository, as the hub lists it.
struct HubFile {
  std::string path;
  uint64_t bytes = 0;
  // The name of its blob: SHA-256 of a file in LFS, git's SHA-1 of another.
  // Empty: the list has none, and CompleteFile asks for it.
  std::string etag;
};

// The largest size of a file, and of the files of one pull together: a size
// beyond it is a hub's error, and sums of sizes stay far below 2^64.
inline constexpr uint64_t kMaxHubBytes = uint64_t{1} << 50;

// A repository at one commit. A value.
class HubListing {
 public:
  // INVALID_ARGUMENT if the listing has a file of this path.
  Status Add(HubFile file);
  // Null: there is no such file. Takes constant time.
  const HubFile* Find(const std::string& path) const;
  const std::vector<HubFile>& files() const { return files_; }

  std::string commit;

 private:
  std::vector<HubFile> files_;
  std::unordered_map<std::string, size_t> by_path_;  // of files_
};

// Asks the hub for the files of a model at its revision. All names are
// checked. Errors say what a person can do: accept a licence, set HF_TOKEN,
// correct a name.
StatusOr<HubListing> ListHubModel(const HubSettings& settings,
                                  HubClient& client, const HubModel& model);

// Returns where a file of a commit is fetched from.
std::string FileUrl(const HubSettings& settings, const std::string& repository,
                    const std::string& commit, const std::string& file);

// Asks for size and etag of a file whose listing has none. INVALID_ARGUMENT for
// a size above kMaxHubBytes.
Status CompleteFile(const HubSettings& settings, HubClient& client,
                    const HubModel& model, const std::string& commit,
                    HubFile& file);

// Returns what a person can do about a refused request for the model.
Status Explained(const Status& refused, const HubSettings& settings,
                 const HubModel& model);

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_HUB_HUB_PROTOCOL_H_
