#ifndef SLUICE_COMMON_HUB_HUB_PROTOCOL_H_
#define SLUICE_COMMON_HUB_HUB_PROTOCOL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/hub/hub_cache.h"
#include "common/hub/hub_client.h"
#include "common/hub/hub_model.h"

namespace sluice {

// A file of a repository, as the hub lists it.
struct HubFile {
  std::string path;
  uint64_t bytes = 0;
  // The name of its blob: SHA-256 of a file in LFS, git's SHA-1 of another.
  // Empty: the list has none, and CompleteFile asks for it.
  std::string etag;
};

// A repository at one commit.
struct HubListing {
  std::string commit;
  std::vector<HubFile> files;

  const HubFile* Find(const std::string& path) const;
};

// Asks the hub for the files of a model at its revision. All names are
// checked. Errors say what a person can do: accept a licence, set HF_TOKEN,
// correct a name.
StatusOr<HubListing> ListHubModel(const HubSettings& settings,
                                  HubClient& client, const HubModel& model);

// Returns where a file of a commit is fetched from.
std::string FileUrl(const HubSettings& settings, const std::string& repository,
                    const std::string& commit, const std::string& file);

// Asks for size and etag of a file whose listing has none.
Status CompleteFile(const HubSettings& settings, HubClient& client,
                    const HubModel& model, const std::string& commit,
                    HubFile& file);

// Returns what a person can do about a refused request for the model.
Status Explained(const Status& refused, const HubSettings& settings,
                 const HubModel& model);

}  // namespace sluice

#endif  // SLUICE_COMMON_HUB_HUB_PROTOCOL_H_
