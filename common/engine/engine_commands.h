#ifndef SLUICE_COMMON_ENGINE_ENGINE_COMMANDS_H_
#define SLUICE_COMMON_ENGINE_ENGINE_COMMANDS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "common/base/status.h"
#include "common/core/generate_request.h"
#include "common/core/ids.h"
#include "common/core/step_plan.h"

namespace sluice {

// The commands in EngineLoop's inbox: an accepted request,
struct Submission {
  SequenceId id;
  std::string request_id;
  GenerateRequest request;
  std::shared_ptr<TokenSink> sink;
  int64_t pushed_ns = 0;  // of a traced request
};
// the end of one,
struct CancelCommand {
  SequenceId id;
};
// the step of a sequence's constraint,
struct ConstraintReady {
  SequenceId id;
};
// a new pipeline,
struct PipelineUp {
  Epoch epoch;
  PlanLimits limits;
  int num_stages;
  LostStages lost;
};
// the news that one will be lost,
struct PipelineLeaving {};
// its loss,
struct PipelineLost {
  Status why;
  bool is_planned = false;  // its plans are not to blame
  bool is_final = false;    // its sequences end
};
// the news that a pipeline cannot be used, or an exception of the engine,
struct PipelineBroken {
  Status why;
  bool if_attached = false;   // without a pipeline the news is stale
  bool is_own_fault = false;  // an exception: the sequences cannot go on
};
// or the answer to a plan.
using EngineCommand =
    std::variant<Submission, CancelCommand, ConstraintReady, StepResult,
                 PipelineUp, PipelineLeaving, PipelineLost, PipelineBroken>;

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_ENGINE_COMMANDS_H_
