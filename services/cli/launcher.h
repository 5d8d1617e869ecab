#ifndef SLUICE_SERVICES_CLI_LAUNCHER_H_
#define SLUICE_SERVICES_CLI_LAUNCHER_H_

#include <string>
#include <vector>

#include "common/base/status.h"

namespace sluice::cli {

// Returns the argv that runs `words` by the launcher of this binary's Sluice:
// "up", "down" or "certificates", and options. Below the prefix of an
// installation that is share/sluice/launcher, which an interpreter runs: a
// bundle's own, else python3. In a checkout it is the script of deploy/local,
// which builds before it starts. NOT_FOUND where there is neither.
StatusOr<std::vector<std::string>> LauncherCommand(
    const std::vector<std::string>& words);

// Returns the argv that runs a Python program of this binary's Sluice with
// `words`: a folder with a __main__.py, share/sluice/NAME of an installation or
// `checkout` in a folder above this binary. NOT_FOUND where there is neither.
StatusOr<std::vector<std::string>> PythonProgram(
    const std::string& name, const std::string& checkout,
    const std::vector<std::string>& words);

// Replaces this process by the program; returns on failure alone.
Status Become(std::vector<std::string> argv);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_LAUNCHER_H_
