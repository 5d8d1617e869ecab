#ifndef SLUICE_COMMON_EXPERTS_HOST_EXPERT_CHOICE_H_
#define SLUICE_COMMON_EXPERTS_HOST_EXPERT_CHOICE_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/model/hosted_experts.h"
#include "common/model_config/model_config.h"

namespace sluice {

// The experts of a model that a host serves, by its flags: either `experts` or
// a placement file with the host's name in it.
struct ExpertChoice {
  // "3-10:0-63,3-10:96-127": layers, colon, expert ids, both ends included; a
  // single number or "all" for either. "all" alone: every expert.
  std::string experts;
  std::string placement;  // path of an ExpertPlacement
  std::string host;       // in it
};

// Returns the chosen experts, neighbouring ranges joined. INVALID_ARGUMENT
// names text that cannot be read, layers without experts, ids out of range, or
// an expert that is named twice; NOT_FOUND names a missing placement or host.
StatusOr<std::vector<LayerRanges>> ChooseExperts(const ExpertChoice& choice,
                                                 const ModelConfig& config);

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_HOST_EXPERT_CHOICE_H_
