#ifndef SLUICE_COMMON_TOOLS_HUB_PULL_H_
#define SLUICE_COMMON_TOOLS_HUB_PULL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/tools/hub/hub_cache.h"
#include "common/tools/hub/hub_model.h"

namespace sluice {

// Is told how a pull fares; threadless.
class PullObserver {
 public:
  virtual ~PullObserver() = default;
  virtual void OnNote(const std::string& note) = 0;  // a line for people
  virtual void OnFile(const std::string& path, uint64_t bytes) = 0;
  // Bytes of weights that are there, of those that are needed.
  virtual void OnBytes(uint64_t done, uint64_t total) = 0;
};

struct PulledModel {
  std::string path;  // what is served: the snapshot's folder, or its GGUF
  std::string commit;
  uint64_t bytes = 0;    // of all files
  uint64_t fetched = 0;  // of those, what was not here before
};

// Chooses those shards of an indexed model that are fetched, by the snapshot's
// folder, which has config, tokenizer and the outlines of all other shards.
using ChooseShards = std::function<StatusOr<std::vector<std::string>>(
    const std::string& folder)>;

// Fetches what serving `model` needs into the cache, and nothing else. What is
// there stays; cut downloads go on. RESOURCE_EXHAUSTED before the first byte if
// the disk has no room. Two pulls of one model wait for each other. Offline:
// what is in the cache, or NOT_FOUND. With `choose`, of a model whose weights
// are in shards, only the shards that it names; of others all.
StatusOr<PulledModel> PullModel(const HubSettings& settings,
                                const HubModel& model, PullObserver& observer,
                                const ChooseShards& choose = nullptr);

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_HUB_PULL_H_
