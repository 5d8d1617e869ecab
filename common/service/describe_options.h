#ifndef SLUICE_COMMON_SERVICE_DESCRIBE_OPTIONS_H_
#define SLUICE_COMMON_SERVICE_DESCRIBE_OPTIONS_H_

#include <string>

#include "common/base/status.h"
#include "common/service/service_program.h"

namespace sluice {

// Returns what --help writes: the options with units, ranges and defaults.
std::string HelpText(const ServiceProgram& program);

// Returns the text that --print asks for: "man", the manual page, "markdown",
// the table of options, "options" (options_file.h), or the completion script of
// "bash", "zsh" or "fish". INVALID_ARGUMENT for another word.
StatusOr<std::string> DescribeOptions(const ServiceProgram& program,
                                      const std::string& what);

}  // namespace sluice

#endif  // SLUICE_COMMON_SERVICE_DESCRIBE_OPTIONS_H_
