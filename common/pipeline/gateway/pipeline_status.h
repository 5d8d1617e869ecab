#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_STATUS_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_STATUS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/core/gateway_role.h"
#include "common/core/ids.h"
#include "common/core/stage_identity.h"
#include "common/pipeline/gateway/stage_clock.h"

namespace sluice {

enum class StageState {
  kConnecting,
  kLoading,      // reachable, reads its weights
  kHandshaking,  // has sent Welcome; the epoch is being assigned
  kReady,
  kSuspect,   // silent for a while
  kDraining,  // was told to end; takes no new sequences
  kLost,      // lost; the gateway connects again
  kRefused,   // does not fit, or refuses the gateway; see the message
};

// "connecting", "loading", ...
const char* ToString(StageState state);

// A stage's account of its work, with each heartbeat. Counts begin with the
// process, steps_done with each epoch.
struct StageLoad {
  uint64_t steps_done = 0;
  int32_t queue_depth = 0;
  Duration busy{};  // computing, since the process began
  // To the next stage and back, a mean over the latest steps; zero: unknown.
  Duration hop{};
  // Some of its remote experts have no host that answers.
  bool experts_missing = false;
};

// The facts are the stage's latest, also when it is lost; no layers: unknown.
struct StageStatus : StageFacts {
  StageLoad load;
  StageState state = StageState::kConnecting;
  std::string message;    // why it is not ready; empty when it is
  Duration drain_left{};  // draining: the longest time for which it takes steps
  Duration last_heard{};  // since its last message
  Duration rtt{};         // of the latest heartbeat
  ClockEstimate clock;    // its monotonic clock against the gateway's
};

// Shown by /readyz and /cluster. A copy, taken at one moment.
struct PipelineStatus {
  bool ready = false;
  Epoch epoch;          // of the pipeline that is up or being assigned
  std::string message;  // why it is not ready; empty when it is
  Duration down{};      // the time without a pipeline; zero: it is up
  // From the latest loss of a pipeline to the next one; zero: none yet.
  Duration last_recovery{};
  // Of stages with none missing. With fewer, the layers were split anew.
  size_t full_count = 0;
  uint64_t shrinks = 0;  // times that the layers were split over fewer stages
  uint64_t growths = 0;  // and over more
  GatewayRole role = GatewayRole::kCandidate;
  uint64_t takeovers = 0;           // times that this gateway began to lead
  std::vector<StageStatus> stages;  // by place
  std::vector<StageStatus> spares;  // processes without a place
  // The facts of the latest pipeline.
  std::optional<StageFacts> model;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_STATUS_H_
