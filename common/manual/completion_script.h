#ifndef SLUICE_COMMON_MANUAL_COMPLETION_SCRIPT_H_
#define SLUICE_COMMON_MANUAL_COMPLETION_SCRIPT_H_

#include <string>

#include "common/base/status.h"
#include "common/manual/program.h"

namespace sluice {

// Returns the script by which `shell` (bash, zsh or fish) completes a program's
// commands, options and values. It works both from the shell's folder of
// completions and by `source`. INVALID_ARGUMENT for another shell.
StatusOr<std::string> CompletionScript(const Program& program,
                                       const std::string& shell);

}  // namespace sluice

#endif  // SLUICE_COMMON_MANUAL_COMPLETION_SCRIPT_H_
