#ifndef SLUICE_SERVICES_CLI_TEXT_FILE_H_
#define SLUICE_SERVICES_CLI_TEXT_FILE_H_

#include <string>

#include "common/base/status.h"

namespace sluice::cli {

// Returns the bytes of a file. NOT_FOUND for an unreadable one.
StatusOr<std::string> ReadText(const std::string& path);

// Writes a whole file. UNAVAILABLE if that fails.
Status WriteText(const std::string& path, const std::string& text);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_TEXT_FILE_H_
