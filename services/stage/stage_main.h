#ifndef SLUICE_SERVICES_STAGE_STAGE_MAIN_H_
#define SLUICE_SERVICES_STAGE_STAGE_MAIN_H_

#include "common/stage/stage.h"

namespace sluice::stage {

// The main function of a stage's process, whose ranks compute on what
// `make_backends` makes. Returns the exit code.
int StageMain(int argc, char** argv, const BackendFactory& make_backends);

}  // namespace sluice::stage

#endif  // SLUICE_SERVICES_STAGE_STAGE_MAIN_H_
