#ifndef SLUICE_COMMON_TOOLS_HUB_CHOOSE_FILES_H_
#define SLUICE_COMMON_TOOLS_HUB_CHOOSE_FILES_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/tools/hub/hub_protocol.h"

namespace sluice {

inline constexpr char kSafetensorsFile[] = "model.safetensors";
inline constexpr char kSafetensorsIndex[] = "model.safetensors.index.json";

// What is fetched of a repository.
struct ChosenFiles {
  std::vector<std::string> small;    // config, tokenizer, index
  std::vector<std::string> weights;  // a GGUF's parts in order; of safetensors
                                     // the one file, else by the index
  // Within the snapshot: the GGUF, the first of a split set; empty: the folder.
  std::string model;
};

// A GGUF of a repository, or a split set of some.
struct GgufSet {
  std::string name;                // that ORG/NAME:QUANT may have as QUANT
  std::vector<std::string> files;  // parts in order
};

// Returns a listing's GGUFs, by name.
std::vector<GgufSet> ListGgufs(const HubListing& listing);

// Chooses from a listing what serving the model needs: safetensors with config
// and tokenizer, or one GGUF. With `quant` the GGUF of that name; without one
// safetensors, else the only GGUF, else that of Q4_K_M. Of indexed safetensors
// `weights` is empty: ShardsOf knows them when the index is there. NOT_FOUND
// names what there is.
StatusOr<ChosenFiles> ChooseFiles(const HubListing& listing,
                                  const std::string& quant);

// Returns the shards that an index names, in order; `index` is its text.
// INVALID_ARGUMENT for a shard that the repository does not have.
StatusOr<std::vector<std::string>> ShardsOf(const std::string& index,
                                            const HubListing& listing);

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_HUB_CHOOSE_FILES_H_
