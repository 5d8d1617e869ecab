#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_RESPLIT_OPTIONS_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_RESPLIT_OPTIONS_H_

#include <chrono>

#include "common/base/clock.h"

namespace sluice {

// When the stages that are there split the layers anew; see StageResplit.
struct ResplitOptions {
  // How long a place may be without a process before the other stages split the
  // layers anew; zero: they never do.
  Duration shrink_after = std::chrono::seconds(10);
  // How long a process must have been there without a break before it joins. A
  // pipeline that shrinks soon after it has grown waits twice as long the next
  // time, and so on.
  Duration grow_after = std::chrono::seconds(10);
  // Whether stages that take over layers by plan copy their keys and values;
  // else these are computed again.
  bool moves_kv = true;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_RESPLIT_OPTIONS_H_
