#ifndef SLUICE_KERNELS_CUDA_SHARED_EXPERT_GROUPS_H_
#define SLUICE_KERNELS_CUDA_SHARED_EXPERT_GROUPS_H_

#include <cstdint>

namespace sluice::kernels::cuda {

// Tokens that read a weight at once.
inline constexpr int kTileTokens = 4;

// Slots of one expert whose rows are multiplied together.
struct ExpertGroup {
  int32_t expert;  // from the first one at hand
  int32_t slot;
  int32_t slots;  // 1 to GroupedRows::tile_rows
};

// A list of groups and slots of pairs of a row and an expert, by rising expert,
// then pair.
struct ExpertPlan {
  ExpertGroup* groups = nullptr;
  int32_t* num_groups = nullptr;
  int32_t* slots = nullptr;  // [pairs]; negative: another's
  int32_t* rows = nullptr;   // [pairs]: a slot's row
};
// Pairs of a row whose router makes the list.
inline constexpr int kMostPlanned = 32;

// The products of experts: group g's rows with its expert's weight. All
// pointers are the device's.
struct GroupedRows {
  const ExpertGroup* groups = nullptr;  // null: a product of one weight
  const int32_t* num_groups = nullptr;
  const int32_t* rows = nullptr;  // a slot's row of x; null: the slot itself
  const void* const* weights = nullptr;  // an expert's
  // Groups of other experts than [begin, end) are left out.
  int32_t begin = 0;
  int32_t end = 0;
  // Of a group or, in a product of one weight, of a tile, at most.
  int32_t tile_rows = kTileTokens;
  int32_t unused = 0;  // no bytes between members: see LaunchList
};

// Groups of experts whose weights have one shape and type. The host knows no
// group, so it says how many there may be.
struct ExpertRun {
  GroupedRows grouped;
  int64_t max_groups = 0;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_EXPERT_GROUPS_H_
