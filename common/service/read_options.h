#ifndef SLUICE_COMMON_SERVICE_READ_OPTIONS_H_
#define SLUICE_COMMON_SERVICE_READ_OPTIONS_H_

#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/service/service_program.h"

namespace sluice {

// What a command line says.
struct GivenOptions {
  // Rows and their texts, none with a flaw. A later text goes before an earlier
  // one of its row.
  std::vector<std::pair<const OptionRow*, std::string>> texts;
  // What is to be written in the place of running: "help", "version", or the
  // word of --print. Empty: the service is to run.
  std::string asked;
};

// Returns the options that the file, then the environment, then `words` set:
// the environment has SLUICE_STAGE_KV_BLOCKS for --kv-blocks of "stage", where
// an empty variable counts as none. The TOML file, that of --config or
// SLUICE_STAGE_CONFIG, has an option per line, `kv-blocks = 64`, `stages =
// ["a:1", "b:1"]`, and no tables. Who asks for a text other than the values
// gets no file read, which may be bad.
//
// Words: --kv-blocks 8, --kv-blocks=8, with one dash or '_' for '-', too; a
// switch --open, --open=false, --noopen. The last one counts. INVALID_ARGUMENT
// names a source, an option and a value that do not fit, whatever the range.
StatusOr<GivenOptions> ReadOptions(const ServiceProgram& program,
                                   const std::vector<std::string>& words);

// Sets the variables, in the order of the table. INVALID_ARGUMENT for a value
// beyond its range.
Status ApplyOptions(const ServiceProgram& program, const GivenOptions& given);

}  // namespace sluice

#endif  // SLUICE_COMMON_SERVICE_READ_OPTIONS_H_
