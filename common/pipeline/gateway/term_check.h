#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_TERM_CHECK_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_TERM_CHECK_H_

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/pipeline/gateway/stage_process.h"

namespace sluice {

// Returns the term of most of the stages that have welcomed the gateway, which
// is one more of them with `own`, its latest pipeline's term (0: it had none),
// and at least `own`. Of two that differ it is the lower one, which leads no
// stage astray. An own term far above all stages' counts for nothing: the
// stages that it came from are gone.
uint64_t TermOfMost(const StageProcesses& stages, uint64_t own);

// FAILED_PRECONDITION, with what resets it, if the term of a stage is too far
// above or below `most`.
Status CheckTerm(const StageFacts& stage, uint64_t most);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_TERM_CHECK_H_
