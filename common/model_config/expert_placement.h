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

// Experts of one layer that are together wherever they are.
struct PlacedExperts {
  ExpertRange experts;
  // Who has them, rising indices into ExpertPlacement::hosts: replicas of one
  // another. Empty: they stay on the stage that has the layer.
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
// A value. Every expert of every sparse layer stands in it once.
struct ExpertPlacement {
  std::vector<ExpertHost> hosts;
  // Per layer of the model, none in dense ones, rising by id; neighbours
  // differ in their hosts. Empty: every expert stays on its stage.
  std::vector<std::vector<PlacedExperts>> layers;

  // Ranges of `layer` that stay on the stage, rising, none touching another.
  // `num_experts`: of the layer, 0 in a dense one.
  std::vector<ExpertRange> Local(int32_t layer, int32_t num_experts) const;
  // Ranges of `layer` that host `host` has; none touches another.
  std::vector<ExpertRange> On(int32_t host, int32_t layer) const;
  // NOT_FOUND names the hosts that there are.
  StatusOr<int32_t> HostIndex(std::string_view name) const;
  // Whether a layer of [first, last) has remote experts.
  bool IsRemote(int32_t first_layer, int32_t last_layer) const;
  bool operator==(const ExpertPlacement&) const = default;
};

// INVALID_ARGUMENT names what, which, limit and value: malformed JSON, a host
// named twice or not at all, a layer or an expert that the model does not
// have, one that is placed twice (and where) or nowhere.
StatusOr<ExpertPlacement> ParseExpertPlacement(std::string_view text,
                                               const ModelConfig& config);
// The same of a file; NOT_FOUND if it cannot be read.
StatusOr<ExpertPlacement> ReadExpertPlacement(const std::string& path,
                                              const ModelConfig& config);
// JSON that reads back as `placement`, one line per entry.
std::string ToText(const ExpertPlacement& placement);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_EXPERT_PLACEMENT_H_
