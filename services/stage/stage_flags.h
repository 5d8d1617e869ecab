#ifndef SLUICE_SERVICES_STAGE_STAGE_FLAGS_H_
#define SLUICE_SERVICES_STAGE_STAGE_FLAGS_H_

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "common/base/option_row.h"
#include "common/base/status.h"
#include "services/stage/follower_server.h"
#include "services/stage/stage_server.h"

namespace sluice::stage {

// The variables of the process's options.
struct StageFlags {
  StageServerOptions server;  // a process with `lead` takes its own from it
  std::string layers;         // first-last, auto, assigned; empty: all
  int32_t stage_index = 0;
  int32_t num_stages = 1;
  std::string stage_memory;
  int32_t follower_ranks = 0;
  std::string lead;
  int32_t first_rank = 0;
  double spin_ms = -1;      // -1: UsualSpin
  int32_t step_tokens = 0;  // 0: chosen by the devices
  std::string port_file;
  Duration drain_timeout = std::chrono::seconds(60);
};

// Returns the table of the options, bound to `flags`.
OptionRows RowsOf(StageFlags& flags);

// Return the options of a stage, and of a process with `lead`, after the rows
// have set `flags`. `rows`: of these flags. INVALID_ARGUMENT for options that
// are missing, that do not go together, or that this machine cannot have.
StatusOr<StageServerOptions> ResolveStage(const StageFlags& flags);
StatusOr<FollowerOptions> ResolveFollower(const StageFlags& flags,
                                          const OptionRows& rows);

}  // namespace sluice::stage

#endif  // SLUICE_SERVICES_STAGE_STAGE_FLAGS_H_
