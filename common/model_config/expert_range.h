#ifndef SLUICE_COMMON_MODEL_CONFIG_EXPERT_RANGE_H_
#define SLUICE_COMMON_MODEL_CONFIG_EXPERT_RANGE_H_

#include <cstdint>

namespace sluice {

// Experts [begin, end) of a layer, by id.
struct ExpertRange {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t size() const { return end - begin; }
  bool operator==(const ExpertRange&) const = default;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_EXPERT_RANGE_H_
