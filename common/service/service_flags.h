#ifndef SLUICE_COMMON_SERVICE_SERVICE_FLAGS_H_
#define SLUICE_COMMON_SERVICE_SERVICE_FLAGS_H_

#include <string>

#include "common/base/status.h"

namespace sluice {

// Sets the Abseil flags of a service from argv; those that argv leaves out from
// the environment (SLUICE_STAGE_KV_BLOCKS for --kv-blocks of `service`
// "stage"), else from the TOML file of --config or SLUICE_STAGE_CONFIG. The
// file has an option per line, `kv-blocks = 64`, `stages = ["a:1", "b:1"]`, and
// no tables. --print writes a text of the flags (DescribeFlags) and ends the
// process. An empty variable counts as none. INVALID_ARGUMENT names a source,
// an option and a value that do not fit. --help and --version end the process.
Status ParseServiceFlags(const std::string& service, int argc, char** argv);

}  // namespace sluice

#endif  // SLUICE_COMMON_SERVICE_SERVICE_FLAGS_H_
