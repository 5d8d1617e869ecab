#ifndef SLUICE_COMMON_MODEL_CONFIG_EXPERT_PLACEMENT_H_
#define SLUICE_COMMON_MODEL_CONFIG_EXPERT_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/model_config/expert_range.h"

namespace sluice {

struct ModelConfig;

// A process that serves experts.
struct ExpertHost {
  std::string name;     // letters, digits, ".", "_", "-"; never "local"
  std::string address;  // host:port; may be empty until the host is started
  bool operator==(const ExpertHost&) const = default;
};

// Experts of one layer that share their hosts.
struct PlacedExperts {
  ExpertRange experts;
  // Indices into ExpertPlacement::hosts, rising: replicas of one another.
  // Empty: the experts stay on the stage of the layer.
  std::vector<int32_t> hosts;
  bool operator==(const PlacedExperts&) const = default;
};

// Which experts of a model are on which hosts. As JSON, ranges with both ends
// included, "local" for the stage itself, layers without experts left out:
//
//   {"hosts": [{"name": "a", "address": "10.0.0.5:7101"},
//              {"name": "b", "address": "10.0.0.6:7101"}],
//    "experts": [{"layers": "1-45", "experts": "0-63", "hosts": ["a", "b"]},
//                {"layers": "1-45", "experts": "64-127", "hosts": ["local"]}]}
//
// A value. The placement names each expert of each sparse layer once.
struct ExpertPlacement {
  std::vector<ExpertHost> hosts;
  // By layer of the model, rising by id; a dense layer has no entries.
  // Neighbours differ in their hosts. Empty: every expert stays on its stage.
  std::vector<std::vector<PlacedExperts>> layers;

  // Returns the ranges of `layer` that stay on the stage, rising and apart.
  // `num_experts` is the layer's, 0 for a dense one.
  std::vector<ExpertRange> Local(int32_t layer, int32_t num_experts) const;
  // Returns the ranges of `layer` that host `host` holds, apart.
  std::vector<ExpertRange> On(int32_t host, int32_t layer) const;
  // Returns the host's index. NOT_FOUND lists the known hosts.
  StatusOr<int32_t> HostIndex(std::string_view name) const;
  // Returns whether a layer of [first, last) has remote experts.
  bool IsRemote(int32_t first_layer, int32_t last_layer) const;
  bool operator==(const ExpertPlacement&) const = default;
};

// Parses a placement for a model. INVALID_ARGUMENT names what, which, limit and
// value: malformed JSON, a host listed twice or not at all, an unknown layer or
// expert, an expert placed twice (with both places) or nowhere.
StatusOr<ExpertPlacement> ParseExpertPlacement(std::string_view text,
                                               const ModelConfig& config);
// Reads a placement file. NOT_FOUND for an unreadable file; errors as above.
StatusOr<ExpertPlacement> ReadExpertPlacement(const std::string& path,
                                              const ModelConfig& config);
// Returns JSON that reads back as `placement`, one line per entry.
std::string ToText(const ExpertPlacement& placement);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_EXPERT_PLACEMENT_H_
