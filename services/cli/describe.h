#ifndef SLUICE_SERVICES_CLI_DESCRIBE_H_
#define SLUICE_SERVICES_CLI_DESCRIBE_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/manual/program.h"

namespace sluice::cli {

// Returns the commands of `sluice` as their CLI11 definitions have them,
// without hidden ones; those of the launcher have its options if `launcher` is
// set: INVALID_ARGUMENT or UNAVAILABLE if it does not describe itself.
StatusOr<Program> DescribeProgram(const CLI::App& sluice,
                                  const std::string& version, bool launcher);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_DESCRIBE_H_
