#ifndef SLUICE_COMMON_SERVICE_DESCRIBE_FLAGS_H_
#define SLUICE_COMMON_SERVICE_DESCRIBE_FLAGS_H_

#include <absl/flags/reflection.h>

#include <string>

#include "common/base/status.h"

namespace sluice {

// Returns whether the flag is a service's, not a flag of Abseil itself.
bool IsServiceFlag(const absl::CommandLineFlag& flag);

// Returns "--kv-blocks" of the flag kv_blocks.
std::string OptionNameOf(std::string flag);

// Returns the text that --print asks for, of the flags of sluice-`service`:
// "man", the manual page, or the completion script of "bash", "zsh" or "fish".
// INVALID_ARGUMENT for another word.
StatusOr<std::string> DescribeFlags(const std::string& service,
                                    const std::string& what);

}  // namespace sluice

#endif  // SLUICE_COMMON_SERVICE_DESCRIBE_FLAGS_H_
