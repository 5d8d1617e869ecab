#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_STREAM_BREAKS_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_STREAM_BREAKS_H_

#include <chrono>
#include <map>
#include <string>

#include "common/base/clock.h"

namespace sluice {

// A process whose streams from one peer broke in so many pipelines in a row
// that were up for a short time alone may answer for ever and carry nothing, as
// one does in which a thread of gRPC could not start.
inline constexpr int kMostBreaks = 2;
inline constexpr Duration kShortPipeline = std::chrono::seconds(30);

// How often the streams of plans and results broke, by stage and peer. One
// thread.
class StreamBreaks {
 public:
  // Notes that a stream of `stage` from `peer` (addresses; empty: the gateway)
  // broke, in a pipeline that was up for `lived`. Returns whether that has
  // happened kMostBreaks times in a row.
  bool Add(const std::string& stage, const std::string& peer, Duration lived) {
    if (lived >= kShortPipeline) counts_.clear();
    return ++counts_[stage][peer] >= kMostBreaks;
  }
  // The process of `stage` may be another one.
  void Forget(const std::string& stage) { counts_.erase(stage); }

 private:
  std::map<std::string, std::map<std::string, int>> counts_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STREAM_BREAKS_H_
