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
  // Rows and texts that they can read. The last text of a row counts.
  std::vector<std::pair<const OptionRow*, std::string>> texts;
  // The text that is to be written in the place of running: "help", "version",
  // or the word of --print, as the last of such words asks. Empty: the service
  // is to run.
  std::string asked;
};

// Returns the options that the file, then the environment, then `words` set:
// the environment has SLUICE_STAGE_KV_BLOCKS for --kv-blocks of "stage", and an
// empty variable sets nothing. The TOML file, that of --config or
// SLUICE_STAGE_CONFIG, has an option per line, `kv-blocks = 64`, `stages =
// ["a:1", "b:1"]`, and no tables. Neither file nor environment is read where
// the words ask for a text other than the values (--print options): a bad file
// must not hide the help.
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
