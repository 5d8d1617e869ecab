#ifndef SLUICE_SERVICES_CLI_TEXT_FILE_H_
#define SLUICE_SERVICES_CLI_TEXT_FILE_H_

#include <functional>
#include <string>

#include "common/base/json_fwd.h"
#include "common/base/status.h"

namespace sluice::cli {

// The bytes of a file. NOT_FOUND if it cannot be read.
StatusOr<std::string> ReadText(const std::string& path);

// Writes a whole file. UNAVAILABLE if it cannot be written.
Status WriteText(const std::string& path, const std::string& text);

// Gives `add` every line of a file of JSON objects; blank lines are left out.
// The error of a line, or what `add` says of it, names the file and the line.
// INVALID_ARGUMENT for a file without lines.
Status ReadJsonLines(const std::string& path,
                     const std::function<Status(const Json&)>& add);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_TEXT_FILE_H_
