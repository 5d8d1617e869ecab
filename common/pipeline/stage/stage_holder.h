#ifndef SLUICE_COMMON_PIPELINE_STAGE_STAGE_HOLDER_H_
#define SLUICE_COMMON_PIPELINE_STAGE_STAGE_HOLDER_H_

#include <cstdint>
#include <string>

#include "common/base/cat.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace sluice {

// The gateway that holds a stage, or held it last.
struct StageHolder {
  std::string id;    // for people
  std::string peer;  // its address; may be empty
  std::string secret;
  uint64_t hellos = 0;  // the count of the latest one
  TimePoint since{};
  TimePoint heard{};
  Duration lease{};      // silence after which the hold is over
  bool awaited = false;  // holds it to come back for layers

  // An error unless another gateway may have the stage at `now`. `has_stream`:
  // the holder's Control stream is open.
  Status CheckFree(bool has_stream, TimePoint now) const {
    if (!has_stream && !awaited) return OkStatus();
    if (now - heard >= lease) return OkStatus();
    return FailedPrecondition("this stage is held by another gateway",
                              peer.empty() ? "" : Cat(", at ", peer), ", for ",
                              static_cast<int64_t>(Seconds(now - since)), " s");
  }
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_STAGE_HOLDER_H_
