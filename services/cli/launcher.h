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

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_LAUNCHER_H_
