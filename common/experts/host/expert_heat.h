#ifndef SLUICE_COMMON_EXPERTS_HOST_EXPERT_HEAT_H_
#define SLUICE_COMMON_EXPERTS_HOST_EXPERT_HEAT_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/model/hosted_experts.h"

namespace sluice {

// The number of rows of each expert, since the start and lately, for pictures
// of the load. Any thread.
class ExpertHeat {
 public:
  // "Lately" is the running period and the one before.
  static constexpr std::chrono::seconds kPeriod{30};

  ExpertHeat(int32_t num_experts, const std::vector<LayerRanges>& held);

  // Counts rows of `layer`: one id for each row and expert.
  void Add(int32_t layer, const std::vector<int32_t>& expert_ids,
           TimePoint now = Clock::now());

  struct Layer {
    int32_t layer = 0;
    std::vector<int32_t> experts;  // ids held, rising
    std::vector<uint64_t> asks;    // of each, since the start
    std::vector<uint64_t> recent;  // of each, lately
    // The most recent rows of one expert over the mean; 0 without recent rows.
    double skew() const;
    int32_t active() const;  // experts with rows lately
  };
  std::vector<Layer> Snapshot(TimePoint now = Clock::now());

  // {"layers": [{"layer": 3, "experts": [0, ..], "asks": [..], "recent":
  // [..]}, ..], "num_experts": 128, "recent_seconds": 60}
  std::string Json();

 private:
  struct Counts {
    std::vector<int32_t> experts;
    std::vector<uint64_t> asks;                    // by id
    std::array<std::vector<uint64_t>, 2> periods;  // by id: running, before
  };
  void Turn(TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int32_t num_experts_;
  Mutex mutex_;
  std::map<int32_t, Counts> layers_ ABSL_GUARDED_BY(mutex_);
  TimePoint turned_ ABSL_GUARDED_BY(mutex_) = Clock::now();
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_HOST_EXPERT_HEAT_H_
